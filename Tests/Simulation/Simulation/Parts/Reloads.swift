import CSimulation

/// An operator reloads the configuration while pushes are under way. The gateway replaces its connections.
final class Reloads: Part {
    private unowned let world: World

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        guard choices.dice.chance(20) else { return }
        choices.add(choices.dice.within(1...5)) { _ in ("the configuration is reloaded", { self.reload() }) }
    }

    private func reload() {
        guard world.relay != nil, let reload = world.service.reload else { return }
        simulation_relay.run(reload)
    }
}

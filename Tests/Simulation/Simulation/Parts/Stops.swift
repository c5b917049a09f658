import CSimulation

/// Stops the relay gracefully, as a supervisor does, and starts it again.
final class Stops: Part {
    private unowned let world: World

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        guard choices.dice.chance(30) else { return }
        choices.add(choices.dice.below(5)) { _ in ("the relay stops gracefully", { self.world.relay?.stop() }) }
    }
}

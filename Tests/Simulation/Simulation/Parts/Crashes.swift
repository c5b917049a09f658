import CSimulation

/// Kills the relay and cuts the power: at any time, and within any write or sync.
final class Crashes: Part {
    private unowned let world: World

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        guard choices.dice.chance(70) else { return }
        let world = world
        let powerCuts = choices.dice.among([0, 50, 100])
        choices.add(choices.dice.below(6)) { dice in
            let powerCut = dice.chance(powerCuts)
            return (powerCut ? "power cut" : "kill", { world.crash(powerCut: powerCut) })
        }
        choices.add(choices.dice.below(4)) { dice in
            let powerCut = dice.chance(powerCuts)
            let operations = dice.within(1...80)
            let name = powerCut ? "power cut" : "kill"
            return ("\(name) within write or sync \(operations)", { world.die(after: operations, powerCut: powerCut) })
        }
    }

    func calmDown() { simulation_disk_die(0, nil) }
}

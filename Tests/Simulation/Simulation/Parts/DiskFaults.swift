import CSimulation

/// A disk that is full, fails, or is slow for some time.
final class DiskFaults: Part {
    private unowned let world: World
    private let none = simulation_disk_get()
    /// The end of the last fault.
    private(set) var lastFault: Moment?

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        let kinds: [(String, (Dice, inout simulation_faults) -> Void)] = [
            ("full", { $1.full = true }),
            ("failing to write", { $1.write_errors = UInt32($0.within(1...600)) }),
            ("failing to sync", { $1.sync_errors = UInt32($0.within(1...600)) }),
            ("failing to read", { $1.read_errors = UInt32($0.within(1...100)) }),
            ("slow", { $1.slowest_sync = Int64($0.within(10...2000)) * 1_000_000 }),
        ]
        let used = kinds.filter { _ in choices.dice.chance(40) }
        guard !used.isEmpty else { return }
        choices.add(choices.dice.within(1...15)) { dice in
            let (name, change) = dice.among(used)
            var faults = none
            change(dice, &faults)
            let length = dice.within(.milliseconds(1)...(.seconds(5)))
            return ("a disk \(name) for \(length)", { self.begin(faults, for: length) })
        }
    }

    private func begin(_ faults: simulation_faults, for length: Duration) {
        world.expectErrors(for: length)
        lastFault = .now + length
        simulation_disk_set(faults)
        simulation_world.run(after: length) { [none] in simulation_disk_set(none) }
    }

    func calmDown() { simulation_disk_set(none) }
}

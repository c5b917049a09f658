#if PLANTED_FAULTS
import CSimulation
import ChatDomain

extension Runner {
    /// The number of a fault of the world. The relay has none then, but durability cannot hold.
    static let lyingDisk = 0

    /// Lets the disk report each sync at once, without any effect.
    static func plantLyingDisk() {
        var faults = simulation_disk_get()
        faults.lies = true
        simulation_disk_set(faults)
    }

    /// Plants each fault in turn, and prints in how many seeds the simulation finds it.
    /// - Parameter numbers: The only faults to plant. `nil` for all.
    /// - Returns: Whether it finds all of them.
    func findPlantedFaults(_ seeds: [UInt64], _ numbers: NumberSet?) -> Bool {
        let faults = [(Self.lyingDisk, "lyingDisk")] + PlantedFault.allCases.map { ($0.rawValue, "\($0)") }
        return faults.filter { numbers?.contains($0.0) ?? true }.map { find($0, $1, seeds) }.allSatisfy(\.self)
    }

    private func find(_ fault: Int, _ name: String, _ seeds: [UInt64]) -> Bool {
        let options = SeedOptions(stopsEarly: true, plantedFault: fault)
        var findings: [RunResult.Failure: Int] = [:]
        var first: UInt64?
        var (cpu, cpuUntilFound) = (Int64(0), Int64(0))
        runAll(seeds.map { ($0, options) }, isQuiet: true) { seed, _, result in
            cpu += result.cpu
            guard let failure = result.failure else { return }
            findings[failure, default: 0] += 1
            if first == nil { (first, cpuUntilFound) = (seed, cpu) }
        }
        let names = findings.sorted { $0.value > $1.value }.map { "\($0.key): \($0.value)" }
        let found = findings.values.reduce(0, +)
        print(
            """
            \(fault) \(name): \(found) of \(seeds.count) seeds\
            \(first.map { ", first by \($0), after \(cpuUntilFound / 1_000_000_000) s" } ?? "") \(names)
            """)
        return found > 0
    }
}
#endif

#if PLANTED_FAULTS
import ChatDomain

extension Runner {
    /// Plants each fault in turn, and prints in how many seeds the simulation finds it.
    /// - Returns: Whether it finds all of them.
    func findPlantedFaults(_ seeds: [UInt64]) -> Bool {
        var areAllFound = true
        for fault in PlantedFault.allCases {
            let options = SeedOptions(stopsEarly: true, plantedFault: fault.rawValue)
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
            areAllFound = areAllFound && found > 0
            print(
                """
                \(fault.rawValue) \(fault): \(found) of \(seeds.count) seeds\
                \(first.map { ", first by \($0), after \(cpuUntilFound / 1_000_000_000) s" } ?? "") \(names)
                """)
        }
        return areAllFound
    }
}
#endif

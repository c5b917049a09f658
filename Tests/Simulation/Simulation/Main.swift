import CSimulation
import Foundation

/// The executable of `make simulate`, which describes the variables.
@main
enum Main {
    static func main() {
        simulation_fix_surroundings(CommandLine.unsafeArgv)
        setvbuf(stdout, nil, _IOLBF, 0)
        let hours: Double? = variable("HOURS") { Double($0) }
        let listed: NumberSet? =
            variable("SEED", NumberSet.init(parsing:)) ?? variable("SEEDS", NumberSet.init(parsing:))
        // A night's seeds are new each time.
        let now = Date()
        let first = hours.map { _ in UInt64(now.timeIntervalSince1970) * 1000 } ?? 1
        let seeds =
            listed.map { $0.numbers.sorted().map(UInt64.init) }.map(AnySequence.init)
            ?? AnySequence(first...(hours == nil ? 60 : .max - 1))
        let options = SeedOptions(kept: variable("ONLY", NumberSet.init(parsing:)), logs: variable("LOG") { $0 } == "1")
        if let place = variable(Runner.placeVariable, RunPlace.init(parsing:)) { Runner.repeatRun(at: place, options) }
        let runner = Runner(children: variable("JOBS") { Int($0) } ?? ProcessInfo.processInfo.activeProcessorCount)
        #if PLANTED_FAULTS
        let isOK = runner.findPlantedFaults(Array(seeds), variable("FAULTS", NumberSet.init(parsing:)))
        #else
        let isOK = runner.run(
            seeds, options, until: now + (hours ?? .infinity) * 3600, repeats: variable("TWICE") { $0 } == "1")
        #endif
        exit(isOK ? 0 : 1)
    }

    /// Returns the value of an environment variable. `nil` if it is empty or not set.
    private static func variable<Value>(_ name: String, _ read: (String) -> Value?) -> Value? {
        guard let text = ProcessInfo.processInfo.environment[name], !text.isEmpty else { return nil }
        guard let value = read(text) else {
            print("\(name) cannot be \(text).")
            exit(2)
        }
        return value
    }
}

import CSimulation
import Foundation

/// `make simulate` describes the variables.
@main
enum Main {
    static func main() {
        simulation_fix_addresses(CommandLine.unsafeArgv)
        let variables = ProcessInfo.processInfo.environment
        func value<Value>(_ name: String, _ read: (String) -> Value?) -> Value? {
            guard let text = variables[name], !text.isEmpty else { return nil }
            guard let value = read(text) else {
                print("\(name) cannot be \(text).")
                exit(2)
            }
            return value
        }
        let options = SeedOptions(
            dropped: value("WITHOUT", NumberSet.init(parsing:)) ?? NumberSet(), logs: variables["LOG"] == "1")
        let runner = Runner(options: options, children: value("JOBS", { Int($0) }) ?? 2)
        let seeds =
            value("SEED", NumberSet.init(parsing:)) ?? value("SEEDS", NumberSet.init(parsing:)) ?? NumberSet(1...60)
        exit(runner.run(seeds.numbers.sorted().map(UInt64.init), repeats: variables["TWICE"] == "1") ? 0 : 1)
    }
}

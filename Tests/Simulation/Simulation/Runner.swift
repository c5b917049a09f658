import CSimulation
import Foundation

struct SeedOptions {
    /// The choices of the seed that are left out.
    var dropped = NumberSet()
    var logs = false
}

/// The result of one run, as a child writes it into shared memory.
struct RunResult {
    var trace: UInt64 = 0
    var steps: UInt64 = 0
    var virtual: Int64 = 0
    var cpu: Int64 = 0
    var choices = 0
    var crashes = 0
    var powerCuts = 0
    var pushes = 0
    var accepted = 0
    /// The first property that the run has violated. `nil` if none.
    var violated: Property?
    var isComplete = false
}

/// Runs seeds in child processes.
final class Runner {
    /// More than a hundred times what a seed takes.
    private static let cpuLimit: UInt32 = 120

    private let options: SeedOptions
    private let slots: UnsafeMutablePointer<RunResult>
    private let count: Int

    init(options: SeedOptions, children: Int) {
        (self.options, count) = (options, children)
        guard let memory = simulation_shared_memory(children * MemoryLayout<RunResult>.stride) else { fatalError() }
        slots = memory.bindMemory(to: RunResult.self, capacity: children)
    }

    /// Runs the seeds, and prints failures and totals.
    /// - Returns: Whether all properties held.
    func run(_ seeds: [UInt64], repeats: Bool) -> Bool {
        var total = RunResult()
        var traces: [UInt64: UInt64] = [:]
        var failed: Set<UInt64> = []
        let begin = Date()
        runAll((repeats ? seeds + seeds : seeds).map { ($0, options) }) { seed, result in
            if result.violated != nil || !result.isComplete { failed.insert(seed) }
            if let trace = traces.updateValue(result.trace, forKey: seed), trace != result.trace {
                print("seed \(seed): two runs differ")
                failed.insert(seed)
            }
            total.add(result)
        }
        let seconds = Double(total.cpu) / 1e9
        print(
            """
            \(seeds.count) seeds, \(failed.count) failed\(failed.isEmpty ? "" : ": \(failed.sorted())")
            \(total.crashes) crashes, \(total.powerCuts) of them power cuts; \(total.pushes) pushes, accepted \
            \(total.accepted) times
            """)
        print(
            String(
                format: "%.2f simulated hours, %.1f s of CPU: %.0f times real time; %.1f s, %llu steps",
                Double(total.virtual) / 3.6e12, seconds, Double(total.virtual) / 1e9 / max(seconds, 0.001),
                Date().timeIntervalSince(begin), total.steps))
        return failed.isEmpty
    }

    /// Runs each seed in a child, several at the same time.
    func runAll(_ runs: [(seed: UInt64, options: SeedOptions)], _ ended: (UInt64, RunResult) -> Void) {
        var free = Array(0..<count)
        var running: [Int32: (seed: UInt64, slot: Int)] = [:]
        func awaitOne() {
            var status: Int32 = 0
            guard let (seed, slot) = running.removeValue(forKey: simulation_wait(&status)) else { return }
            if status & 0x7F != 0 { print("seed \(seed): ended by signal \(status & 0x7F)") }
            free.append(slot)
            ended(seed, slots[slot])
        }
        for run in runs {
            while free.isEmpty { awaitOne() }
            let slot = free.removeFirst()
            slots[slot] = RunResult()
            let child = simulation_fork(Self.cpuLimit)
            if child == 0 { runSeed(run.seed, run.options, slot) }
            running[child] = (run.seed, slot)
        }
        while !running.isEmpty { awaitOne() }
    }

    private func runSeed(_ seed: UInt64, _ options: SeedOptions, _ slot: Int) -> Never {
        let folder = "/dev/shm/pushchat-simulation.\(getpid())"
        mkdir(folder, 0o700)
        simulation_begin(seed)
        simulation_disk_install()
        SimulatedExecutors.install()
        let world = World(folder: folder, dropped: options.dropped, logs: options.logs) { [slots] world in
            slots[slot] = world.result
            for (property, text) in world.problems.prefix(3) { print("seed \(seed): \(property): \(text)") }
            try? FileManager.default.removeItem(atPath: folder)
            simulation_exit(0)
        }
        world.begin()
        world.run()
    }
}

extension RunResult {
    fileprivate mutating func add(_ other: RunResult) {
        steps += other.steps
        virtual += other.virtual
        cpu += other.cpu
        crashes += other.crashes
        powerCuts += other.powerCuts
        pushes += other.pushes
        accepted += other.accepted
    }
}

extension World {
    fileprivate var result: RunResult {
        RunResult(
            trace: simulation_trace(), steps: simulation_steps(), virtual: simulation_now(), cpu: simulation_cpu(),
            choices: choices.all.count, crashes: crashes, powerCuts: powerCuts, pushes: ledger.fates.count,
            accepted: ledger.fates.values.reduce(0) { $0 + $1.accepted }, violated: problems.first?.property,
            isComplete: true)
    }
}

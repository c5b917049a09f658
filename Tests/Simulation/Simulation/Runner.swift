import CSimulation
import Foundation

struct SeedOptions {
    /// The numbers of the only choices that take effect. `nil` for all.
    var kept: NumberSet?
    var logs = false
    /// Whether the run ends with the first violation.
    var stopsEarly = false
    /// The number of the fault that is planted into the relay.
    var plantedFault: Int?
    /// Whether the executable starts again with other addresses. The run must not depend on them.
    var movesAddresses = false
}

/// The result of one run, as a child writes it into shared memory.
struct RunResult {
    /// Equal for two failures that may have the same cause.
    enum Failure: Hashable {
        case violation(Property)
        case signal(Int32)
        /// The process ended before the run did.
        case unfinished
    }

    var trace: UInt64 = 0
    var steps: UInt64 = 0
    var virtual: Int64 = 0
    var cpu: Int64 = 0
    var choices = 0
    var crashes = 0
    var powerCuts = 0
    var pushes = 0
    var accepted = 0
    var failure: Failure?
}

/// A run that its child repeats with other addresses, and where its result belongs.
struct RunPlace {
    let seed: UInt64
    let file: Int32
    let slot: Int

    init(seed: UInt64, file: Int32, slot: Int) { (self.seed, self.file, self.slot) = (seed, file, slot) }

    init?(parsing text: String) {
        let parts = text.split(separator: " ")
        guard parts.count == 3, let seed = UInt64(parts[0]), let file = Int32(parts[1]), let slot = Int(parts[2]) else {
            return nil
        }
        self.init(seed: seed, file: file, slot: slot)
    }

    var text: String { "\(seed) \(file) \(slot)" }
}

/// Runs seeds in child processes.
final class Runner {
    /// The environment variable of a child that repeats a run.
    static let placeVariable = "SIMULATION_PLACE"
    /// More than a hundred times as much as a seed takes.
    private static let cpuLimit: UInt32 = 120
    /// The number of failing seeds that are shortened.
    private static let shortened = 3

    private let slots: UnsafeMutablePointer<RunResult>
    private let count: Int
    private let file: Int32

    init(children: Int) {
        count = children
        // An interruption ends the children. Their folders are then removed.
        signal(SIGINT, SIG_IGN)
        file = simulation_shared_file(count * MemoryLayout<RunResult>.stride)
        slots = Self.slots(file, count)
    }

    private static func slots(_ file: Int32, _ count: Int) -> UnsafeMutablePointer<RunResult> {
        let memory = simulation_shared_memory(file, count * MemoryLayout<RunResult>.stride)
        guard let memory else { fatalError() }
        return memory.bindMemory(to: RunResult.self, capacity: count)
    }

    /// Runs the seeds until a time, and prints failures and totals. Then finds the fewest choices for each kind of
    /// failure.
    /// - Parameter repeats: Whether to run each seed twice, with other addresses, and compare the runs.
    /// - Returns: Whether all properties held.
    func run(_ seeds: some Sequence<UInt64>, _ options: SeedOptions, until end: Date, repeats: Bool) -> Bool {
        var total = RunResult()
        var traces: [UInt64: UInt64] = [:]
        var failures: [UInt64: RunResult] = [:]
        var runs = 0
        let begin = Date()
        var repeated = options
        repeated.movesAddresses = true
        let each = seeds.lazy.flatMap { [repeated] seed in
            repeats ? [(seed, options), (seed, repeated)] : [(seed, options)]
        }
        runAll(each.prefix { _ in Date() < end }) { seed, result in
            runs += 1
            if result.failure != nil { failures[seed] = result }
            if repeats, let trace = traces.updateValue(result.trace, forKey: seed), trace != result.trace {
                print("seed \(seed): two runs differ")
                failures[seed] = result
            }
            total.add(result)
        }
        print(
            """
            \(runs) runs, \(failures.isEmpty ? "all ok" : "failed: \(failures.keys.sorted())"); \(total.crashes) crashes, \
            \(total.powerCuts) of them power cuts; \(total.pushes) pushes, accepted \(total.accepted) times
            """)
        print(
            String(
                format: "%.2f simulated hours, %.1f s of CPU: %.0f times real time; %.1f s, %llu steps, trace %llx",
                Double(total.virtual) / 3.6e12, Double(total.cpu) / 1e9, Double(total.virtual) / Double(total.cpu),
                Date().timeIntervalSince(begin), total.steps, total.trace))
        let firsts = Dictionary(grouping: failures.filter { $1.failure != nil }, by: \.value.failure)
            .compactMap { $1.min { $0.key < $1.key } }.sorted { $0.key < $1.key }
        if !options.logs {
            for (seed, result) in firsts.prefix(Self.shortened) { shorten(seed, result, options) }
        }
        return failures.isEmpty
    }

    /// Prints the log of a failing seed with the fewest choices.
    private func shorten(_ seed: UInt64, _ result: RunResult, _ options: SeedOptions) {
        let all = Array(0..<result.choices).filter { options.kept?.contains($0) ?? true }
        let few = fewest(all) { candidates in
            let runs = candidates.map { (seed, SeedOptions(kept: NumberSet($0), stopsEarly: true)) }
            var failing: [Int] = []
            runAll(runs, isQuiet: true) { _, number, ended in
                if ended.failure == result.failure { failing.append(number) }
            }
            return failing.min()
        }
        print(
            "\nThe same failure with \(few.count) of \(all.count) choices: make simulate SEED=\(seed) LOG=1 ONLY=\(NumberSet(few))"
        )
        runAll([(seed, SeedOptions(kept: NumberSet(few), logs: true, stopsEarly: true))]) { _, _ in }
    }

    /// Removes parts of `elements`, from halves down to single ones, for as long as the rest still fails.
    /// - Parameter firstFailing: Returns the index of the first of some candidates that fails.
    private func fewest(_ elements: [Int], _ firstFailing: ([[Int]]) -> Int?) -> [Int] {
        var kept = elements
        var size = kept.count
        while size >= 1 {
            var position = 0
            while position < kept.count {
                let starts = stride(from: position, to: kept.count, by: size).prefix(count)
                let candidates = starts.map { Array(kept[..<$0] + kept[min($0 + size, kept.count)...]) }
                if let index = firstFailing(candidates) {
                    kept = candidates[index]
                    position += index * size
                } else {
                    position += candidates.count * size
                }
            }
            size /= 2
        }
        return kept
    }

    /// Runs each seed in a child, several at the same time.
    func runAll(_ runs: some Sequence<(UInt64, SeedOptions)>, _ ended: (UInt64, RunResult) -> Void) {
        runAll(runs, isQuiet: false) { seed, _, result in ended(seed, result) }
    }

    /// - Parameter ended: Gets the seed, its index among the runs, and its result.
    func runAll(
        _ runs: some Sequence<(UInt64, SeedOptions)>, isQuiet: Bool, _ ended: (UInt64, Int, RunResult) -> Void
    ) {
        var free = Array(0..<count)
        var running: [Int32: (seed: UInt64, number: Int, slot: Int)] = [:]
        func awaitOne() {
            var status: Int32 = 0
            let child = simulation_wait(&status)
            guard let (seed, number, slot) = running.removeValue(forKey: child) else { return }
            // A child that was killed leaves it.
            try? FileManager.default.removeItem(atPath: Self.folder(ofChild: child))
            let signal = status & 0x7F
            if signal == SIGINT {
                while !running.isEmpty { awaitOne() }
                exit(130)
            }
            if signal != 0 {
                slots[slot].failure = .signal(signal)
                if !isQuiet { print("seed \(seed): ended by signal \(signal)") }
            } else if slots[slot].failure == .unfinished, !isQuiet {
                print("seed \(seed): its process ended before the run did")
            }
            free.append(slot)
            ended(seed, number, slots[slot])
        }
        for (number, run) in runs.enumerated() {
            while free.isEmpty { awaitOne() }
            let slot = free.removeFirst()
            slots[slot] = RunResult(failure: .unfinished)
            let child = simulation_fork(Self.cpuLimit)
            if child == 0 { runSeed(run.0, run.1, isQuiet, slot) }
            running[child] = (run.0, number, slot)
        }
        while !running.isEmpty { awaitOne() }
    }

    private func runSeed(_ seed: UInt64, _ options: SeedOptions, _ isQuiet: Bool, _ slot: Int) -> Never {
        if let fault = options.plantedFault { setenv("PLANTED_FAULT", String(fault), 1) }
        if options.movesAddresses {
            setenv(Self.placeVariable, RunPlace(seed: seed, file: file, slot: slot).text, 1)
            simulation_move(CommandLine.unsafeArgv)
        }
        Self.runSeed(seed, options, isQuiet, slots + slot)
    }

    /// Repeats a run in the executable that its child has started.
    static func repeatRun(at place: RunPlace, _ options: SeedOptions) -> Never {
        simulation_scatter()
        runSeed(place.seed, options, false, slots(place.file, place.slot + 1) + place.slot)
    }

    private static func runSeed(
        _ seed: UInt64, _ options: SeedOptions, _ isQuiet: Bool, _ result: UnsafeMutablePointer<RunResult>
    ) -> Never {
        let folder = folder(ofChild: getpid())
        // An earlier process with this id may have been killed.
        try? FileManager.default.removeItem(atPath: folder)
        mkdir(folder, 0o700)
        simulation_begin(seed)
        simulation_disk_install()
        #if PLANTED_FAULTS
        if options.plantedFault == Self.lyingDisk { plantLyingDisk() }
        #endif
        SimulatedExecutors.install()
        let world = World(folder: folder, options) { world in
            result.pointee = world.result
            if !isQuiet {
                for (property, text) in world.problems.prefix(3) { print("seed \(seed): \(property): \(text)") }
            }
            try? FileManager.default.removeItem(atPath: folder)
            simulation_exit(0)
        }
        // A run that ends by a signal has as many choices as the script.
        world.begin()
        result.pointee.choices = world.choices.all.count
        world.run()
    }

    private static func folder(ofChild process: Int32) -> String { "/dev/shm/pushchat-simulation.\(process)" }
}

extension RunResult {
    fileprivate mutating func add(_ other: RunResult) {
        trace ^= other.trace
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
            accepted: ledger.fates.values.reduce(0) { $0 + $1.accepted },
            failure: problems.first.map { .violation($0.property) })
    }
}

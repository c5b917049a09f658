import CSimulation
@_spi(ExperimentalCustomExecutors) @_spi(ExperimentalScheduling) import _Concurrency

/// Runs the jobs of all tasks and actors on the simulation's thread, in the order that its scheduler chooses.
///
/// The interface that replaces the default executor is not public, and may change with each toolchain. If it has no effect,
/// a second thread begins, and the run fails.
final class SimulatedExecutor: TaskExecutor, SchedulingExecutor {
    static let shared = SimulatedExecutor()

    func enqueue(_ job: consuming ExecutorJob) { add(job, at: nil) }

    func enqueue<C: Clock>(
        _ job: consuming ExecutorJob, after delay: C.Duration, tolerance: C.Duration?, clock: C
    ) {
        add(job, at: simulation_now() + nanoseconds(delay))
    }

    func enqueue<C: Clock>(
        _ job: consuming ExecutorJob, at instant: C.Instant, tolerance: C.Duration?, clock: C
    ) {
        add(job, at: simulation_now() + nanoseconds(clock.now.duration(to: instant)))
    }

    private func nanoseconds(_ duration: some DurationProtocol) -> Int64 {
        guard let duration = duration as? Duration else { fatalError("A clock with another duration") }
        return Int64(duration / .nanoseconds(1))
    }

    private func add(_ job: consuming ExecutorJob, at time: Int64?) {
        let context = unsafeBitCast(UnownedJob(job), to: UnsafeMutableRawPointer.self)
        let run: simulation_function = { context in
            let executor = SimulatedExecutor.shared.asUnownedTaskExecutor()
            unsafeBitCast(context, to: UnownedJob.self).runSynchronously(on: executor)
        }
        if let time {
            simulation_add_at(time, simulation_relay, run, context)
        } else {
            simulation_add(simulation_relay, run, context)
        }
    }
}

/// The main actor's executor, which must be another class.
final class SimulatedMainExecutor: MainExecutor {
    static let shared = SimulatedMainExecutor()

    func enqueue(_ job: consuming ExecutorJob) { SimulatedExecutor.shared.enqueue(job) }
    func checkIsolated() {}
    func run() {}
    func stop() {}
}

struct SimulatedExecutors: ExecutorFactory {
    static var mainExecutor: any MainExecutor { SimulatedMainExecutor.shared }
    static var defaultExecutor: any TaskExecutor { SimulatedExecutor.shared }

    /// Must run before the first task.
    static func install() { _createExecutors(factory: Self.self) }
}

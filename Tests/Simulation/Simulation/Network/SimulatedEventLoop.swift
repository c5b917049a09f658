import CSimulation
import Dispatch
import NIOCore

/// An event loop of the relay. Each task is a job of the scheduler, and the tasks of a loop run in their order.
final class SimulatedEventLoop: EventLoop, @unchecked Sendable {
    private var tasks = CircularBuffer<() -> Void>()
    private var hasJob = false
    private(set) var inEventLoop = false

    var now: NIODeadline { .uptimeNanoseconds(UInt64(simulation_now())) }

    func execute(_ task: @escaping @Sendable () -> Void) {
        tasks.append(task)
        addJob()
    }

    private func addJob() {
        guard !hasJob, !tasks.isEmpty else { return }
        hasJob = true
        simulation_relay.run { self.runFirst() }
    }

    private func runFirst() {
        hasJob = false
        let task = tasks.removeFirst()
        inEventLoop = true
        task()
        inEventLoop = false
        addJob()
    }

    func scheduleTask<T>(deadline: NIODeadline, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        let promise = makePromise(of: T.self)
        nonisolated(unsafe) var isCancelled = false
        simulation_relay.run(at: Moment(nanoseconds: Int64(deadline.uptimeNanoseconds))) {
            guard !isCancelled else { return }
            self.execute {
                guard !isCancelled else { return }
                promise.completeWith(Result { try task() })
            }
        }
        return Scheduled(promise: promise) { isCancelled = true }
    }

    func scheduleTask<T>(in delay: TimeAmount, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        scheduleTask(deadline: now + delay, task)
    }

    func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        fatalError("The relay never stops its event loops.")
    }
}

/// The event loops on a machine with two cores. Connections take them in turn.
final class SimulatedEventLoops: EventLoopGroup, @unchecked Sendable {
    private let loops = [SimulatedEventLoop(), SimulatedEventLoop()]
    private var number = 0

    func next() -> any EventLoop {
        number += 1
        return loops[number % loops.count]
    }

    func makeIterator() -> EventLoopIterator { EventLoopIterator(loops) }

    func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        fatalError("The relay never stops its event loops.")
    }
}

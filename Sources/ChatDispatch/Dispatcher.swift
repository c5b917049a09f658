package import ChatDomain
package import Logging
import ServiceLifecycle

/// Drains one app's part of the queue into its gateway and records what comes back. Never ends by itself.
///
/// Woken by the commit that brings entries. What cannot be done now (the disk is full, the gateway is down) is tried
/// again until it can; the queue's rows say where everything stands.
package struct Dispatcher: Service {
    /// Entries whose verdicts are recorded in one transaction: some milliseconds.
    private static let recordedAtOnce: UInt32 = 1000

    private let app: AppName
    private let queue: any PushQueue
    private let gateway: any PushGateway
    private let clock: TimeSource
    private let log: DispatchLog

    /// - Parameter showsTokens: whether whole device tokens may stand in the log (in development).
    package init(
        app: AppName, queue: any PushQueue, gateway: any PushGateway, clock: @escaping TimeSource = Timestamp.now,
        logger: Logger, showsTokens: Bool = false
    ) {
        self.app = app
        self.queue = queue
        self.gateway = gateway
        self.clock = clock
        self.log = DispatchLog(app: app, logger: logger, showsTokens: showsTokens)
    }

    package func run() async throws {
        let bell = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await gateway.run() }
            await withTaskGroup(of: Void.self) { group in
                group.addTask { await record() }
                group.addTask {
                    await withTaskGroup(of: Void.self) { group in
                        group.addTask { await dispatch(bell.stream, bell.continuation) }
                        // Ends the other: the gateway gives out no slots any more.
                        group.addTask {
                            try? await gracefulShutdown()
                            bell.continuation.finish()
                            await gateway.drain()
                        }
                    }
                    // Not before the last lease was handed over: its verdict is waited for.
                    await gateway.finish()
                }
            }
            group.cancelAll()
        }
    }

    /// Queue to gateway, each time the bell rings.
    private func dispatch(_ rings: AsyncStream<Void>, _ bell: AsyncStream<Void>.Continuation) async {
        queue.announceArrivals(to: bell)
        bell.yield()
        var alarm: Task<Void, any Error>?
        for await _ in rings {
            guard await empty() else { break }
            alarm?.cancel()
            alarm = await ring(bell)
        }
        alarm?.cancel()
    }

    /// Sends until nothing is due.
    /// - Returns: false when the gateway is being stopped.
    private func empty() async -> Bool {
        var patience = Patience()
        var needsFresh = false
        while true {
            guard let slot = await gateway.slot(fresh: needsFresh) else { return false }
            do throws(ChatError) {
                let lease = try await queue.lease(app: app, for: slot)
                patience.succeeded()
                log.refused(lease.refused)
                needsFresh = lease.needsFreshConnection
                if !lease.pushes.isEmpty {
                    gateway.write(lease)
                    log.written(lease)
                } else if lease.refused.isEmpty, !needsFresh {
                    return true
                }
            } catch {
                log.failed("entries could not be taken from the queue", error, isFirst: patience.isFresh)
                guard await patience.pause() else { return false }
            }
        }
    }

    /// Rings when the next entry that waits for its time is due.
    private func ring(_ bell: AsyncStream<Void>.Continuation) async -> Task<Void, any Error>? {
        guard let due = try? await queue.nextDue(app: app) else { return nil }
        // At least a moment, so that an entry that is due and yet not taken cannot make it spin.
        let wait = Duration.milliseconds(max(50, due.milliseconds - clock().milliseconds))
        return Task {
            try await Task.sleep(for: wait)
            bell.yield()
        }
    }

    /// Gateway to queue.
    private func record() async {
        while let verdicts = await gateway.verdicts() {
            for part in verdicts.parts(of: Self.recordedAtOnce) {
                guard await record(part) else { return }
            }
        }
    }

    /// - Returns: false when the task was cancelled.
    private func record(_ verdicts: [Verdict]) async -> Bool {
        var patience = Patience()
        while true {
            do throws(ChatError) {
                log.settled(try await queue.settle(verdicts))
                return true
            } catch {
                log.failed("outcomes could not be recorded", error, isFirst: patience.isFresh)
                guard await patience.pause() else { return false }
            }
        }
    }
}

/// Waits between repeats of something that will work again: 100 ms, doubling up to 5 s.
struct Patience: Sendable {
    private static let first = Duration.milliseconds(100)
    private static let longest = Duration.seconds(5)

    private var next = Self.first

    /// Nothing has failed yet.
    var isFresh: Bool { next == Self.first }

    mutating func succeeded() {
        next = Self.first
    }

    /// - Returns: false when the task was cancelled.
    mutating func pause() async -> Bool {
        defer { next = min(Self.longest, next * 2) }
        do {
            try await Task.sleep(for: next)
            return true
        } catch {
            return false
        }
    }
}

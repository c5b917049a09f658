package import ChatDomain
package import Logging
import ServiceLifecycle
import Synchronization

/// Sends one app's queued pushes to its gateway and records their outcomes. Runs until it is stopped.
///
/// A commit that adds pushes wakes the dispatcher. While the disk is full or the gateway is down, the dispatcher
/// retries until it succeeds. No progress is lost, because the queue's rows hold the state of every push.
/// ``InFlightPushes`` makes all decisions.
package struct Dispatcher: Service {
    /// The time limit for recording outcomes once the process is stopping. Pushes whose outcomes are not recorded by
    /// then are sent again after the next start, as after a crash.
    private static let stopTimeLimit = Duration.seconds(2)

    private let app: AppName
    private let queue: any PushQueue
    private let gateway: any PushGateway
    private let now: TimeSource
    private let log: DispatchLog
    private let progress: DispatchProgress
    private let inFlight: Shared

    /// The state that the dispatcher's tasks share.
    private final class Shared: Sendable {
        let value: Mutex<InFlightPushes>
        /// Whether outcomes cannot be recorded at the moment. The dispatcher then sends nothing, because a crash would
        /// cause duplicates.
        let cannotRecord = Atomic(false)

        init(_ inFlight: InFlightPushes) {
            value = Mutex(inFlight)
        }
    }

    /// Creates the dispatcher of one app. It does nothing until ``run()``.
    /// - Parameters:
    ///   - startsInDoubt: Whether an earlier process may have sent some of the queued pushes.
    ///   - progress: Counts the dispatcher's steps and outcomes.
    ///   - showsTokens: Whether log lines contain whole device tokens (in development).
    package init(
        app: AppName, queue: any PushQueue, gateway: any PushGateway, lifeCycle: PushLifeCycle = PushLifeCycle(),
        startsInDoubt: Bool = false, progress: DispatchProgress = DispatchProgress(),
        now: @escaping TimeSource = Timestamp.now, logger: Logger, showsTokens: Bool = false
    ) {
        self.app = app
        self.queue = queue
        self.gateway = gateway
        self.progress = progress
        self.now = now
        self.log = DispatchLog(app: app, logger: logger, showsTokens: showsTokens)
        inFlight = Shared(InFlightPushes(lifeCycle, startsInDoubt: startsInDoubt))
    }

    package func run() async throws {
        let loop = WorkLoop(now: now)
        // Ends when a task ends that should run until the shutdown. This also ends the dispatcher.
        let (running, end) = AsyncStream.makeStream(of: Never.self)
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                await gateway.run()
                end.finish()
            }
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    await record()
                    end.finish()
                }
                group.addTask {
                    await withTaskGroup(of: Void.self) { group in
                        group.addTask {
                            await dispatch(loop)
                            end.finish()
                        }
                        // This ends the task above, because a draining gateway returns no more slots.
                        group.addTask {
                            await cancelWhenGracefulShutdown { for await _ in running {} }
                            loop.signal.finish()
                            await gateway.drain()
                        }
                    }
                    // Finish only after the last lease was written, so that its outcome still arrives.
                    await gateway.finish()
                }
            }
            group.cancelAll()
        }
    }

    // MARK: - Queue to gateway

    private func dispatch(_ loop: WorkLoop) async {
        queue.announceArrivals(of: app, to: loop.signal)
        await loop.run {
            guard await sendDue() else {
                loop.signal.finish()
                return nil
            }
            guard let due = try? await queue.nextDue(app: app) else { return nil }
            return loop.wait(until: due)
        }
    }

    /// Sends pushes until none is due.
    /// - Returns: `false` if the dispatcher or its gateway is stopping.
    private func sendDue() async -> Bool {
        var backoff = Backoff()
        var depth = SearchDepth()
        while true {
            guard await waitForRecording() else { return false }
            guard let slot = await gateway.slot(fresh: inFlight.value.withLock { $0.needsFreshConnection }) else {
                return false
            }
            let (lanes, limit, servesSingleLane) = inFlight.value.withLock {
                ($0.lanes, $0.limit(for: slot), $0.servesSingleLane)
            }
            do throws(ChatError) {
                let leased =
                    if let test = slot.test {
                        try await lease(for: test, lanes: lanes, limit: limit, &depth)
                    } else {
                        try await queue.lease(app: app, lanes: lanes, limit: limit)
                    }
                backoff.reset()
                progress.moved()
                if leased.pushes.isEmpty {
                    guard servesSingleLane else { return true }
                    inFlight.value.withLock { $0.endTurn() }
                    continue
                }
                await send(leased, to: slot)
            } catch {
                log.failed("pushes could not be leased", error, isFirst: backoff.isFresh)
                await pause(&backoff)
                if Task.isCancelled { return false }
            }
        }
    }

    /// Leases the pushes of a test, and releases the others that it finds in its search.
    private func lease(
        for test: ServiceTest, lanes: [PushLane], limit: Int, _ depth: inout SearchDepth
    ) async throws(ChatError) -> LeasedPushes {
        var candidates = TestCandidates(test, limit: limit)
        let refused = Set(test.refusals.keys)
        var remaining: Set<PushLane> = []
        var isEnd = false
        var failure: ChatError?
        var leases = 0
        while leases < depth.leases, !isEnd, !candidates.isComplete, failure == nil {
            if leases > 0, Task.isCancelled || Task.isShuttingDownGracefully { break }
            leases += 1
            progress.moved()
            do throws(ChatError) {
                let leased = try await queue.lease(
                    app: app, lanes: lanes, limit: TestCandidates.leaseSize, passing: refused)
                isEnd = leased.pushes.count < TestCandidates.leaseSize
                remaining = leased.lanes
                candidates.add(leased.pushes)
                if isEnd, candidates.pushes.count < limit {
                    // The queue may have passed over the refused devices.
                    let repeated = try await queue.lease(app: app, lanes: lanes, limit: TestCandidates.leaseSize)
                    remaining = repeated.lanes
                    candidates.add(repeated.pushes)
                }
            } catch {
                failure = error
            }
        }
        if lanes == PushLane.allCases {
            depth.searched(foundFreshDevice: candidates.hasFreshDevice, reachedEnd: isEnd)
        }
        for (lane, pushIDs) in candidates.released { queue.release(pushIDs.ranges, lane: lane, app: app) }
        // Pushes that were found are sent. The next lease meets the failure again.
        if let failure, candidates.pushes.isEmpty { throw failure }
        return LeasedPushes(candidates.pushes, lanes: remaining.union(candidates.released.keys))
    }

    /// Waits until outcomes can be recorded.
    /// - Returns: `false` if the dispatcher is stopping.
    private func waitForRecording() async -> Bool {
        while inFlight.cannotRecord.load(ordering: .relaxed) {
            if Task.isCancelled || Task.isShuttingDownGracefully { return false }
            try? await Task.sleep(for: Backoff().first)
        }
        return true
    }

    private func send(_ leased: LeasedPushes, to slot: ConnectionSlot) async {
        let admission = inFlight.value.withLock { inFlight in
            inFlight.admit(leased, to: slot, format: gateway.format, at: now())
        }
        for (lane, pushIDs) in admission.released { queue.release(pushIDs.ranges, lane: lane, app: app) }
        if !admission.lease.pushes.isEmpty {
            gateway.write(admission.lease)
            progress.wrote(admission.rows, at: now())
            log.written(admission.lease, admission.rows)
        }
        if !admission.settlements.isEmpty {
            log.notSent(admission.settlements)
            if await settle(admission.settlements) == nil { release(admission.settlements) }
        }
    }

    // MARK: - Gateway to queue

    private func record() async {
        var hasGivenUp = false
        while let reports = await gateway.reports() {
            progress.moved()
            let time = now()
            let conclusion = inFlight.value.withLock { $0.conclude(reports, at: time) }
            progress.answered(conclusion.answers, at: time)
            for (lane, pushIDs) in conclusion.released {
                log.released(pushIDs.count)
                queue.release(pushIDs.ranges, lane: lane, app: app)
            }
            for batch in conclusion.batches {
                let settlements = batch.map(\.settlement)
                if !hasGivenUp, let settled = await settle(settlements) {
                    log.settled(batch, settled)
                } else {
                    hasGivenUp = true
                    release(settlements)
                }
            }
        }
    }

    /// Releases pushes whose outcomes cannot be recorded any more. The app may get another dispatcher in this process.
    private func release(_ settlements: [Settlement]) {
        let leased = settlements.filter { !$0.overrulesSilence }.map(\.pushIDs)
        queue.release(leased, lane: .retry, app: app)
    }

    /// Records settlements, and retries until that succeeds.
    /// - Returns: `nil` if the task was cancelled, or if the process is stopping and the outcomes cannot be recorded.
    private func settle(_ settlements: [Settlement]) async -> [SettledPushes]? {
        var backoff = Backoff()
        var end: ContinuousClock.Instant?
        while true {
            do throws(ChatError) {
                let settled = try await queue.settle(settlements, app: app)
                inFlight.cannotRecord.store(false, ordering: .relaxed)
                return settled
            } catch {
                #if PLANTED_FAULTS
                if PlantedFault.settlementGivenUp.isPlanted { return settlements.map { _ in SettledPushes(count: 0) } }
                #endif
                inFlight.cannotRecord.store(true, ordering: .relaxed)
                log.failed("outcomes could not be recorded", error, isFirst: backoff.isFresh)
                if Task.isShuttingDownGracefully, end == nil { end = .now + Self.stopTimeLimit }
                if Task.isCancelled || end.map({ $0 <= .now }) == true {
                    log.notRecorded(settlements)
                    return nil
                }
                await pause(&backoff)
            }
        }
    }

    /// Pauses before a retry. A shutdown ends the pause early, and later pauses are short.
    private func pause(_ backoff: inout Backoff) async {
        if Task.isShuttingDownGracefully {
            try? await Task.sleep(for: backoff.delay(limit: backoff.first))
        } else {
            let delay = backoff.delay()
            await cancelWhenGracefulShutdown { try? await Task.sleep(for: delay) }
        }
    }
}

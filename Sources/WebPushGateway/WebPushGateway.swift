import AsyncHTTPClient
package import ChatDomain
import Foundation
package import Logging
import NIOCore
import NIOHTTP1
package import NIOSSL
import Synchronization
package import WebPushWire

/// Browsers' push services (RFC 8030): each push is encrypted for its browser and posted to the service that its subscription
/// names.
///
/// Every service, by its origin, has connections, a window and pauses of its own (``OriginState``): one that is down holds up
/// nobody else. Each push is answered for itself.
package final class WebPushGateway: PushGateway {
    package struct Options: Sendable {
        /// Pushes at once, over all services. Bounds memory; four services that do not answer hold up nobody else.
        package var limit = 2000
        /// How long a service has for an answer.
        package var answerLimit = Duration.seconds(30)
        /// How long what is in flight has when the relay stops.
        package var drainLimit = Duration.seconds(10)
        /// Kept by a push service for a browser that is off, where the push says nothing else; at most 28 days.
        package var lifetime = Duration.seconds(28 * 86_400)

        package init() {}
    }

    /// Whose pushes they are, and where they may go.
    package struct Sender: Sendable {
        package let key: VAPIDKey
        /// `mailto:` or `https:`: whom a push service's operator may ask. Without one Apple's service takes nothing.
        package let subject: String?
        package let rules: EndpointRules
        /// Authorities beside the system's, for services that the operator named.
        package let trust: [NIOSSLCertificate]
        /// The addresses of a host name.
        var addresses: @Sendable (String) async throws -> [IPAddress] = HostResolver.addresses

        package init(key: VAPIDKey, subject: String?, rules: EndpointRules, trust: [NIOSSLCertificate] = []) {
            self.key = key
            self.subject = subject
            self.rules = rules
            self.trust = trust
        }
    }

    /// So many services are remembered; of more only those with something to do. Strangers choose their names.
    private static let manyOrigins = 64

    private enum Work: Sendable {
        case lease(Lease)
        case push(BrowserPush, PushOrigin)
        /// Looks again whether there is a slot, once the services had time to answer.
        case lookAgain
    }

    private struct State {
        var sender: Sender?
        var format: WebPushFormat
        var origins: [String: PushOrigin] = [:]
        var outstanding = 0
        /// Of these, those that are not yet given to their service, which may be the same for all.
        var unassigned = 0
        var nextIdentifier: UInt32 = 1
        var connection: ConnectionID
        var waiters: [CheckedContinuation<ConnectionSlot?, Never>] = []
        var isDraining = false
        var willLookAgain = false
        var idle: CheckedContinuation<Void, Never>?
    }

    private let options: Options
    private let store: any SubscriptionStore
    private let clock: TimeSource
    private let connectionIDs: ConnectionIDs
    private let logger: Logger
    private let buffer = ReportBuffer()
    private let state: Mutex<State>
    private let work = AsyncStream.makeStream(of: Work.self)

    /// - Parameter sender: nil while it is not known; everything waits in the queue then.
    package init(
        sender: Sender?, format: WebPushFormat, subscriptions: any SubscriptionStore, options: Options = Options(),
        connectionIDs: ConnectionIDs, clock: @escaping TimeSource = Timestamp.now, logger: Logger
    ) {
        self.options = options
        self.store = subscriptions
        self.clock = clock
        self.connectionIDs = connectionIDs
        self.logger = logger
        state = Mutex(State(sender: sender, format: format, connection: connectionIDs.next()))
    }

    /// Services that were connected to.
    package var openConnections: Int { state.withLock { $0.origins.count } }

    package var format: any PushFormat { state.withLock { $0.format } }

    /// What is sent from now on; what is on its way ends first, and what was not sent yet waits in the queue again.
    package func reconfigure(sender: Sender?, format: WebPushFormat) {
        let old = state.withLock { state in
            defer { (state.sender, state.format, state.origins) = (sender, format, [:]) }
            return Array(state.origins.values)
        }
        withdrawWaiting(old)
        for origin in old { origin.close() }
        serveWaiters()
    }

    // MARK: - Slots

    /// Every slot is a fresh one: what happens to a push says nothing about another.
    package func slot(fresh: Bool) async -> ConnectionSlot? {
        await withCheckedContinuation { continuation in
            state.withLock { $0.waiters.append(continuation) }
            serveWaiters()
        }
    }

    private func serveWaiters() {
        let (waiters, slot) = state.withLock {
            state -> ([CheckedContinuation<ConnectionSlot?, Never>], ConnectionSlot?) in
            guard !state.waiters.isEmpty else { return ([], nil) }
            let slot = self.slot(&state)
            guard slot != nil || state.isDraining else {
                // A service that does not answer holds up the others only until then.
                if !state.willLookAgain, state.outstanding > 0 {
                    state.willLookAgain = true
                    work.continuation.yield(.lookAgain)
                }
                return ([], nil)
            }
            defer { state.waiters = [] }
            return (state.waiters, slot)
        }
        for waiter in waiters { waiter.resume(returning: slot) }
    }

    private func slot(_ state: inout State) -> ConnectionSlot? {
        guard !state.isDraining, state.sender != nil else { return nil }
        let now = clock()
        // All of a lease may be for one service, also for one that is new.
        let busiest =
            state.origins.values
            .compactMap { $0.capacity(at: now, isAlone: state.origins.count == 1) }.min() ?? .max
        let capacity = min(
            options.limit - state.outstanding,
            min(busiest, OriginState.window + OriginState.waitingLimit) - state.unassigned)
        // Few at a time would cost a transaction each.
        guard capacity >= OriginState.waitingLimit / 2 || (state.outstanding == 0 && capacity > 0) else { return nil }
        if state.nextIdentifier > .max - UInt32(options.limit) {
            guard state.outstanding == 0 else { return nil }
            (state.nextIdentifier, state.connection) = (1, connectionIDs.next())
        }
        return ConnectionSlot(
            connection: state.connection, firstIdentifier: state.nextIdentifier, capacity: capacity, isFresh: true,
            answersEach: true)
    }

    package func write(_ lease: Lease) {
        let isTaken = state.withLock { state in
            guard !state.isDraining else { return false }
            state.outstanding += lease.pushes.count
            state.unassigned += lease.pushes.count
            state.nextIdentifier += UInt32(lease.pushes.count)
            return true
        }
        guard !isTaken else {
            work.continuation.yield(.lease(lease))
            return
        }
        for push in lease.pushes { buffer.put(.notProcessed, of: push.identifier, on: lease.slot.connection) }
    }

    package func reports() async -> [DeliveryReport]? { await buffer.take() }

    package func drain() async {
        withdrawWaiting(
            state.withLock { state in
                state.isDraining = true
                return Array(state.origins.values)
            })
        serveWaiters()
        if state.withLock({ $0.outstanding > 0 }) {
            await withTaskGroup(of: Void.self) { group in
                group.addTask { try? await Task.sleep(for: self.options.drainLimit) }
                group.addTask { await self.waitUntilIdle() }
                await group.next()
                // First: who begins to wait after that does not.
                group.cancelAll()
                self.state.withLock { state in
                    defer { state.idle = nil }
                    return state.idle
                }?.resume()
            }
        }
        work.continuation.finish()
    }

    private func waitUntilIdle() async {
        await withCheckedContinuation { continuation in
            let isIdle = state.withLock { state in
                guard state.outstanding > 0, !Task.isCancelled else { return true }
                state.idle = continuation
                return false
            }
            if isIdle { continuation.resume() }
        }
    }

    package func finish() async {
        buffer.close()
    }

    // MARK: - Sending

    package func run() async {
        await withDiscardingTaskGroup { group in
            for await work in work.stream {
                group.addTask { await self.perform(work) }
            }
            // Drained, or stopped at once: what is still in flight stays pending in the queue.
            group.cancelAll()
        }
        let origins = state.withLock { state in
            defer { state.origins = [:] }
            return Array(state.origins.values)
        }
        for origin in origins { origin.close() }
    }

    private func perform(_ work: Work) async {
        switch work {
        case .lease(let lease): await admit(lease)
        case .push(let push, let origin): await send(push, over: origin)
        case .lookAgain:
            try? await Task.sleep(for: OriginState.slowAfter)
            state.withLock { $0.willLookAgain = false }
            serveWaiters()
        }
    }

    /// Finds the subscriptions and gives each push to its service.
    private func admit(_ lease: Lease) async {
        defer {
            state.withLock { $0.unassigned -= lease.pushes.count }
            serveWaiters()
        }
        let addresses = lease.pushes.map(\.browser)
        var backoff = Backoff()
        var known: [DeviceToken: Subscription]?
        while known == nil {
            do throws(ChatError) {
                known = try await store.subscriptions(addresses)
            } catch {
                if backoff.isFresh { logger.error("subscriptions cannot be read", metadata: ["error": "\(error)"]) }
                guard await backoff.pause() else {
                    for push in lease.pushes { report(.notProcessed, of: push) }
                    return
                }
            }
        }
        for push in lease.pushes {
            guard let subscription = known?[push.browser] else {
                report(.rejected(reason: "NoSubscription"), of: push)
                continue
            }
            submit(BrowserPush(push: push, subscription: subscription))
        }
    }

    private func submit(_ push: BrowserPush) {
        let origin: PushOrigin
        do throws(WebPushError) {
            origin = try self.origin(of: push.subscription)
        } catch {
            report(.rejected(reason: "BadEndpoint", hint: "\(error)"), of: push.push)
            return
        }
        switch origin.submit(push, at: clock()) {
        case .send: work.continuation.yield(.push(push, origin))
        case .wait: if state.withLock({ $0.isDraining }) { withdrawWaiting([origin]) }
        case .postpone(let until): postpone(push, until: until)
        }
    }

    private func postpone(_ push: BrowserPush, until: Timestamp) {
        report(.postponed(until: until, reason: "ServiceUnavailable"), of: push.push)
    }

    /// What was not sent yet is as if it had never been leased.
    private func withdrawWaiting(_ origins: [PushOrigin]) {
        for origin in origins {
            for push in origin.withdrawWaiting() { report(.notProcessed, of: push.push) }
        }
    }

    /// The service that a subscription names, if it may be sent to.
    private func origin(of subscription: Subscription) throws(WebPushError) -> PushOrigin {
        let endpoint = try PushEndpoint(subscription.endpoint)
        let result = state.withLock { state -> Result<PushOrigin, WebPushError> in
            if let origin = state.origins[endpoint.origin] { return .success(origin) }
            guard let sender = state.sender else { return .failure(WebPushError("sender", "is not known")) }
            do throws(WebPushError) {
                try sender.rules.check(endpoint)
            } catch {
                return .failure(error)
            }
            if state.origins.count >= Self.manyOrigins {
                for (name, origin) in state.origins where origin.isIdle {
                    origin.close()
                    state.origins[name] = nil
                }
            }
            let origin = PushOrigin(
                endpoint, sender: sender, answerLimit: options.answerLimit, now: clock(), logger: logger)
            state.origins[endpoint.origin] = origin
            return .success(origin)
        }
        return try result.get()
    }

    private func send(_ push: BrowserPush, over origin: PushOrigin) async {
        let begun = clock()
        let answer = await origin.send(
            WebPushRequest(push, lifetime: options.lifetime, now: begun), now: begun)
        let now = clock()
        let isAuthorized = origin.isAuthorized(at: now)
        let next = origin.finished(answer.result, at: now)
        if let until = next.opened {
            logger.warning(
                "a push service takes nothing now",
                metadata: ["origin": "\(origin.name)", "reason": "\(answer.reason)", "until": "\(until.rfc3339)"])
        }
        report(answer.outcome(sentAt: begun, isAuthorized: isAuthorized, pausedUntil: next.pausedUntil), of: push.push)
        for (push, until) in next.postponed { postpone(push, until: until) }
        for push in next.send { work.continuation.yield(.push(push, origin)) }
    }

    private func report(_ outcome: Outcome, of push: Push) {
        let (connection, idle) = state.withLock { state in
            state.outstanding -= 1
            guard state.outstanding == 0 else { return (state.connection, nil as CheckedContinuation<Void, Never>?) }
            defer { state.idle = nil }
            return (state.connection, state.idle)
        }
        buffer.put(outcome, of: push.identifier, on: connection)
        idle?.resume()
        serveWaiters()
    }
}

extension Push {
    /// By which name the browser's subscription is known.
    fileprivate var browser: DeviceToken {
        switch address {
        case .token(let token): token
        }
    }
}

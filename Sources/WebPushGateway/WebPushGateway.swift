package import ChatDomain
import Foundation
import GatewayPool
package import Logging
package import NIOSSL
package import PushWire
import Synchronization

/// The push services of browsers (RFC 8030). Each push is encrypted for its browser and posted to the service that its
/// subscription names.
///
/// Every service, identified by its origin, has its own connections, window and pauses (``OriginState``), so one that
/// is down does not delay the others. Each push gets its own response.
package final class WebPushGateway: PushGateway {
    package struct Options: Sendable {
        /// The maximum number of pushes in the gateway, over all services. It limits memory. Even four services that do
        /// not respond do not delay the others.
        package var limit = 2000
        /// The time in which a service must respond.
        package var answerLimit = Duration.seconds(30)
        /// The time that pushes in flight get for their responses when the relay stops.
        package var drainLimit = Duration.seconds(10)
        /// The time for which a push service keeps a push without an expiration for a browser that is offline. At most
        /// 28 days.
        package var lifetime = Duration.seconds(28 * 86_400)
        var connector: any Connector = .sockets

        package init() {}
    }

    /// The identity of the sender, and the endpoints that may receive its pushes.
    package struct Sender: Sendable {
        package let key: VAPIDKey
        /// The contact for operators of push services, as `mailto:` or `https:`. Apple's service rejects pushes without
        /// it.
        package let subject: String?
        package let rules: EndpointRules
        /// Authorities in addition to the system's, for services that the operator named.
        package let trust: [NIOSSLCertificate]
        /// Returns the addresses of a host name.
        var addresses: @Sendable (String) async throws -> [IPAddress] = HostResolver().addresses

        package init(key: VAPIDKey, subject: String?, rules: EndpointRules, trust: [NIOSSLCertificate] = []) {
            self.key = key
            self.subject = subject
            self.rules = rules
            self.trust = trust
        }
    }

    /// The number of services at which the gateway removes idle ones. The number must be limited, because strangers
    /// choose the names of services.
    private static let idleOriginLimit = 64

    /// The maximum number of pushes that one task encrypts. Another task encrypts the next ones, so that several cores
    /// are used.
    private static let encryptionBatch = 16

    private enum Work: Sendable {
        case lease(Lease)
        case pushes([AddressedPush], PushOrigin)
        /// Requests that are already encrypted.
        case requests([WebPushRequest], PushOrigin)
        /// Checks again whether there is a slot, after the services had time to respond.
        case recheck
    }

    private struct State {
        var sender: Sender?
        var format: WebPushFormat
        var origins: [String: PushOrigin] = [:]
        var outstanding = 0
        /// The number of outstanding pushes that are not assigned to a service yet. All of them may be for the same
        /// service.
        var unassigned = 0
        var nextIdentifier: UInt32 = 1
        var connection: ConnectionID
        var waiters: [CheckedContinuation<ConnectionSlot?, Never>] = []
        var isDraining = false
        var willRecheck = false
        var idle: CheckedContinuation<Void, Never>?
    }

    private let options: Options
    private let store: any SubscriptionStore
    private let now: TimeSource
    private let connectionIDs: ConnectionIDs
    private let logger: Logger
    private let buffer = ReportBuffer()
    private let state: Mutex<State>
    private let work = AsyncStream.makeStream(of: Work.self)

    /// Creates a gateway without connections. They are opened when pushes need them.
    /// - Parameter sender: `nil` while the sender is not known. Pushes then wait in the queue.
    package init(
        sender: Sender?, format: WebPushFormat, subscriptions: any SubscriptionStore, options: Options = Options(),
        connectionIDs: ConnectionIDs, now: @escaping TimeSource = Timestamp.now, logger: Logger
    ) {
        self.options = options
        self.store = subscriptions
        self.now = now
        self.connectionIDs = connectionIDs
        self.logger = logger
        state = Mutex(State(sender: sender, format: format, connection: connectionIDs.next()))
    }

    /// The number of services that the gateway has connected to.
    package var openConnections: Int { state.withLock { $0.origins.count } }

    /// Whether at least one service rejects the sender. Other services may accept it.
    package var areCredentialsRefused: Bool {
        let (origins, now) = (state.withLock { Array($0.origins.values) }, self.now())
        return origins.contains { $0.refusesCredentials(at: now) }
    }

    /// The services that do not get all pushes at once now, by name.
    package var restrictedServices: [PushServiceStatus] {
        let (origins, now) = (state.withLock { Array($0.origins.values) }, self.now())
        return origins.compactMap { $0.condition(at: now) }.sorted { $0.origin < $1.origin }
    }

    package var format: any PushFormat { state.withLock { $0.format } }

    /// Changes sender and format for pushes from now on. Requests in flight end first, and unsent pushes wait in the
    /// queue again.
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

    /// Returns a slot. Every slot is fresh, because the outcome of one push says nothing about another.
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
                // A service that does not respond delays the others only until this check.
                if !state.willRecheck, state.outstanding > 0 {
                    state.willRecheck = true
                    work.continuation.yield(.recheck)
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
        let now = self.now()
        #if PLANTED_FAULTS
        let silent = state.origins.values.filter { !$0.isIdle && $0.capacity(at: now, isAlone: false) == nil }
        if PlantedFault.silentOriginBlocksOthers.isPlanted, !silent.isEmpty { return nil }
        #endif
        // All pushes of a lease may be for one service, even for a new one.
        let busiest =
            state.origins.values
            .compactMap { $0.capacity(at: now, isAlone: state.origins.count == 1) }.min() ?? .max
        let capacity = min(
            options.limit - state.outstanding,
            min(busiest, OriginState.requestLimit + OriginState.waitingLimit) - state.unassigned)
        // Each lease costs a transaction, so small leases are avoided.
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
        buffer.put(lease.pushes.map { ($0.identifier, .notProcessed) }, on: lease.slot.connection)
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
                // Cancel first, so that a waiter that starts afterwards returns at once.
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
            // The gateway was drained, or stopped without a drain. Pushes that are still in flight stay pending in the
            // queue.
            group.cancelAll()
        }
        let origins = state.withLock { state in
            defer { state.origins = [:] }
            return Array(state.origins.values)
        }
        for origin in origins { origin.stop() }
    }

    private func perform(_ work: Work) async {
        switch work {
        case .lease(let lease): await admit(lease)
        case .pushes(let pushes, let origin): await origin.send(pushes, now: now())
        case .requests(let requests, let origin): await origin.send(requests)
        case .recheck:
            try? await Task.sleep(for: OriginState.slowAfter)
            state.withLock { $0.willRecheck = false }
            serveWaiters()
        }
    }

    /// Fetches the subscriptions and submits each push to its service.
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
                    return report(lease.pushes.map { ($0.identifier, .notProcessed) })
                }
            }
        }
        var sent: [String: (origin: PushOrigin, pushes: [AddressedPush])] = [:]
        for push in lease.pushes {
            guard let subscription = known?[push.browser] else {
                report([(push.identifier, .rejected(reason: "NoSubscription"))])
                continue
            }
            let addressed = AddressedPush(push: push, subscription: subscription)
            if let origin = submit(addressed) { sent[origin.name, default: (origin, [])].pushes.append(addressed) }
        }
        for (origin, pushes) in sent.values { send(pushes, over: origin) }
    }

    /// Submits a push to its service.
    /// - Returns: The service to send the push to now. `nil` if the push waits or has its outcome.
    private func submit(_ push: AddressedPush) -> PushOrigin? {
        let origin: PushOrigin
        do throws(WebPushError) {
            origin = try self.origin(of: push.subscription)
        } catch {
            report([(push.push.identifier, .rejected(reason: "BadEndpoint", hint: "\(error)"))])
            return nil
        }
        switch origin.submit(push, at: now()) {
        case .send: return origin
        case .wait:
            // The service may have been replaced, and its waiting pushes withdrawn, since this push got it.
            let isOver = state.withLock { $0.isDraining || $0.origins[origin.name] !== origin }
            if isOver { withdrawWaiting([origin]) }
        case .postpone(let until): report([Self.postponed(push, until: until)])
        }
        return nil
    }

    private static func postponed(_ push: AddressedPush, until: Timestamp) -> (identifier: UInt32, outcome: Outcome) {
        (push.push.identifier, .postponed(until: until, reason: "ServiceUnavailable"))
    }

    /// Releases the waiting pushes as if they had never been leased.
    private func withdrawWaiting(_ origins: [PushOrigin]) {
        for origin in origins {
            report(origin.withdrawWaiting().map { ($0.push.identifier, .notProcessed) })
        }
    }

    /// Returns the service that a subscription names.
    /// - Throws: The reason why nothing may be sent to it.
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
            if state.origins.count >= Self.idleOriginLimit {
                for (name, origin) in state.origins where origin.isIdle {
                    origin.close()
                    state.origins[name] = nil
                }
            }
            let origin = PushOrigin(
                endpoint, sender: sender, options: options, now: now(), logger: logger
            ) { [weak self] origin, event in self?.handle(event, from: origin) }
            state.origins[endpoint.origin] = origin
            return .success(origin)
        }
        return try result.get()
    }

    private func send(_ pushes: [AddressedPush], over origin: PushOrigin) {
        for start in stride(from: 0, to: pushes.count, by: Self.encryptionBatch) {
            work.continuation.yield(.pushes(Array(pushes[start...].prefix(Self.encryptionBatch)), origin))
        }
    }

    private func handle(_ event: PushOrigin.Event, from origin: PushOrigin) {
        switch event {
        case .answered(let answered): settle(answered, by: origin)
        case .returned(let requests):
            guard case .terminated = work.continuation.yield(.requests(requests, origin)) else { return }
            origin.conclude(requests, .notSent)
        }
    }

    private func settle(_ answered: [PushOrigin.Answered], by origin: PushOrigin) {
        let now = self.now()
        var outcomes: [(identifier: UInt32, outcome: Outcome)] = []
        outcomes.reserveCapacity(answered.count)
        var sent: [AddressedPush] = []
        for entry in answered {
            let isAuthorized = origin.isAuthorized(at: now)
            let next = origin.finished(entry.response.result, of: entry.push, at: now)
            if next.slowedTo != nil || next.opened != nil {
                var metadata: Logger.Metadata = ["origin": "\(origin.name)", "reason": "\(entry.response.reason)"]
                if let until = next.opened { metadata["until"] = "\(until.rfc3339)" }
                if let rate = next.slowedTo { metadata["per_minute"] = "\(rate)" }
                if let hint = entry.response.hint(contact: origin.contact) { metadata["hint"] = "\(hint)" }
                logger.warning(
                    next.slowedTo == nil ? "a push service takes nothing now" : "a push service limits the relay",
                    metadata: metadata)
            }
            let outcome = entry.response.outcome(
                sentAt: entry.sentAt, isAuthorized: isAuthorized, pausedUntil: next.pausedUntil,
                contact: origin.contact)
            outcomes.append((entry.push.push.identifier, outcome))
            outcomes += next.postponed.map { Self.postponed($0.push, until: $0.until) }
            sent += next.send
        }
        send(sent, over: origin)
        report(outcomes)
    }

    private func report(_ outcomes: [(identifier: UInt32, outcome: Outcome)]) {
        guard !outcomes.isEmpty else { return }
        let (connection, idle) = state.withLock { state in
            state.outstanding -= outcomes.count
            guard state.outstanding == 0 else { return (state.connection, nil as CheckedContinuation<Void, Never>?) }
            defer { state.idle = nil }
            return (state.connection, state.idle)
        }
        buffer.put(outcomes, on: connection)
        idle?.resume()
        serveWaiters()
    }
}

extension Push {
    /// The address of the browser's subscription.
    fileprivate var browser: DeviceToken {
        switch address {
        case .token(let token): token
        }
    }
}

import Foundation
import Logging
import NIOCore
import PushWire
import Synchronization

/// The complete state of the sandbox as a value: inbox, devices, browsers, feedback, faults, counts, and the rules that
/// connect them.
///
/// The handlers of all protocols call it to decide on each notification. Faults take precedence over the sandbox's own
/// rules.
struct SandboxState: Sendable {
    let configuration: SandboxConfiguration
    var inbox: Inbox
    var devices = DeviceRegistry()
    var browsers = BrowserRegistry()
    var userAgents = UserAgents()
    var installations = InstallationRegistry()
    /// The token endpoint. `nil` until the sandbox listens.
    var accessTokens: AccessTokens?
    var activities = ActivityRegistry()
    var channels = ChannelRegistry()
    var feedback = FeedbackList()
    var faults = FaultTable()
    private var counts = SandboxStats()
    /// Counts the notifications that each device gets in the current second.
    private var deviceRate = DeviceRate()
    private var lastConnection = 0

    init(configuration: SandboxConfiguration) {
        self.configuration = configuration
        inbox = Inbox(limit: configuration.inboxLimit, byteLimit: configuration.inboxByteLimit)
    }

    // MARK: Connections and counts

    var stats: SandboxStats {
        var stats = counts
        stats.feedback.waiting = feedback.count
        stats.inbox = .init(count: inbox.count, dropped: inbox.dropped, last: inbox.lastID)
        stats.devices = .init(installed: devices.presentCount, removed: devices.removedCount)
        stats.channels.count = channels.count
        stats.activities = .init(
            active: activities.activeCount, ended: activities.count - activities.activeCount)
        stats.installations = .init(
            installed: installations.presentCount, removed: installations.removedCount)
        stats.browsers = .init(
            subscribed: browsers.presentCount, removed: browsers.removedCount,
            connected: userAgents.connectedCount, waiting: userAgents.waitingCount)
        return stats
    }

    /// Admits a connection.
    /// - Returns: The connection's number, from 1. `nil` if too many connections are open.
    mutating func admit(_ listener: ListenerKind, at now: Date) -> Int? {
        guard counts[listener].open < configuration.connectionLimit else {
            let message = "\(configuration.connectionLimit) connections are open, which is the limit."
            refuse(nil, of: listener, .tooMany, message, at: now)
            return nil
        }
        counts[listener].open += 1
        counts[listener].seen += 1
        lastConnection += 1
        return lastConnection
    }

    mutating func connectionClosed(_ listener: ListenerKind) {
        counts[listener].open -= 1
    }

    /// Counts a refused connection and records its cause.
    /// - Parameter connection: The connection's number. `nil` if the connection was not even admitted.
    mutating func refuse(
        _ connection: Int?, of listener: ListenerKind, _ reason: RefusedConnection.Reason, _ message: String,
        at now: Date
    ) {
        counts.refuse(
            RefusedConnection(
                listener: listener, connection: connection, reason: reason, message: message, refusedAt: now))
    }

    /// Counts a stream that was refused because it exceeded the limit.
    mutating func streamRefused() {
        counts.http2.streamsOverLimit += 1
    }

    /// Counts everything that arrived after a binary connection's end was decided.
    mutating func discard(notifications: Int, bytes: Int) {
        counts.binary.discarded += notifications
        counts.binary.discardedBytes += bytes
    }

    // MARK: Devices and feedback

    /// Removes the app from the device. Its token is rejected from now on, and the feedback service lists it.
    ///
    /// An unknown token counts as a device of `topic`, unless the sandbox is strict.
    /// - Returns: The device. `nil` if there is no such device.
    mutating func removeDevice(
        token: [UInt8], topic: String, at now: Date
    ) throws(LimitReached) -> SandboxDevice? {
        if !configuration.strict, devices[token] == nil {
            _ = try devices.install(token: token, topic: topic, at: now)
        }
        guard let (device, removedNow) = devices.remove(token: token, at: now) else { return nil }
        if removedNow {
            let seconds = UInt32(clamping: Int64(now.timeIntervalSince1970))
            feedback.append(FeedbackTuple(timestamp: seconds, token: token), topic: device.topic)
        }
        return device
    }

    /// Returns the feedback list for a reader. `nil` if the reader's certificate names no topic.
    mutating func readFeedback(topic: String?) -> FeedbackList.Reading? {
        guard let topic else { return nil }
        let reading = feedback.reading(topic: topic)
        if configuration.clearFeedbackOnHandshake { clearFeedback(reading) }
        return reading
    }

    mutating func feedbackSent(tuples: Int) {
        counts.feedback.sent += tuples
    }

    /// Clears the tuples that a reader has received completely.
    mutating func clearFeedback(_ reading: FeedbackList.Reading) {
        let before = feedback.count
        feedback.clear(reading)
        counts.feedback.cleared += before - feedback.count
    }

    // MARK: The binary protocol

    /// Decides on a complete notification, records it, and returns the next action of its connection.
    /// - Parameter applies: Whether faults apply. `false` if a fault has postponed this notification before.
    mutating func decide(
        _ notification: BinaryNotification, from peer: BinaryPeer, at now: Date, faults applies: Bool = true
    ) -> BinaryDecision {
        if applies, let fault = faults.trigger(BinaryFault.self, token: notification.token) {
            return apply(fault, to: notification, from: peer, at: now)
        }
        return process(notification, from: peer, at: now, then: .next)
    }

    /// Decides on bytes that could not be read as a notification. The connection ends, unless a probe is to get no
    /// response.
    ///
    /// A violation of the format gets the configured response. A wrong size or a missing field has its own status.
    mutating func decide(
        _ malformed: BinaryNotificationParser.Malformed, from peer: BinaryPeer, at now: Date
    ) -> BinaryDecision {
        if malformed.isProbe, let decision = decideOnProbe(malformed, from: peer, at: now) { return decision }
        var status = malformed.status
        var isSilent = malformed.command == .simple
        if status == .protocolError {
            switch configuration.malformedResponse {
            case .protocolError: break
            case .unknown: status = .unknown
            case .close: isSilent = true
            }
        }
        record(malformed, from: peer, at: now, .refused(status))
        // Without an identifier the gateway reports 0, because it does not know the notification.
        let packet = BinaryErrorResponse(status: status, identifier: malformed.identifier ?? 0)
        return .end(isSilent ? nil : packet, afterMilliseconds: 0)
    }

    /// Responds to a probe as a fault or the configuration demands.
    /// - Returns: The decision. `nil` if the probe gets the same response as from Apple's gateway.
    private mutating func decideOnProbe(
        _ probe: BinaryNotificationParser.Malformed, from peer: BinaryPeer, at now: Date
    ) -> BinaryDecision? {
        let fault = faults.trigger(ProbeFault.self) ?? ProbeFault(answer: configuration.probeResponse)
        switch fault.answer {
        case .answer:
            return nil
        case .unidentified:
            record(probe, from: peer, at: now, .refused(fault.status))
            return .end(BinaryErrorResponse(status: fault.status, identifier: 0), afterMilliseconds: 0)
        case .close:
            record(probe, from: peer, at: now, .closed)
            return .end(nil, afterMilliseconds: 0)
        case .silence:
            record(probe, from: peer, at: now, .dropped)
            return .pause(milliseconds: nil)
        }
    }

    private mutating func record(
        _ malformed: BinaryNotificationParser.Malformed, from peer: BinaryPeer, at now: Date,
        _ answer: InboxEntry.Response
    ) {
        counts.binary.answers.count(answer)
        inbox.append { id in
            InboxEntry(
                id: id, connection: peer.connection, topic: peer.topic, token: [], payload: [], receivedAt: now,
                answer: answer, details: .binary(command: malformed.command, identifier: malformed.identifier))
        }
    }

    private mutating func apply(
        _ fault: BinaryFault, to notification: BinaryNotification, from peer: BinaryPeer, at now: Date
    ) -> BinaryDecision {
        switch fault {
        case .status(let status, let delay, let identifier):
            record(notification, from: peer, at: now, status == .shutdown ? .accepted : .refused(status))
            return .end(packet(status, for: notification, identifier: identifier), afterMilliseconds: delay)
        case .close:
            record(notification, from: peer, at: now, .closed)
            return .end(nil, afterMilliseconds: 0)
        case .reset:
            record(notification, from: peer, at: now, .reset)
            return .reset
        case .drop:
            record(notification, from: peer, at: now, .dropped)
            return .next
        case .delay(let milliseconds):
            return .postpone(milliseconds: milliseconds)
        case .stopReading(let milliseconds):
            return process(notification, from: peer, at: now, then: .pause(milliseconds: milliseconds))
        }
    }

    /// Applies the rules.
    /// - Returns: `next`, or the end of the connection if the notification is rejected.
    private mutating func process(
        _ notification: BinaryNotification, from peer: BinaryPeer, at now: Date, then next: BinaryDecision
    ) -> BinaryDecision {
        guard let status = refusal(of: notification, from: peer, at: now) else {
            record(notification, from: peer, at: now, .accepted)
            return next
        }
        record(notification, from: peer, at: now, .refused(status))
        return .end(packet(status, for: notification), afterMilliseconds: 0)
    }

    /// Returns the status with which the sandbox rejects the notification. `nil` if it accepts the notification.
    private func refusal(of notification: BinaryNotification, from peer: BinaryPeer, at now: Date) -> BinaryStatus? {
        guard peer.topic != nil else { return .missingTopic }
        let isInstalled = devices.isInstalled(notification.token, topic: peer.topic, at: now)
        guard isInstalled ?? !configuration.strict else { return .invalidToken }
        if configuration.strict, !Self.isObject(notification.payload) { return .processingError }
        return nil
    }

    /// Returns the error packet for a notification. `nil` for command 0, which has no error response, unless the fault
    /// names an identifier.
    private func packet(
        _ status: BinaryStatus, for notification: BinaryNotification, identifier: UInt32? = nil
    ) -> BinaryErrorResponse? {
        guard notification.command != .simple || identifier != nil else { return nil }
        return BinaryErrorResponse(status: status, identifier: identifier ?? notification.identifier ?? 0)
    }

    private mutating func record(
        _ notification: BinaryNotification, from peer: BinaryPeer, at now: Date, _ answer: InboxEntry.Response
    ) {
        counts.binary.answers.count(answer)
        inbox.append { id in
            // Copy the payload: a slice would keep the whole read buffer alive.
            InboxEntry(
                id: id, connection: peer.connection, topic: peer.topic, token: notification.token,
                payload: Array(notification.payload.readableBytesView), receivedAt: now, answer: answer,
                details: .binary(
                    command: notification.command, identifier: notification.identifier,
                    expiration: notification.expiration, priority: notification.priority))
        }
    }

    private static func isObject(_ payload: ByteBuffer) -> Bool {
        let data = Data(payload.readableBytesView)
        return (try? JSONSerialization.jsonObject(with: data)) is [String: Any]
    }

    // MARK: HTTP/2

    /// Decides on a complete request, records it, and returns the next action of its connection.
    /// - Parameters:
    ///   - maxStreams: The maximum number of streams that the connection has had open at the same time.
    ///   - applies: Whether faults apply. `false` if a fault has postponed this request before.
    mutating func decide(
        _ request: SandboxRequest, stream: Int, maxStreams: Int = 0, on connection: inout SandboxConnection,
        at now: Date, faults applies: Bool = true
    ) -> SandboxDecision {
        counts.http2.maxStreams = max(counts.http2.maxStreams, maxStreams)
        let gateway: GatewayProtocol =
            connection.listener == .channels ? .channels : request.isBroadcast ? .broadcast : .http2
        let id = gateway == .http2 ? request.id : request.requestID
        var notification = CheckedRequest(
            request: request, gateway: gateway, stream: stream, id: SandboxRules.responseID(id) ?? connection.newID(),
            receivedAt: now)
        if connection.isStopping {
            return refuse(notification, ProviderRefusal(.shutdown), on: connection)
        }
        if applies,
            let fault = faults.trigger(
                ProviderFault.self, over: gateway, token: request.token,
                where: { $0.event == nil || $0.event == request.activityEvent })
        {
            return apply(fault, to: &notification, on: &connection)
        }
        return process(&notification, on: &connection)
    }

    /// A request that is being checked, with the results of the checks.
    struct CheckedRequest {
        let request: SandboxRequest
        /// The protocol: pushes to devices, broadcasts, or channel management.
        let gateway: GatewayProtocol
        let stream: Int
        let id: String
        let receivedAt: Date
        var topic: String?
        /// The push type, derived from the topic if the header is missing.
        var type: PushType?
        var authentication: String?
        /// The detailed reason for rejecting a provider token, for the log.
        var tokenProblem: String?
        /// The fault that changes the effect of an accepted push or broadcast on Live Activities.
        var fault: ActivityFault?
    }

    private mutating func apply(
        _ fault: ProviderFault, to notification: inout CheckedRequest, on connection: inout SandboxConnection
    ) -> SandboxDecision {
        switch fault {
        case .refuse(var refusal, let delay):
            if refusal.status == 410, refusal.timestamp == nil {
                refusal = ProviderRefusal(
                    status: 410, reason: refusal.reason,
                    timestamp: SandboxRules.milliseconds(notification.receivedAt))
            }
            return refuse(notification, refusal, on: connection, effect: delay > 0 ? .late(milliseconds: delay) : nil)
        case .status(let status, let delay):
            // The inbox shows the reason that a client derives from a response without a body.
            var decision = refuse(
                notification, ProviderRefusal(status: status, body: []), on: connection,
                effect: delay > 0 ? .late(milliseconds: delay) : nil)
            decision.response?.body = nil
            return decision
        case .close:
            return record(notification, .closed, on: connection, effect: .close)
        case .closeAccepted:
            var decision = process(&notification, on: &connection, effect: .close)
            decision.response = nil
            return decision
        case .activity(let fault):
            notification.fault = fault
            return process(&notification, on: &connection)
        case .reset:
            return record(notification, .reset, on: connection, effect: .reset)
        case .stopReading(let milliseconds):
            return process(&notification, on: &connection, effect: .pause(milliseconds: milliseconds))
        case .delay(let milliseconds):
            return SandboxDecision(effect: .postpone(milliseconds: milliseconds))
        case .drop:
            return record(notification, .dropped, on: connection)
        case .goAway(let reason, let lastStream, let code):
            let effect = SandboxDecision.Effect.goAway(reason: reason, lastStream: lastStream, code: code)
            guard let lastStream, lastStream >= notification.stream else {
                return record(notification, .unprocessed, on: connection, effect: effect)
            }
            return process(&notification, on: &connection, effect: effect)
        case .limitStreams(let limit, let milliseconds):
            return process(&notification, on: &connection, effect: .limitStreams(limit, milliseconds: milliseconds))
        case .resetStream(let code):
            return record(notification, .unprocessed, on: connection, effect: .resetStream(code: code))
        case .expireToken:
            guard connection.certificate == nil else {
                return refuse(notification, ProviderRefusal(.expiredProviderToken), on: connection)
            }
            connection.authentication.expire(notification.request.authorization)
            return process(&notification, on: &connection)
        }
    }

    /// Applies the rules.
    private mutating func process(
        _ notification: inout CheckedRequest, on connection: inout SandboxConnection,
        effect: SandboxDecision.Effect? = nil
    ) -> SandboxDecision {
        var response = SandboxResponse(id: notification.id, gateway: notification.gateway)
        var broadcast: BroadcastRules.Broadcast?
        do throws(ProviderRefusal) {
            switch notification.gateway {
            case .broadcast: broadcast = try checkBroadcast(&notification, on: &connection)
            case .channels: try manageChannels(&notification, on: &connection, &response)
            default: try check(&notification, on: &connection)
            }
        } catch {
            return refuse(notification, error, on: connection, effect: effect)
        }
        var decision = record(notification, .accepted, on: connection, effect: effect)
        if let broadcast { decision.warnings = deliver(broadcast, notification) }
        if notification.type == .liveactivity, notification.gateway == .http2 {
            decision.warnings = updateActivity(notification, on: &connection)
        }
        decision.response = response
        decision.isAuthenticated = true
        decision.outcome = .accepted
        return decision
    }

    private mutating func check(
        _ notification: inout CheckedRequest, on connection: inout SandboxConnection
    ) throws(ProviderRefusal) {
        let rules = SandboxRules(
            request: notification.request, certificate: connection.certificate, configuration: configuration,
            now: notification.receivedAt)
        try rules.checkForm()
        try authenticate(&notification, on: &connection)
        let (type, topic) = try rules.checkTopic()
        (notification.topic, notification.type) = (topic, type)
        try rules.checkDelivery(type)
        try rules.checkPayload(type)
        let token = notification.request.token
        let activity = type == .liveactivity ? activities[token] : nil
        if let activity { try rules.checkActivity(activity, topic: topic) }
        // A device with the activity's token is one from which the app was removed.
        if activity == nil || devices[token] != nil { try rules.checkDevice(devices[token], topic: topic, type) }
        if let limit = configuration.deviceRate, deviceRate.count(token, at: notification.receivedAt) > limit {
            throw ProviderRefusal(.tooManyRequests)
        }
    }

    /// Checks the client's identity.
    mutating func authenticate(
        _ notification: inout CheckedRequest, on connection: inout SandboxConnection
    ) throws(ProviderRefusal) {
        let rules = SandboxRules(
            request: notification.request, certificate: connection.certificate, configuration: configuration,
            now: notification.receivedAt)
        if let certificate = connection.certificate {
            try rules.checkCertificate(certificate)
            notification.authentication = "certificate"
        } else {
            do throws(SandboxAuthentication.Refusal) {
                let key = try connection.authentication.check(
                    notification.request.authorization, at: notification.receivedAt)
                notification.authentication = "token " + key
            } catch {
                notification.tokenProblem = error.details
                throw ProviderRefusal(error.reason)
            }
        }
    }

    private mutating func refuse(
        _ notification: CheckedRequest, _ refusal: ProviderRefusal, on connection: SandboxConnection,
        effect: SandboxDecision.Effect? = nil
    ) -> SandboxDecision {
        var decision = record(notification, .rejected(refusal), on: connection, effect: effect)
        decision.response = SandboxResponse(
            id: notification.id, gateway: notification.gateway, status: refusal.status, body: refusal.body)
        decision.isAuthenticated = notification.authentication != nil
        decision.outcome =
            (400..<500).contains(refusal.status) && ![410, 429].contains(refusal.status) ? .refused : .neutral
        decision.rejectedToken = notification.tokenProblem.map { (refusal.reason, $0) }
        return decision
    }

    /// Records the request.
    /// - Returns: A decision without a response.
    private mutating func record(
        _ notification: CheckedRequest, _ answer: InboxEntry.Response, on connection: SandboxConnection,
        effect: SandboxDecision.Effect? = nil
    ) -> SandboxDecision {
        let request = notification.request
        // Copy the body: a slice would keep the whole read buffer alive.
        let payload = Array(request.body.readableBytesView)
        switch notification.gateway {
        case .broadcast:
            counts.broadcasts.answers.count(answer)
            inbox.append { id in
                InboxEntry(
                    id: id, connection: connection.number, topic: notification.topic, token: [], payload: payload,
                    receivedAt: notification.receivedAt, answer: answer,
                    details: .broadcast(
                        stream: notification.stream, requestID: notification.id,
                        channel: request.headers[ProviderHeader.channelID], headers: request.headers,
                        authentication: notification.authentication))
            }
            return SandboxDecision(effect: effect)
        case .channels:
            counts.channels.answers.count(answer)
            return SandboxDecision(effect: effect)
        default: counts.http2.answers.count(answer)
        }
        inbox.append { id in
            InboxEntry(
                id: id, connection: connection.number,
                topic: notification.topic ?? request.topic ?? connection.certificate?.topic, token: request.token,
                payload: payload, receivedAt: notification.receivedAt, answer: answer,
                details: .http2(
                    stream: notification.stream, apnsID: notification.id, pushType: request.pushType,
                    headers: request.headers, authentication: notification.authentication))
        }
        return SandboxDecision(effect: effect)
    }

    // MARK: FCM

    var isStrict: Bool { configuration.strict }

    /// Records a message with FCM.
    mutating func append(
        _ answer: InboxEntry.Response, token: [UInt8], payload: [UInt8], details: InboxEntry.Details, at now: Date
    ) {
        counts.fcm.answers.count(answer)
        inbox.append { id in
            InboxEntry(
                id: id, connection: nil, topic: nil, token: token, payload: payload, receivedAt: now, answer: answer,
                details: details)
        }
    }

    // MARK: Web Push

    mutating func record(_ push: BrowserPush, _ answer: InboxEntry.Response, at now: Date) {
        counts.webPush.answers.count(answer)
        inbox.append { id in
            InboxEntry(
                id: id, connection: nil, topic: nil, token: push.token, payload: (try? push.payload?.get()) ?? [],
                receivedAt: now, answer: answer, details: .webPush(headers: push.shownHeaders))
        }
    }
}

extension GatewayProtocol {
    /// The actions of the protocol's faults.
    var faults: [FaultForm] {
        switch self {
        case .binary: BinaryFault.forms
        case .http2: ProviderFault.forms
        case .broadcast: ProviderFault.broadcastForms
        case .channels: ProviderFault.channelForms
        case .webpush: BrowserFault.forms
        case .fcm: FirebaseFault.forms
        case .fcmToken: GrantFault.forms
        }
    }
}

/// The one ``SandboxState`` that all listeners share, behind a lock.
///
/// The lock is held for at most one batch of notifications, and never across a wait.
final class SharedState: Sendable {
    /// The maximum number of clients that may wait for notifications at the same time.
    static let waitLimit = 100

    private struct Shared {
        var state: SandboxState
        /// The number of clients that wait for notifications, asleep or not.
        var waiters = 0
        /// The waiting clients that sleep until something arrives.
        var sleepers: [Int: CheckedContinuation<Void, Never>] = [:]
        var lastSleeper = 0
    }

    let now: @Sendable () -> Date
    private let shared: Mutex<Shared>

    init(_ configuration: SandboxConfiguration) {
        shared = Mutex(Shared(state: SandboxState(configuration: configuration)))
        now = configuration.now
    }

    func withLock<Result: Sendable, Failure: Error>(
        _ body: (inout SandboxState) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try shared.withLock { (shared) throws(Failure) in
            let before = shared.state.inbox.lastID
            defer {
                if !shared.sleepers.isEmpty, shared.state.inbox.lastID != before {
                    for sleeper in shared.sleepers.values { sleeper.resume() }
                    shared.sleepers = [:]
                }
            }
            return try body(&shared.state)
        }
    }

    /// The number of clients that wait for notifications.
    var waiters: Int { shared.withLock(\.waiters) }

    /// Waits until the inbox has `count` matching notifications with an id above `since`, or the task is cancelled.
    /// - Throws: ``LimitReached`` if too many clients are waiting.
    func wait(for count: Int, since: Int, filter: InboxFilter) async throws(LimitReached) {
        let mayWait = shared.withLock { shared in
            guard shared.waiters < Self.waitLimit else { return false }
            shared.waiters += 1
            return true
        }
        guard mayWait else {
            throw LimitReached(text: "wait: \(Self.waitLimit) clients are waiting already; try again later")
        }
        defer { shared.withLock { $0.waiters -= 1 } }
        // Count only notifications that arrived since the last look, because the inbox may be large.
        var (counted, seen) = (0, since)
        while !Task.isCancelled {
            withLock { state in
                counted += state.inbox.count(since: seen, filter: filter)
                seen = max(seen, state.inbox.lastID)
                // Some of them may have been deleted or dropped since they were counted.
                if counted >= count { counted = state.inbox.count(since: since, filter: filter) }
            }
            if counted >= count { return }
            await arrival(after: seen)
        }
    }

    /// Returns when the inbox has had a notification with an id above `id`, or the task is cancelled.
    private func arrival(after id: Int) async {
        let number = shared.withLock { shared in
            shared.lastSleeper += 1
            return shared.lastSleeper
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isOver = shared.withLock { shared in
                    if shared.state.inbox.lastID > id || Task.isCancelled { return true }
                    shared.sleepers[number] = continuation
                    return false
                }
                if isOver { continuation.resume() }
            }
        } onCancel: {
            shared.withLock { $0.sleepers.removeValue(forKey: number) }?.resume()
        }
    }

    /// Calls `body` under the lock, and logs each notification that it records, at level debug.
    func decide<Decision: Sendable>(_ logger: Logger, _ body: (inout SandboxState, Date) -> Decision) -> Decision {
        let now = self.now()
        let isLogged = logger.logLevel <= .debug
        let (decision, entries) = withLock { state in
            let before = state.inbox.lastID
            let decision = body(&state, now)
            return (decision, isLogged ? state.inbox.page(since: before).entries : [])
        }
        for entry in entries {
            var metadata: Logger.Metadata = [
                "id": "\(entry.id)", "token": "\(entry.token.hex.prefix(8))…", "answer": "\(entry.answer.name)",
            ]
            switch entry.details {
            case .binary(_, let identifier, _, _):
                metadata["identifier"] = "\(identifier.map { String($0) } ?? "none")"
            case .http2(_, let apnsID, _, _, _): metadata["apns-id"] = "\(apnsID)"
            case .broadcast(_, let requestID, _, _, _): metadata["apns-request-id"] = "\(requestID)"
            case .webPush, .fcm: metadata["protocol"] = "\(entry.gateway)"
            }
            logger.debug("Notification", metadata: metadata)
        }
        return decision
    }
}

extension BinaryNotificationParser.Malformed {
    /// Whether this is a probe: a notification with an empty token, in a format that has error responses.
    fileprivate var isProbe: Bool { status == .missingDeviceToken && command != .simple }
}

import APNSWire
import Foundation
import NIOCore

/// All that the sandbox knows, as a value: inbox, devices, feedback, faults and counts, and the rules between them.
struct SandboxState: Sendable {
    /// The settings that verdicts depend on.
    struct Policy: Sendable, Hashable {
        /// Refuse tokens of which the sandbox was not told, and payloads that are no JSON object.
        var strict = false
        var malformed = SandboxConfiguration.MalformedAnswer.protocolError
        /// Notifications to one device in a second over HTTP/2; nil: any number.
        var deviceRate: Int?
        /// Feedback is forgotten as soon as it is handed out, even if the reader dies on the way.
        var clearFeedbackOnHandshake = false
    }

    let policy: Policy
    var inbox: Inbox
    var devices = DeviceRegistry()
    var feedback = FeedbackList()
    var faults = FaultTable()
    var stats = SandboxStats()
    /// How many notifications a device has got in the current second.
    var deviceRate = DeviceRate()
    private var lastConnection = 0

    init(policy: Policy = Policy(), inbox: Inbox = Inbox()) {
        self.policy = policy
        self.inbox = inbox
    }

    /// The number of a new connection.
    mutating func nextConnection() -> Int {
        lastConnection += 1
        return lastConnection
    }

    // MARK: Notifications of the binary protocol

    /// Judges a whole notification, records it and says how its connection goes on.
    ///
    /// Faults come before the sandbox's own rules.
    /// - Parameter applies: false when a fault has had it already.
    mutating func judge(
        _ notification: BinaryNotification, from peer: BinaryPeer, at now: Date, faults applies: Bool = true
    ) -> BinaryVerdict {
        if applies, let action = faults.strike(token: notification.token) {
            return suffer(action, notification, from: peer, at: now)
        }
        guard let status = refusal(of: notification, from: peer, at: now) else {
            record(notification, from: peer, at: now, .accepted)
            return .next
        }
        record(notification, from: peer, at: now, .refused(status))
        return .end(packet(status, for: notification), afterMilliseconds: 0)
    }

    /// Judges something that could not be read as a notification: always the end of its connection.
    ///
    /// What breaks the format itself is answered as the policy says; a bad size or a missing field has its own status.
    mutating func judge(
        _ malformed: BinaryNotificationParser.Malformed, from peer: BinaryPeer, at now: Date
    ) -> BinaryVerdict {
        var status = malformed.status
        var silent = malformed.command == .simple
        if status == .protocolError {
            switch policy.malformed {
            case .protocolError: break
            case .unknown: status = .unknown
            case .close: silent = true
            }
        }
        inbox.append { id in
            InboxEntry(
                id: id, connection: peer.connection, topic: peer.topic, token: [], payload: [],
                command: malformed.command, identifier: malformed.identifier, expiration: nil, priority: nil,
                receivedAt: now, answer: .refused(status))
        }
        stats.count(.refused(status))
        // Without an identifier the gateway reports 0: it does not know which.
        let packet = BinaryErrorResponse(status: status, identifier: malformed.identifier ?? 0)
        return .end(silent ? nil : packet, afterMilliseconds: 0)
    }

    /// Counts what came after a connection's end was decided.
    mutating func discard(notifications: Int, bytes: Int) {
        stats.discarded += notifications
        stats.discardedBytes += bytes
    }

    private mutating func suffer(
        _ action: Fault.Action, _ notification: BinaryNotification, from peer: BinaryPeer, at now: Date
    ) -> BinaryVerdict {
        switch action {
        case .status(let status, let delay, let identifier):
            record(notification, from: peer, at: now, status == .shutdown ? .accepted : .refused(status))
            return .end(
                packet(status, for: notification, identifier: identifier), afterMilliseconds: delay)
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
            guard let status = refusal(of: notification, from: peer, at: now) else {
                record(notification, from: peer, at: now, .accepted)
                return .pause(milliseconds: milliseconds)
            }
            record(notification, from: peer, at: now, .refused(status))
            return .end(packet(status, for: notification), afterMilliseconds: 0)
        case .provider:
            // A fault of HTTP/2 strikes only there.
            record(notification, from: peer, at: now, .accepted)
            return .next
        }
    }

    /// Why the sandbox refuses the notification; nil when it takes it.
    private func refusal(
        of notification: BinaryNotification, from peer: BinaryPeer, at now: Date
    ) -> BinaryStatus? {
        guard peer.topic != nil else { return .missingTopic }
        switch devices.standing(of: notification.token, topic: peer.topic, at: now) {
        case .installed: break
        case .unknown where !policy.strict: break
        case .unknown, .removed, .otherTopic, .otherEnvironment, .expired: return .invalidToken
        }
        if policy.strict, !Self.isObject(notification.payload) { return .processingError }
        return nil
    }

    /// The packet for a notification; nil where the format cannot be answered (command 0) and the fault names no identifier.
    private func packet(
        _ status: BinaryStatus, for notification: BinaryNotification, identifier: UInt32? = nil
    ) -> BinaryErrorResponse? {
        guard notification.command != .simple || identifier != nil else { return nil }
        return BinaryErrorResponse(status: status, identifier: identifier ?? notification.identifier ?? 0)
    }

    private mutating func record(
        _ notification: BinaryNotification, from peer: BinaryPeer, at now: Date, _ answer: InboxEntry.Answer
    ) {
        stats.count(answer)
        inbox.append { id in
            // The payload is copied: as a slice it would keep the whole read buffer alive.
            InboxEntry(
                id: id, connection: peer.connection, topic: peer.topic, token: notification.token,
                payload: Array(notification.payload.readableBytesView), command: notification.command,
                identifier: notification.identifier, expiration: notification.expiration,
                priority: notification.priority, receivedAt: now, answer: answer)
        }
    }

    private static func isObject(_ payload: ByteBuffer) -> Bool {
        let data = Data(payload.readableBytesView)
        return (try? JSONSerialization.jsonObject(with: data)) is [String: Any]
    }

    // MARK: Devices

    /// Removes the app from the device: its token is refused from now on, and the feedback service tells of it.
    ///
    /// A token of which nothing is known counts as a device of `topic`, unless the sandbox is strict.
    /// - Returns: nil when there is no such device.
    mutating func removeDevice(
        token: [UInt8], topic: String, at now: Date
    ) throws(DeviceRegistry.Full) -> SandboxDevice? {
        if !policy.strict, devices[token] == nil {
            _ = try devices.install(token: token, topic: topic, at: now)
        }
        guard let (device, removedNow) = devices.remove(token: token, at: now) else { return nil }
        if removedNow {
            let seconds = UInt32(clamping: Int64(now.timeIntervalSince1970))
            feedback.append(FeedbackTuple(timestamp: seconds, token: token), topic: device.topic)
        }
        return device
    }

    // MARK: Feedback

    /// What a reader of the feedback service is to get.
    mutating func readFeedback(topic: String?) -> FeedbackList.Reading? {
        guard let topic else { return nil }
        let reading = feedback.reading(topic: topic)
        if policy.clearFeedbackOnHandshake { clearFeedback(reading) }
        return reading
    }

    /// Forgets what a reader has got whole.
    mutating func clearFeedback(_ reading: FeedbackList.Reading) {
        let before = feedback.count
        feedback.clear(reading)
        stats.tuplesCleared += before - feedback.count
    }
}

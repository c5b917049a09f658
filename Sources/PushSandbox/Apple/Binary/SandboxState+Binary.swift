import Foundation
import NIOCore
import PushWire

/// The binary protocol.
extension SandboxState {
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
        record(
            answer, BinaryDetails(command: malformed.command, identifier: malformed.identifier),
            connection: peer.connection,
            topic: peer.topic, at: now)
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
        let details = BinaryDetails(
            command: notification.command, identifier: notification.identifier, expiration: notification.expiration,
            priority: notification.priority)
        // Copy the payload: a slice would keep the whole read buffer alive.
        record(
            answer, details, connection: peer.connection, topic: peer.topic, token: notification.token,
            payload: Array(notification.payload.readableBytesView), at: now)
    }

    private static func isObject(_ payload: ByteBuffer) -> Bool {
        let data = Data(payload.readableBytesView)
        return (try? JSONSerialization.jsonObject(with: data)) is [String: Any]
    }

    /// Counts everything that arrived after a binary connection's end was decided.
    mutating func discard(notifications: Int, bytes: Int) {
        counts.binary.discarded += notifications
        counts.binary.discardedBytes += bytes
    }
}

extension BinaryNotificationParser.Malformed {
    /// Whether this is a probe: a notification with an empty token, in a format that has error responses.
    fileprivate var isProbe: Bool { status == .missingDeviceToken && command != .simple }
}

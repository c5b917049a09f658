/// The destination of a push, in the form that its gateway kind understands.
package enum Address: Sendable, Hashable, CustomStringConvertible {
    /// The token that identifies a device at its push service.
    case token(DeviceToken)

    /// Reads an address as the queue stores it. `nil` if the text is not an address of any kind.
    ///
    /// - Parameter text: The address in UTF-8. Apple's token in lower-case hexadecimal digits is read without creating
    ///   a string.
    package init?(stored text: UnsafeRawBufferPointer) {
        if Hex.isLowerCase(text), let token = Hex.bytes(text).flatMap(DeviceToken.init(bytes:)) {
            self = .token(token)
        } else {
            guard let token = try? DeviceToken(parsing: String(decoding: text, as: UTF8.self)) else { return nil }
            self = .token(token)
        }
    }

    package var description: String {
        switch self {
        case .token(let token): token.description
        }
    }
}

/// One checked push, ready for a gateway to write.
package struct Push: Sendable, Hashable {
    /// The push id: `message_id` in `push_queue`. With `send --direct`, the index of the device token.
    package let id: Int64
    /// The push's number on its connection, from 1. With the connection's id it identifies the push in a report.
    package let identifier: UInt32
    package let address: Address
    /// Checked UTF-8, within the gateway's limit.
    package let payload: [UInt8]
    /// The time in UNIX seconds after which the gateway may stop trying. `nil` if the sender did not set it.
    package let expiration: Int64?
    /// 10, 5 or 1. `nil` if the sender did not set it.
    package let priority: UInt8?
    /// A UUID in lower case that the push keeps through all retries. `nil` for gateways without such an id.
    package let apnsID: String?
    /// The purpose of the push, in the gateway's terms (`alert`, `background`, …).
    package let type: String
    /// The device shows only one of the pushes with the same collapse id. `nil` if the sender did not set it.
    package let collapseID: String?

    package init(
        id: Int64, identifier: UInt32, address: Address, payload: [UInt8], expiration: Int64? = nil,
        priority: UInt8? = nil, apnsID: String? = nil, type: String = Push.alert, collapseID: String? = nil
    ) {
        self.id = id
        self.identifier = identifier
        self.address = address
        self.payload = payload
        self.expiration = expiration
        self.priority = priority
        self.apnsID = apnsID
        self.type = type
        self.collapseID = collapseID
    }

    /// The type of a push that shows something. The chat's own pushes have it.
    package static let alert = "alert"
    /// The type of a push that only wakes the app.
    package static let background = "background"
}

/// The state of a push in the queue, stored in the column `state`.
package enum PushState: String, Sendable, Hashable, CaseIterable {
    /// The push waits for its turn, for `not_before`, or for the gateway's response.
    case pending
    /// The gateway has accepted the push.
    case sent
    /// The push has failed and will not be tried again. `reason` says why.
    case failed
    /// The push expired before it could be sent.
    case expired
    /// The push was cancelled before it was sent.
    case cancelled
}

/// The result of one attempt to send a push.
///
/// If a connection ends without a response, its pushes are `unanswered`, never `accepted`. On the binary protocol, the
/// gateway responds only to failures. An error response names one push, and also voids every push that was written
/// after it (Apple, "Binary Provider API"; `docs/binary-gateway.md`).
package enum Outcome: Sendable, Hashable {
    /// The gateway has accepted the push. On the binary protocol, a later response or a long enough silence proves
    /// this.
    case accepted
    /// The gateway has rejected the push for good. `reason` is the gateway's own. `hint` tells people the likely cause.
    case rejected(reason: String, hint: String? = nil)
    /// The gateway has rejected the push for good because of the address, and has closed the connection. An address
    /// that is rejected again and again is not tried any more (``PushLifeCycle/refusalLimit``).
    case badAddress(reason: String)
    /// The gateway reports that the device has not wanted pushes since a time. The device is deactivated unless it
    /// registered later.
    case unregistered(since: Timestamp, reason: String)
    /// The gateway has a problem, or the push has a temporary one. The push is retried after a growing delay, and not
    /// before the time that the gateway named (`Retry-After`).
    case retry(reason: String, notBefore: Timestamp? = nil)
    /// The push was not sent, because the push service accepts no pushes now. The push is retried at `until`. This does
    /// not count as an attempt. `hint` tells people the likely cause.
    case postponed(until: Timestamp, reason: String, hint: String? = nil)
    /// The gateway did not accept the credentials. The push waits for better ones: it is retried after a delay, without
    /// a limit. But if the gateway accepts other pushes of the app in that time, the push fails after some refusals.
    /// `hint` tells people the likely cause.
    case notAuthorized(reason: String, hint: String? = nil)
    /// The push was written, but the gateway reports that it has not processed the push (on HTTP/2: GOAWAY,
    /// REFUSED_STREAM, or the reasons Shutdown and IdleTimeout). The push is retried at once, but behind the others,
    /// and after a delay if this continues.
    case sentBack(reason: String)
    /// The push was never written, or it was written after the last push that a binary gateway processed before it
    /// closed. The push is retried at once.
    case notProcessed
    /// The connection ended without a response, so the outcome is unknown. The push is retried, and the loss is
    /// counted.
    case unanswered(reason: String)
}

extension Outcome {
    /// The outcome's name in metrics, which is the case in snake case, and its reason.
    package var kind: (name: String, reason: String?) {
        switch self {
        case .accepted: ("accepted", nil)
        case .rejected(let reason, _): ("rejected", reason)
        case .badAddress(let reason): ("bad_address", reason)
        case .unregistered(_, let reason): ("unregistered", reason)
        case .retry(let reason, _): ("retry", reason)
        case .postponed(_, let reason, _): ("postponed", reason)
        case .notAuthorized(let reason, _): ("not_authorized", reason)
        case .sentBack(let reason): ("sent_back", reason)
        case .notProcessed: ("not_processed", nil)
        case .unanswered(let reason): ("unanswered", reason)
        }
    }
}

/// The outcome of some pushes of one connection.
package struct DeliveryReport: Sendable, Hashable {
    package let connection: ConnectionID
    /// The identifiers of the pushes. Ranges of different reports may overlap: the first report on a push counts.
    package let identifiers: ClosedRange<UInt32>
    package let outcome: Outcome
    /// Whether the gateway responded after its silence had counted as acceptance. The report then also changes pushes
    /// that are `sent`.
    package let overrulesSilence: Bool

    package init(
        connection: ConnectionID, identifiers: ClosedRange<UInt32>, outcome: Outcome, overrulesSilence: Bool = false
    ) {
        self.connection = connection
        self.identifiers = identifiers
        self.outcome = outcome
        self.overrulesSilence = overrulesSilence
    }
}

/// The number of a gateway connection, unique in the process.
package struct ConnectionID: Sendable, Hashable, CustomStringConvertible {
    package let number: Int64

    package init(_ number: Int64) {
        self.number = number
    }

    package var description: String { String(number) }
}

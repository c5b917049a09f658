/// The destination of a push, in the form that its gateway kind understands.
package enum Address: Sendable, Hashable, CustomStringConvertible {
    /// The token by which Apple's services know a device.
    case token(DeviceToken)

    /// Reads an address as it is stored in the queue. `nil` if the text is not an address of any kind.
    ///
    /// - Parameter text: UTF-8. Lower-case hexadecimal digits are read without creating a string.
    package init?(stored text: UnsafeRawBufferPointer) {
        let token =
            Hex.isLowerCase(text)
            ? Hex.bytes(text).flatMap(DeviceToken.init(bytes:))
            : try? DeviceToken(parsing: String(decoding: text, as: UTF8.self))
        guard let token else { return nil }
        self = .token(token)
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
    /// The time in UNIX seconds after which the gateway need not try any more. `nil` if the sender did not set it.
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
    /// Waits for its turn, for `not_before`, or for the gateway's response.
    case pending
    /// The gateway has accepted it.
    case sent
    /// Will not be tried again. `reason` says why.
    case failed
    /// Expired before it could be sent.
    case expired
    /// Cancelled before it was sent.
    case cancelled
}

/// The result of one attempt to send a push.
///
/// A connection that ends without a response makes its pushes `unanswered`, never `accepted`. The binary protocol
/// responds only to failures, and an error response also voids every push written after the one that it names (Apple,
/// "Binary Provider API"; `docs/binary-gateway.md`).
package enum Outcome: Sendable, Hashable {
    /// The gateway has accepted the push. On the binary protocol, a later response or a long enough silence proves it.
    case accepted
    /// Rejected for good, with the gateway's own reason and a hint for people about its likely cause.
    case rejected(reason: String, hint: String? = nil)
    /// Rejected for good because of the address, and the gateway closed the connection. An address that is rejected
    /// again and again is not tried any more (``PushLifeCycle/refusalLimit``).
    case badAddress(reason: String)
    /// The device has not wanted pushes since a time. It is deactivated unless it registered later.
    case unregistered(since: Timestamp, reason: String)
    /// The fault is the gateway's, or a passing one of the push. The push is retried after a growing delay, and not
    /// before the time that the gateway named (`Retry-After`).
    case retry(reason: String, notBefore: Timestamp? = nil)
    /// The push was not sent, because the push service accepts no pushes now. It is retried at that time. This does not
    /// count as an attempt.
    case postponed(until: Timestamp, reason: String)
    /// The gateway did not accept the credentials. The push waits for better ones and is retried after a delay, without
    /// an end. But if it accepts other pushes of the app in that time, the push itself fails.
    case notAuthorized(reason: String)
    /// Written, but certainly not processed, as the gateway reports it (HTTP/2: GOAWAY, REFUSED_STREAM, a Shutdown).
    /// The push is retried at once, but behind the others, and after a delay if this continues.
    case sentBack(reason: String)
    /// Never written, or written after the last push that a binary gateway processed before it closed. The push is
    /// retried at once.
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
        case .postponed(_, let reason): ("postponed", reason)
        case .notAuthorized(let reason): ("not_authorized", reason)
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

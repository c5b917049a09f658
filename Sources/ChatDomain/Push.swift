/// Where a push goes, as its gateway kind understands it.
package enum Address: Sendable, Hashable, CustomStringConvertible {
    /// What Apple's services know a device by.
    case token(DeviceToken)

    /// As a row of the queue has it; nil for what is no address of any kind.
    ///
    /// - Parameter text: UTF-8. Lower-case hexadecimal digits are read without making a string of them.
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

/// One push, checked, as a gateway writes it.
package struct Push: Sendable, Hashable {
    /// The row of `push_queue`.
    package let id: Int64
    /// The push's number on its connection, from 1; with the connection's id it names the push in a report.
    package let identifier: UInt32
    package let address: Address
    /// UTF-8, checked, within the gateway's limit.
    package let payload: [UInt8]
    /// UNIX seconds after which the gateway need not try any more; nil if the sender did not say.
    package let expiration: Int64?
    /// 10, 5 or 1; nil if the sender did not say.
    package let priority: UInt8?
    /// A UUID, in lower case, that the push keeps through all repeats; nil for gateways that know no such thing.
    package let apnsID: String?
    /// What the push is for, in the gateway's words (`alert`, `background`, …).
    package let type: String
    /// Of pushes with the same, the device shows one; nil if the sender did not say.
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

    /// The type of a push that shows something, and of the chat's own.
    package static let alert = "alert"
    /// The type of a push that only wakes the app.
    package static let background = "background"
}

/// Where an entry of the queue stands; the column `state`.
package enum PushState: String, Sendable, Hashable, CaseIterable {
    /// Waits for its turn, for `not_before`, or for the gateway's answer.
    case pending
    /// The gateway has taken it.
    case sent
    /// It will not be tried again; `reason` says why.
    case failed
    /// Its time ran out before it could be sent.
    case expired
    /// Taken back before it was sent.
    case cancelled
}

/// What the gateway said about one push.
///
/// Silence is `unanswered`, never `accepted`: the binary protocol answers only failures, and an error answer also
/// voids every push written after the one it names (apns-binary.md §8).
package enum Outcome: Sendable, Hashable {
    /// The gateway has it. On the binary protocol: a later answer or a long enough silence says so.
    case accepted
    /// Refused for good, with the gateway's own reason, and what it may mean, for people.
    case rejected(reason: String, hint: String? = nil)
    /// Refused for good because of the address, and the gateway closed the connection: an address that is refused so again and
    /// again is not tried any more.
    case badAddress(reason: String)
    /// The device no longer wants it since a time; it is deactivated unless it registered later.
    case unregistered(since: Timestamp, reason: String)
    /// The gateway's fault, or a passing one of the push: worth another try after a delay that grows, and not before the
    /// time that the gateway named (Retry-After).
    case retry(reason: String, notBefore: Timestamp? = nil)
    /// Not handed over, because its service takes none now: repeat then. That is no attempt.
    case postponed(until: Timestamp, reason: String)
    /// The gateway does not accept who sends, and the push waits for better credentials: repeat after a delay, for ever,
    /// unless others of the app get through meanwhile. Then it is the push.
    case notAuthorized(reason: String)
    /// Written, and certainly not processed, as the gateway says (over HTTP/2: GOAWAY, REFUSED_STREAM, a Shutdown): repeat at
    /// once, but behind the others; when that goes on, after a delay.
    case sentBack(reason: String)
    /// Never written, or after the last one that a binary gateway has processed before it closed: repeat at once.
    case notProcessed
    /// The connection ended without an answer, the outcome is unknown: repeat, and count it.
    case unanswered(reason: String)
}

extension Outcome {
    /// For metrics: its case, in snake case, and its reason.
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

/// What became of some of the pushes of one connection.
package struct DeliveryReport: Sendable, Hashable {
    package let connection: ConnectionID
    /// Ranges may overlap: the first report on a push stands.
    package let identifiers: ClosedRange<UInt32>
    package let outcome: Outcome
    /// The gateway answered after silence had been taken for acceptance: pushes that are `sent` change too.
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

/// Numbers the gateway connections of a process.
package struct ConnectionID: Sendable, Hashable, CustomStringConvertible {
    package let number: Int64

    package init(_ number: Int64) {
        self.number = number
    }

    package var description: String { String(number) }
}

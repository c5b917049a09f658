/// One entry of the queue, as a gateway writes it.
package struct Push: Sendable, Hashable {
    /// The row of `push_queue`.
    package let entry: Int64
    /// The entry's number on its connection, from 1; with the connection's epoch it names the entry in a verdict.
    package let identifier: UInt32
    package let token: DeviceToken
    /// UTF-8 JSON, checked, within the gateway's limit.
    package let payload: [UInt8]
    /// UNIX seconds after which the gateway need not try any more; nil if the sender did not say.
    package let expiration: Int64?
    /// 10, 5 or 1; nil if the sender did not say.
    package let priority: UInt8?
    /// A UUID, in lower case, that the push keeps through all repeats; nil for gateways that know no such thing.
    package let id: String?
    /// What the push is for, as the gateway spells it (`alert`, `background`, …).
    package let type: String
    /// Of pushes with the same, the device shows one; nil if the sender did not say.
    package let collapseID: String?

    package init(
        entry: Int64, identifier: UInt32, token: DeviceToken, payload: [UInt8], expiration: Int64? = nil,
        priority: UInt8? = nil, id: String? = nil, type: String = Push.alert, collapseID: String? = nil
    ) {
        self.entry = entry
        self.identifier = identifier
        self.token = token
        self.payload = payload
        self.expiration = expiration
        self.priority = priority
        self.id = id
        self.type = type
        self.collapseID = collapseID
    }

    /// The type of a push that shows something, and of the chat's own.
    package static let alert = "alert"
    /// The type of a push that only wakes the app.
    package static let background = "background"
    /// The types of Apple's provider API (apns-http2.md §2).
    package static let types = [
        alert, background, "location", "voip", "complication", "fileprovider", "mdm", "liveactivity", "pushtotalk",
        "widgets", "controls",
    ]
}

/// Where an entry of the queue stands; the column `state`.
package enum PushState: String, Sendable, Hashable, CaseIterable {
    /// Waits for its turn, or for `not_before`.
    case pending
    /// Handed to a connection; what became of it is not known yet.
    case written
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
    /// The device no longer wants it since a time; it is deactivated unless it registered later.
    case unregistered(since: Timestamp, reason: String)
    /// The gateway's fault, or a passing one of the push: worth another try after a delay that grows.
    case retry(reason: String)
    /// The gateway does not accept who sends, and the push waits for better credentials: repeat after a delay, for ever,
    /// unless others of the app get through meanwhile. Then it is the push.
    case notAuthorized(reason: String)
    /// Written, and certainly not processed: repeat at once, but behind the others; when that goes on, after a delay.
    case sentBack(reason: String)
    /// Certainly not processed: repeat at once.
    case notProcessed
    /// The connection went and nobody knows: repeat, and count it.
    case unanswered(reason: String)
}

/// What became of some of the pushes of one connection.
package struct Verdict: Sendable, Hashable {
    package let connection: ConnectionEpoch
    /// Only entries that are still `written` on the connection are touched, so ranges may overlap; the first
    /// verdict on an entry stands.
    package let identifiers: ClosedRange<UInt32>
    package let outcome: Outcome
    /// The gateway spoke after silence had been taken for acceptance: entries that are `sent` change too.
    package let overrulesSilence: Bool

    package init(
        connection: ConnectionEpoch, identifiers: ClosedRange<UInt32>, outcome: Outcome, overrulesSilence: Bool = false
    ) {
        self.connection = connection
        self.identifiers = identifiers
        self.outcome = outcome
        self.overrulesSilence = overrulesSilence
    }
}

/// Numbers the gateway connections. A process goes on where the queue's entries end, so that none of them is met under
/// a number that means another connection.
package struct ConnectionEpoch: Sendable, Hashable, CustomStringConvertible {
    package let number: Int64

    package init(_ number: Int64) {
        self.number = number
    }

    package var description: String { String(number) }
}

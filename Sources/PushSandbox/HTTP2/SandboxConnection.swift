import APNSWire
import Foundation

/// One HTTP/2 connection as the rules see it: who the client is, and which tokens it used.
struct SandboxConnection: Sendable {
    /// The connection's number, from 1.
    let number: Int
    /// What the client showed in TLS; nil: it has to send provider tokens.
    let certificate: ClientCertificate?
    var authentication: SandboxAuthentication
    /// The sandbox stops.
    var isStopping = false
    private var ids = RandomIDs(seed: .random(in: 0 ... .max))

    init(number: Int, certificate: ClientCertificate?, authentication: SandboxAuthentication) {
        self.number = number
        self.certificate = certificate
        self.authentication = authentication
    }

    mutating func newID() -> String { ids.next() }
}

/// Makes UUIDs (version 4, lower case) that look random; a question to the system for each would cost more than the rest
/// of the answer.
struct RandomIDs: Sendable {
    private var state: UInt64

    init(seed: UInt64) {
        state = seed
    }

    mutating func next() -> String {
        let high = word() & ~0xF000 | 0x4000
        let low = word() & ~(0xC << 60) | 0x8 << 60
        let bytes = withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { $0.loadUnaligned(as: uuid_t.self) }
        return UUID(uuid: bytes).uuidString.lowercased()
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    private mutating func word() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }
}

/// What a connection has to do after a request.
struct SandboxDecision: Sendable {
    /// What is written; nil: nothing, and unless ``effect`` ends it the stream stays open.
    var answer: SandboxResponse?
    var effect: Effect?
    /// The client has authenticated itself.
    var isAuthenticated = false
    var outcome = Outcome.neutral
    /// The reason for which a provider token was refused, and the details for the log.
    var refusedToken: (reason: String, why: String)?

    init(effect: Effect? = nil) {
        self.effect = effect
    }

    /// What a fault does beside, or instead of, the answer.
    enum Effect: Sendable, Hashable {
        /// The answer is written so many milliseconds later.
        case late(milliseconds: Int)
        /// Judge the request again after so many milliseconds, this time without faults.
        case postpone(milliseconds: Int)
        /// Neither read nor write for so many milliseconds (nil: ever); the answer comes after that.
        case pause(milliseconds: Int?)
        /// Allow so many streams, for so many milliseconds (nil: ever).
        case limitStreams(Int, milliseconds: Int?)
        case resetStream(code: Int)
        /// Streams above `lastStream` are not processed; the connection closes when the others have their answers.
        case goAway(reason: String?, lastStream: Int?, code: Int)
        /// Close, without an answer.
        case close
        /// Reset the connection.
        case reset
    }

    /// What the notification means for the number of streams that the connection may open.
    enum Outcome: Sendable, Hashable {
        case accepted
        /// Refused for a reason for which Apple lowers the limit: 4xx, but for 410 and 429.
        case refused
        case neutral
    }
}

/// An answer: 200, or another status with or without a body.
struct SandboxResponse: Sendable, Hashable {
    /// The value of `apns-id`.
    let id: String
    var status = 200
    var body: String?
}

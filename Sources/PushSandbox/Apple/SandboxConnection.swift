import Foundation
import PushWire

/// The properties of an HTTP/2 connection that the rules need: the client's identity, and the tokens that it used.
struct SandboxConnection: Sendable {
    /// The listener that accepted the connection: ``ListenerKind/http2`` or ``ListenerKind/channels``.
    let listener: ListenerKind
    /// The connection's number, from 1.
    let number: Int
    /// The client's certificate from TLS. `nil` if the client has to send provider tokens.
    let certificate: ClientCertificate?
    var authentication: SandboxAuthentication
    /// Whether the sandbox is stopping.
    var isStopping = false
    private var ids = RandomIDs(seed: .random(in: 0 ... .max))

    init(
        _ listener: ListenerKind = .http2, number: Int, certificate: ClientCertificate?,
        authentication: SandboxAuthentication
    ) {
        self.listener = listener
        self.number = number
        self.certificate = certificate
        self.authentication = authentication
    }

    mutating func newID() -> String { ids.next() }

    /// Returns random bytes for a token or a channel's id: 16 for each of the `count` parts.
    mutating func newBytes(parts count: Int) -> [UInt8] {
        (0..<count).flatMap { _ in
            withUnsafeBytes(of: UUID(uuidString: ids.next())?.uuid ?? UUID().uuid) { Array($0) }
        }
    }
}

/// Creates UUIDs (version 4, lower case) that look random. Getting each one from the system would cost more than the
/// rest of the response.
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

/// The next actions of a connection after a request.
struct SandboxDecision: Sendable {
    /// The response to write. `nil` if there is none. The stream then stays open, unless ``effect`` ends it.
    var response: SandboxResponse?
    var effect: Effect?
    /// Whether the client has authenticated itself.
    var isAuthenticated = false
    var outcome = Outcome.neutral
    /// The reason for rejecting a provider token, and the details for the log.
    var rejectedToken: (reason: String, details: String)?
    /// Mistakes in an accepted push that Apple does not report, for the log.
    var warnings: [String] = []

    init(effect: Effect? = nil) {
        self.effect = effect
    }

    /// The effect of a fault, in addition to the response or instead of it.
    enum Effect: Sendable, Hashable {
        /// Write the response after this time.
        case late(milliseconds: Int)
        /// Decide on the request again after this time, without faults.
        case postpone(milliseconds: Int)
        /// Neither read nor write for this time, then write the response. If the time is `nil`, the connection stops
        /// for good.
        case pause(milliseconds: Int?)
        /// Limit the number of streams for this time, or for the rest of the connection if the time is `nil`.
        case limitStreams(Int, milliseconds: Int?)
        case resetStream(code: Int)
        /// Send GOAWAY. Streams above `lastStream` are not processed. The connection closes when the other streams have
        /// their responses.
        case goAway(reason: String?, lastStream: Int?, code: Int)
        /// Close the connection without a response.
        case close
        /// Reset the connection.
        case reset
    }

    /// The effect of a notification on the number of streams that the connection may open.
    enum Outcome: Sendable, Hashable {
        case accepted
        /// The notification was rejected for a reason for which Apple lowers the limit: 4xx, except 410 and 429.
        case refused
        case neutral
    }
}

/// A response: 200, or another status with or without a body.
struct SandboxResponse: Sendable, Hashable {
    /// The value of `apns-id`, or of `apns-request-id` unless the request was a push to a device.
    let id: String
    /// The protocol of the request: pushes to devices, broadcasts, or channel management.
    var gateway = GatewayProtocol.http2
    var status = 200
    var body: String?
    /// The id of the channel that the request created. `nil` with all other requests.
    var channel: String?

    /// The header that carries ``id``.
    var idHeader: String { gateway == .http2 ? ProviderHeader.id : ProviderHeader.requestID }
    /// Whether the response has a unique id, which the development environment gives to accepted pushes.
    var hasUniqueID: Bool { status == 200 && gateway != .channels }
}

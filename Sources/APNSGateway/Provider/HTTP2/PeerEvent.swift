import NIOCore

/// What one frame of the peer says.
enum PeerEvent: Sendable, Hashable {
    /// - Parameter status: of an answer; nil in trailers, and where it is none.
    case headers(stream: Int, status: Int?, endsStream: Bool)
    /// - Parameter size: what the frame takes of windows, padding and all.
    case data(stream: Int, bytes: ByteBuffer, endsStream: Bool, size: Int)
    case reset(stream: Int, code: UInt32)
    case settings(PeerSettings)
    case ping(UInt64)
    /// Streams above `lastStream` were not processed.
    case goAway(lastStream: Int, code: UInt32, debug: ByteBuffer)
    /// - Parameter stream: 0 for all together.
    case windowUpdate(stream: Int, increment: Int)
    /// An acknowledgement, part of a header block, a priority, or a kind of frame that is not known.
    case nothing
}

/// What a SETTINGS frame changes, of what concerns a client that takes no pushes (RFC 9113 §6.5.2).
struct PeerSettings: Sendable, Hashable {
    /// The largest window there may be.
    static let longestWindow = (1 << 31) - 1

    /// Bytes that the peer keeps for header compression: the least on the way to the last.
    private(set) var leastHeaderTable: Int?
    private(set) var headerTable: Int?
    private(set) var maxStreams: Int?
    /// Bytes of a body that may be sent on a stream before the peer has said anything on it.
    private(set) var streamWindow: Int?
    private(set) var frameSize: Int?

    init() {}

    /// Reads all that is in the buffer.
    init(reading payload: inout ByteBuffer) throws(HTTP2Failure) {
        while let (id, value) = payload.readMultipleIntegers(as: (UInt16, UInt32).self) {
            try note(id, Int(value))
        }
    }

    private mutating func note(_ id: UInt16, _ value: Int) throws(HTTP2Failure) {
        switch id {
        case 0x1:
            leastHeaderTable = min(leastHeaderTable ?? .max, value)
            headerTable = value
        case 0x2:
            guard value == 0 else { throw HTTP2Failure(.protocolError, "a server enables push") }
        case 0x3:
            maxStreams = value
        case 0x4:
            guard value <= Self.longestWindow else { throw HTTP2Failure(.flowControlError, "a window of \(value)") }
            streamWindow = value
        case 0x5:
            guard (FrameHeader.defaultPayload...FrameHeader.longestPayload).contains(value) else {
                throw HTTP2Failure(.protocolError, "a largest frame of \(value)")
            }
            frameSize = value
        default:
            break
        }
    }
}

package import NIOCore

/// Kinds of HTTP/2 frames (RFC 9113 §6).
enum FrameType: UInt8, Sendable {
    case data, headers, priority, reset, settings, pushPromise, ping, goAway, windowUpdate, continuation
}

/// What a frame's flags say; which of them count depends on its type.
struct FrameFlags: OptionSet, Sendable {
    let rawValue: UInt8

    static let endStream = FrameFlags(rawValue: 0x01)
    static let ack = FrameFlags(rawValue: 0x01)
    static let endHeaders = FrameFlags(rawValue: 0x04)
    static let padded = FrameFlags(rawValue: 0x08)
    static let priority = FrameFlags(rawValue: 0x20)
}

/// The nine bytes before every frame's payload (RFC 9113 §4.1).
struct FrameHeader: Sendable {
    static let size = 9
    /// The largest payload that every peer accepts, and that holds for us unless we announce another.
    static let defaultPayload = 16_384
    /// The largest payload that can be announced.
    static let longestPayload = (1 << 24) - 1

    /// Bytes of payload.
    let length: Int
    /// Not every type is known.
    let type: UInt8
    let flags: FrameFlags
    /// 0 for the connection itself.
    let stream: Int

    init(length: Int, type: FrameType, flags: FrameFlags = [], stream: Int = 0) {
        self.length = length
        self.type = type.rawValue
        self.flags = flags
        self.stream = stream
    }

    /// Reads the next bytes without consuming them; nil if there are not enough.
    init?(peekingAt buffer: ByteBuffer) {
        let start = buffer.readerIndex
        guard let first = buffer.getInteger(at: start, as: UInt32.self),
            let flags = buffer.getInteger(at: start + 4, as: UInt8.self),
            let stream = buffer.getInteger(at: start + 5, as: UInt32.self)
        else { return nil }
        length = Int(first >> 8)
        type = UInt8(truncatingIfNeeded: first)
        self.flags = FrameFlags(rawValue: flags)
        // The highest bit is reserved and ignored.
        self.stream = Int(stream & 0x7fff_ffff)
    }
}

extension ByteBuffer {
    mutating func writeFrameHeader(_ header: FrameHeader) {
        writeMultipleIntegers(
            UInt32(truncatingIfNeeded: header.length) << 8 | UInt32(header.type), header.flags.rawValue,
            UInt32(truncatingIfNeeded: header.stream))
    }

    /// Corrects the length of a frame whose header was written before its payload was known.
    mutating func setFrameLength(_ length: Int, at index: Int) {
        setInteger(UInt16(truncatingIfNeeded: length >> 8), at: index)
        setInteger(UInt8(truncatingIfNeeded: length), at: index + 2)
    }
}

/// Why a stream or a connection ends (RFC 9113 §7).
package enum HTTP2Code: UInt32, Sendable {
    case noError, protocolError, internalError, flowControlError, settingsTimeout, streamClosed, frameSizeError
    case refusedStream, cancel, compressionError, connectError, enhanceYourCalm, inadequateSecurity, http11Required

    private static let names = [
        "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
        "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
    ]

    /// The code's name in the RFC; a number where it is not in it.
    package static func name(_ code: UInt32) -> String {
        HTTP2Code(rawValue: code).map { names[Int($0.rawValue)] } ?? "code \(code)"
    }
}

/// The peer has violated the protocol, and the connection ends.
///
/// Also where the RFC would end only a stream: a peer that sends malformed frames cannot be relied on.
package struct HTTP2Failure: Error, Sendable, Hashable, CustomStringConvertible {
    /// What the peer is told.
    package let code: HTTP2Code
    /// For the log.
    package let text: String

    package init(_ code: HTTP2Code, _ text: String) {
        self.code = code
        self.text = text
    }

    package var description: String { "\(text) (\(HTTP2Code.name(code.rawValue)))" }
}

/// What one frame of the peer means.
package enum PeerEvent: Sendable, Hashable {
    /// - Parameters:
    ///   - status: of an answer; nil in trailers, and where it is none.
    ///   - retryAfter: the field `Retry-After` of a refusal.
    case headers(stream: Int, status: Int?, retryAfter: String? = nil, endsStream: Bool)
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

/// What a SETTINGS frame changes that concerns a client without server push (RFC 9113 §6.5.2).
package struct PeerSettings: Sendable, Hashable {
    /// The largest window there may be.
    static let longestWindow = (1 << 31) - 1

    /// Bytes that the peer keeps for header compression: the least and the last that the frame names.
    private(set) var leastHeaderTable: Int?
    private(set) var headerTable: Int?
    package private(set) var maxStreams: Int?
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

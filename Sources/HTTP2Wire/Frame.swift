package import NIOCore

/// The types of HTTP/2 frames (RFC 9113 §6).
enum FrameType: UInt8, Sendable {
    case data, headers, priority, reset, settings, pushPromise, ping, goAway, windowUpdate, continuation
}

/// The flags of a frame. Their meaning depends on the frame's type.
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
    /// The maximum size of a payload, in bytes, unless the receiver announces a larger one. The relay announces none.
    static let defaultPayload = 16_384
    /// The largest maximum that can be announced, in bytes.
    static let maxPayload = (1 << 24) - 1

    /// The size of the payload in bytes.
    let length: Int
    /// The type as a number, because unknown types are allowed.
    let type: UInt8
    let flags: FrameFlags
    /// The stream id. 0 for the connection itself.
    let stream: Int

    init(length: Int, type: FrameType, flags: FrameFlags = [], stream: Int = 0) {
        self.length = length
        self.type = type.rawValue
        self.flags = flags
        self.stream = stream
    }

    /// Reads the next bytes without consuming them. `nil` if there are not enough.
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

    /// Sets the length of a frame whose header was written before its payload was known.
    mutating func setFrameLength(_ length: Int, at index: Int) {
        setInteger(UInt16(truncatingIfNeeded: length >> 8), at: index)
        setInteger(UInt8(truncatingIfNeeded: length), at: index + 2)
    }
}

/// The reason for the end of a stream or connection (RFC 9113 §7).
package enum HTTP2Code: UInt32, Sendable {
    case noError, protocolError, internalError, flowControlError, settingsTimeout, streamClosed, frameSizeError
    case refusedStream, cancel, compressionError, connectError, enhanceYourCalm, inadequateSecurity, http11Required

    private static let names = [
        "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
        "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
    ]

    /// Returns the code's name in the RFC, or its number if the RFC does not define it.
    package static func name(_ code: UInt32) -> String {
        HTTP2Code(rawValue: code).map { names[Int($0.rawValue)] } ?? "code \(code)"
    }
}

/// The peer has violated the protocol, and the connection ends.
///
/// The connection ends even if the RFC would end only a stream: a peer that sends malformed frames cannot be trusted.
package struct HTTP2Failure: Error, Sendable, Hashable, CustomStringConvertible {
    /// The code for the peer.
    package let code: HTTP2Code
    /// The description for the log.
    package let text: String

    package init(_ code: HTTP2Code, _ text: String) {
        self.code = code
        self.text = text
    }

    package var description: String { "\(text) (\(HTTP2Code.name(code.rawValue)))" }
}

/// The meaning of one frame from the peer.
package enum PeerEvent: Sendable, Hashable {
    /// Response headers or trailers.
    /// - Parameters:
    ///   - status: The status of a response. `nil` in trailers, or if the status is invalid.
    ///   - retryAfter: The field `Retry-After` of an error response.
    case headers(stream: Int, status: Int?, retryAfter: String? = nil, endsStream: Bool)
    /// A part of a response body.
    /// - Parameter size: The number of bytes that count against the windows, including padding.
    case data(stream: Int, bytes: ByteBuffer, endsStream: Bool, size: Int)
    case reset(stream: Int, code: UInt32)
    case settings(PeerSettings)
    case ping(UInt64)
    /// The peer has not processed streams above `lastStream`.
    case goAway(lastStream: Int, code: UInt32, debug: ByteBuffer)
    /// The peer accepts more body bytes.
    /// - Parameter stream: 0 for the connection's window.
    case windowUpdate(stream: Int, increment: Int)
    /// An acknowledgement, part of a header block, a priority, or a frame of an unknown type.
    case nothing
}

/// The changes of a SETTINGS frame that concern a client without server push (RFC 9113 §6.5.2).
package struct PeerSettings: Sendable, Hashable {
    /// The largest valid window, in bytes.
    static let maxWindow = (1 << 31) - 1

    /// The smallest size in the frame, in bytes, of the peer's table for header compression.
    private(set) var minHeaderTable: Int?
    /// The last size in the frame, in bytes, of the peer's table for header compression.
    private(set) var headerTable: Int?
    package private(set) var maxStreams: Int?
    /// The number of body bytes that may be sent on a new stream before the peer grants more.
    private(set) var streamWindow: Int?
    private(set) var frameSize: Int?

    init() {}

    /// Reads all settings in the buffer.
    init(reading payload: inout ByteBuffer) throws(HTTP2Failure) {
        while let (id, value) = payload.readMultipleIntegers(as: (UInt16, UInt32).self) {
            try note(id, Int(value))
        }
    }

    private mutating func note(_ id: UInt16, _ value: Int) throws(HTTP2Failure) {
        switch id {
        case 0x1:
            minHeaderTable = min(minHeaderTable ?? .max, value)
            headerTable = value
        case 0x2:
            guard value == 0 else { throw HTTP2Failure(.protocolError, "a server enables push") }
        case 0x3:
            maxStreams = value
        case 0x4:
            guard value <= Self.maxWindow else { throw HTTP2Failure(.flowControlError, "a window of \(value)") }
            streamWindow = value
        case 0x5:
            guard (FrameHeader.defaultPayload...FrameHeader.maxPayload).contains(value) else {
                throw HTTP2Failure(.protocolError, "a largest frame of \(value)")
            }
            frameSize = value
        default:
            break
        }
    }
}

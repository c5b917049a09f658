import NIOCore

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
    /// The largest payload that every peer takes, and that we announce by saying nothing else.
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

    /// Looks at the next bytes without taking them; nil if there are not enough.
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

    /// Puts right the length of a frame whose header was written before its payload was known.
    mutating func setFrameLength(_ length: Int, at index: Int) {
        setInteger(UInt16(truncatingIfNeeded: length >> 8), at: index)
        setInteger(UInt8(truncatingIfNeeded: length), at: index + 2)
    }
}

import NIOCore
import NIOHPACK

@testable import HTTP2Wire

/// Valid and invalid frames as a server sends them.
enum ServerFrames {
    struct Frame {
        let type: FrameType
        let flags: FrameFlags
        let stream: Int
        let payload: ByteBuffer
    }

    static func frame(
        _ type: FrameType, _ flags: FrameFlags = [], on stream: Int = 0, _ payload: [UInt8] = []
    ) -> ByteBuffer {
        var buffer = ByteBuffer()
        buffer.writeFrameHeader(FrameHeader(length: payload.count, type: type, flags: flags, stream: stream))
        buffer.writeBytes(payload)
        return buffer
    }

    static func bytes(_ value: Int, _ count: Int = 4) -> [UInt8] {
        (0..<count).reversed().map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
    }

    static func settings(_ settings: [(id: Int, value: Int)] = []) -> ByteBuffer {
        frame(.settings, on: 0, settings.flatMap { bytes($0.id, 2) + bytes($0.value) })
    }

    static func windowUpdate(_ increment: Int, on stream: Int = 0) -> ByteBuffer {
        frame(.windowUpdate, on: stream, bytes(increment))
    }

    /// A complete response with `:status: 200`.
    static func accept(_ stream: Int) -> ByteBuffer {
        frame(.headers, [.endHeaders, .endStream], on: stream, [0x88])
    }

    /// Encodes headers as literals, independent of the table.
    static func block(_ headers: [(name: String, value: String)]) -> [UInt8] {
        headers.flatMap { header in
            [0x00, UInt8(header.name.utf8.count)] + header.name.utf8 + [UInt8(header.value.utf8.count)]
                + header.value.utf8
        }
    }

    static func joined(_ buffers: [ByteBuffer]) -> ByteBuffer {
        ByteBuffer(bytes: buffers.flatMap { $0.readableBytesView })
    }

    /// Splits a client's output, with or without the preface, into frames.
    static func frames(_ bytes: ByteBuffer) -> [Frame] {
        var rest = bytes
        if rest.getString(at: rest.readerIndex, length: 3) == "PRI" { rest.moveReaderIndex(forwardBy: 24) }
        var frames: [Frame] = []
        while let header = FrameHeader(peekingAt: rest), let type = FrameType(rawValue: header.type) {
            rest.moveReaderIndex(forwardBy: FrameHeader.size)
            guard let payload = rest.readSlice(length: header.length) else { break }
            frames.append(Frame(type: type, flags: header.flags, stream: header.stream, payload: payload))
        }
        return frames
    }

    /// Some of the frames, some of them spoilt.
    static func mutilated(
        _ frames: [ByteBuffer], wildly: Bool = false, using random: inout some RandomNumberGenerator
    ) -> [UInt8] {
        var bytes: [UInt8] = []
        for _ in 0..<Int.random(in: 1...12, using: &random) {
            var frame = Array(frames.randomElement(using: &random)?.readableBytesView ?? ByteBufferView())
            switch Int.random(in: 0..<6, using: &random) {
            case 0:
                let index = Int.random(in: 0..<frame.count, using: &random)
                frame[index] = UInt8.random(in: 0...255, using: &random)
            case 1: frame[Int.random(in: 3..<9, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            case 2 where frame.count > 9: frame.removeLast()
            case 3 where wildly: frame = (0..<40).map { _ in UInt8.random(in: 0...255, using: &random) }
            default: break
            }
            bytes += frame
        }
        return bytes
    }
}

/// A random number generator whose numbers are the same in every run (SplitMix64).
struct Seeded: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var word = state
        word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }
}

import NIOCore
import NIOHPACK
import Testing

@testable import APNSGateway

@Suite("What a server's bytes say")
struct FrameReaderTests {
    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let bytes: ByteBuffer
        let code: HTTP2Code

        init(_ text: String, _ bytes: ByteBuffer..., code: HTTP2Code) {
            testDescription = text
            self.bytes = Wire.joined(bytes)
            self.code = code
        }
    }

    /// Streams 1 to 5 were opened.
    static let lastStream = 5

    /// All that is said; the bytes come in pieces of a given size.
    static func events(
        _ bytes: ByteBuffer, pieces: Int = .max, begin: Bool = true
    ) throws(HTTP2Failure) -> [PeerEvent] {
        var reader = FrameReader()
        if begin {
            reader.feed(Wire.settings())
            _ = try reader.next(lastStream: lastStream)
        }
        var events: [PeerEvent] = []
        var rest = bytes
        while let piece = rest.readSlice(length: min(pieces, rest.readableBytes)), piece.readableBytes > 0 {
            reader.feed(piece)
            while let event = try reader.next(lastStream: lastStream) { events.append(event) }
        }
        return events
    }

    static let malformed: [Case] = [
        Case(
            "a frame that is too large", Wire.frame(.data, on: 1, .init(repeating: 0, count: 16_385)),
            code: .frameSizeError),
        Case("DATA on the connection", Wire.frame(.data), code: .protocolError),
        Case("DATA on a stream that was not opened", Wire.frame(.data, on: 7), code: .protocolError),
        Case("DATA on a stream of the server's", Wire.frame(.data, on: 2), code: .protocolError),
        Case("DATA, all padding and more", Wire.frame(.data, .padded, on: 1, [3, 0, 0]), code: .protocolError),
        Case("DATA that lacks the length of its padding", Wire.frame(.data, .padded, on: 1), code: .frameSizeError),
        Case("HEADERS on the connection", Wire.frame(.headers, .endHeaders, on: 0, [0x88]), code: .protocolError),
        Case(
            "HEADERS on a stream that was not opened", Wire.frame(.headers, .endHeaders, on: 7, [0x88]),
            code: .protocolError),
        Case(
            "HEADERS on a stream of the server's", Wire.frame(.headers, .endHeaders, on: 4, [0x88]),
            code: .protocolError),
        Case(
            "HEADERS with too much padding", Wire.frame(.headers, [.endHeaders, .padded], on: 1, [9, 0x88]),
            code: .protocolError),
        Case(
            "HEADERS with half a priority", Wire.frame(.headers, [.endHeaders, .priority], on: 1, [0, 0, 0]),
            code: .frameSizeError),
        Case(
            "HEADERS of an unknown index", Wire.frame(.headers, .endHeaders, on: 1, [0xff, 0x20]),
            code: .compressionError),
        Case(
            "HEADERS that break off", Wire.frame(.headers, .endHeaders, on: 1, [0x00, 0x05, 0x61]),
            code: .compressionError),
        Case(
            "HEADERS with an endless number",
            Wire.frame(.headers, .endHeaders, on: 1, .init(repeating: 0xff, count: 20)), code: .compressionError),
        Case(
            "HEADERS with a table beyond what we keep", Wire.frame(.headers, .endHeaders, on: 1, [0x3f, 0xe2, 0x1f]),
            code: .compressionError),
        Case(
            "HEADERS that unfold to more than they are",
            Wire.frame(
                .headers, .endHeaders, on: 1,
                [0x40, 1, 0x61, 0x7f, 0x81, 0x0f] + .init(repeating: 0x61, count: 2048)
                    + .init(repeating: 0xbe, count: 100)),
            code: .enhanceYourCalm),
        Case("headers within headers", Wire.frame(.headers, on: 1), Wire.frame(.headers, on: 1), code: .protocolError),
        Case(
            "PING within headers", Wire.frame(.headers, on: 1), Wire.frame(.ping, on: 0, .init(repeating: 0, count: 8)),
            code: .protocolError),
        Case(
            "CONTINUATION of another stream", Wire.frame(.headers, on: 1), Wire.frame(.continuation, on: 3),
            code: .protocolError),
        Case("CONTINUATION of nothing", Wire.frame(.continuation, .endHeaders, on: 1), code: .protocolError),
        Case(
            "CONTINUATION without an end",
            Wire.joined([Wire.frame(.headers, on: 1)] + .init(repeating: Wire.frame(.continuation, on: 1), count: 17)),
            code: .enhanceYourCalm),
        Case(
            "CONTINUATION without measure", Wire.frame(.headers, on: 1, .init(repeating: 0, count: 16_000)),
            Wire.frame(.continuation, .endHeaders, on: 1, .init(repeating: 0, count: 16_000)), code: .enhanceYourCalm),
        Case(
            "PRIORITY on the connection", Wire.frame(.priority, on: 0, .init(repeating: 0, count: 5)),
            code: .protocolError),
        Case("PRIORITY of the wrong length", Wire.frame(.priority, on: 1, [0]), code: .frameSizeError),
        Case("RST_STREAM on the connection", Wire.frame(.reset, on: 0, Wire.bytes(0)), code: .protocolError),
        Case(
            "RST_STREAM on a stream that was not opened", Wire.frame(.reset, on: 9, Wire.bytes(0)), code: .protocolError
        ),
        Case("RST_STREAM of the wrong length", Wire.frame(.reset, on: 1, [0, 0, 0]), code: .frameSizeError),
        Case("SETTINGS on a stream", Wire.frame(.settings, on: 1), code: .protocolError),
        Case("SETTINGS of the wrong length", Wire.frame(.settings, on: 0, [0, 1, 0]), code: .frameSizeError),
        Case(
            "an acknowledgement with something in it", Wire.frame(.settings, .ack, on: 0, [0, 1, 0, 0, 0, 0]),
            code: .frameSizeError),
        Case("SETTINGS that enable push", Wire.settings([(2, 1)]), code: .protocolError),
        Case("SETTINGS with too large a window", Wire.settings([(4, 1 << 31)]), code: .flowControlError),
        Case("SETTINGS with too small a frame", Wire.settings([(5, 16_383)]), code: .protocolError),
        Case("SETTINGS with too large a frame", Wire.settings([(5, 1 << 24)]), code: .protocolError),
        Case(
            "PUSH_PROMISE", Wire.frame(.pushPromise, .endHeaders, on: 1, Wire.bytes(2) + [0x88]), code: .protocolError),
        Case("PING on a stream", Wire.frame(.ping, on: 1, .init(repeating: 0, count: 8)), code: .protocolError),
        Case(
            "PING of the wrong length", Wire.frame(.ping, on: 0, .init(repeating: 0, count: 9)), code: .frameSizeError),
        Case("GOAWAY on a stream", Wire.frame(.goAway, on: 1, .init(repeating: 0, count: 8)), code: .protocolError),
        Case(
            "GOAWAY that is too short", Wire.frame(.goAway, on: 0, .init(repeating: 0, count: 7)), code: .frameSizeError
        ),
        Case("WINDOW_UPDATE by nothing", Wire.windowUpdate(0), code: .protocolError),
        Case("WINDOW_UPDATE by nothing on a stream", Wire.windowUpdate(0, on: 1), code: .protocolError),
        Case("WINDOW_UPDATE on a stream that was not opened", Wire.windowUpdate(1, on: 7), code: .protocolError),
        Case("WINDOW_UPDATE of the wrong length", Wire.frame(.windowUpdate, on: 0, [1]), code: .frameSizeError),
    ]

    @Test("What the RFC does not allow ends the connection", arguments: malformed)
    func refuses(_ test: Case) {
        for pieces in [Int.max, 1] {
            let failure = #expect(throws: HTTP2Failure.self) { try Self.events(test.bytes, pieces: pieces) }
            #expect(failure?.code == test.code)
        }
    }

    @Test(
        "A connection begins with SETTINGS",
        arguments: [
            Wire.frame(.settings, .ack), Wire.frame(.ping, on: 0, .init(repeating: 0, count: 8)),
            ByteBuffer(string: "HTTP/1.1 400 Bad Request\r\n\r\n"), Wire.accept(1),
        ])
    func beginning(_ bytes: ByteBuffer) {
        #expect(throws: HTTP2Failure.self) { try Self.events(bytes, begin: false) }
    }

    /// Every kind of frame, with what it says.
    static let conversation: [(bytes: ByteBuffer, event: PeerEvent)] = [
        (Wire.accept(1), .headers(stream: 1, status: 200, endsStream: true)),
        (
            Wire.frame(.headers, [.endHeaders, .padded, .priority], on: 3, [2, 0, 0, 0, 0, 7, 0x8c, 0, 0]),
            .headers(stream: 3, status: 400, endsStream: false)
        ),
        (
            Wire.frame(.data, [.padded, .endStream], on: 3, [2] + "{}".utf8 + [0, 0]),
            .data(stream: 3, bytes: ByteBuffer(string: "{}"), endsStream: true, size: 5)
        ),
        (Wire.frame(.data, .padded, on: 1, [1, 0]), .data(stream: 1, bytes: ByteBuffer(), endsStream: false, size: 2)),
        (Wire.frame(.headers, .endStream, on: 5), .nothing),
        (Wire.frame(.continuation, on: 5, Array(Wire.block([(":status", "503")]).prefix(4))), .nothing),
        (
            Wire.frame(.continuation, .endHeaders, on: 5, Array(Wire.block([(":status", "503")]).dropFirst(4))),
            .headers(stream: 5, status: 503, endsStream: true)
        ),
        (
            Wire.frame(.headers, .endHeaders, on: 1, Wire.block([(":status", "+20")])),
            .headers(stream: 1, status: 20, endsStream: false)
        ),
        (
            Wire.frame(.headers, .endHeaders, on: 1, Wire.block([(":status", "2000"), ("a", "b")])),
            .headers(stream: 1, status: nil, endsStream: false)
        ),
        (Wire.frame(.headers, .endHeaders, on: 1), .headers(stream: 1, status: nil, endsStream: false)),
        (Wire.frame(.priority, on: 99, .init(repeating: 0, count: 5)), .nothing),
        (Wire.frame(.reset, on: 5, Wire.bytes(7)), .reset(stream: 5, code: 7)),
        (Wire.frame(.settings, .ack), .nothing),
        (Wire.frame(.ping, on: 0, Wire.bytes(77, 8)), .ping(77)),
        (Wire.frame(.ping, .ack, on: 0, Wire.bytes(77, 8)), .nothing),
        (
            Wire.frame(.goAway, on: 0, Wire.bytes(1 << 31 | 3) + Wire.bytes(11) + "bye".utf8),
            .goAway(lastStream: 3, code: 11, debug: ByteBuffer(string: "bye"))
        ),
        (Wire.windowUpdate(1 << 31 | 9), .windowUpdate(stream: 0, increment: 9)),
        (Wire.windowUpdate(9, on: 5), .windowUpdate(stream: 5, increment: 9)),
        (ByteBuffer(bytes: [0, 0, 1, 0x2a, 0xff, 0, 0, 0, 0, 1]), .nothing),
        (
            Wire.frame(.data, on: 1, .init(repeating: 1, count: 16_384)),
            .data(stream: 1, bytes: ByteBuffer(repeating: 1, count: 16_384), endsStream: false, size: 16_384)
        ),
        (Wire.accept(5), .headers(stream: 5, status: 200, endsStream: true)),
    ]

    @Test("Every kind of frame, however the bytes are cut", arguments: [Int.max, 1, 2, 3, 7, 10, 100, 4096])
    func cut(pieces: Int) throws {
        let bytes = Wire.joined(Self.conversation.map(\.bytes))
        #expect(try Self.events(bytes, pieces: pieces) == Self.conversation.map(\.event))
    }

    @Test("SETTINGS: the last of each counts, of the header table the least, too; unknown ones do not")
    func settings() throws {
        let frame = Wire.settings([(1, 100), (3, 5), (1, 0), (1, 50), (3, 6), (4, 7), (5, 20_000), (99, 1), (2, 0)])
        guard case .settings(let settings) = try Self.events(frame).first else {
            Issue.record("no settings")
            return
        }
        #expect(settings.leastHeaderTable == 0)
        #expect(settings.headerTable == 50)
        #expect(settings.maxStreams == 6)
        #expect(settings.streamWindow == 7)
        #expect(settings.frameSize == 20_000)
    }

    @Test("Headers that NIOHPACK compresses, with a table that fills and is emptied again")
    func compressed() throws {
        var encoder = HPACKEncoder(allocator: ByteBufferAllocator())
        var frames: [ByteBuffer] = []
        for number in 0..<300 {
            if number == 200 { try encoder.setDynamicTableSize(64) }
            var block = ByteBuffer()
            try encoder.encode(
                headers: [":status": "\(200 + number)", "apns-id": "8c4f7a5e-0000-4000-8000-\(number)"], to: &block)
            frames.append(Wire.frame(.headers, [.endHeaders, .endStream], on: 1, Array(block.readableBytesView)))
        }
        let events = try Self.events(Wire.joined(frames), pieces: 1000)
        #expect(events == (0..<300).map { .headers(stream: 1, status: 200 + $0, endsStream: true) })
    }
}

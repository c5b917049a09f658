import NIOCore
import NIOHPACK
import Testing

@testable import HTTP2Wire

@Suite("Reading a server's frames")
struct FrameReaderTests {
    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let bytes: ByteBuffer
        let code: HTTP2Code

        init(_ text: String, _ bytes: ByteBuffer..., code: HTTP2Code) {
            testDescription = text
            self.bytes = ServerFrames.joined(bytes)
            self.code = code
        }
    }

    /// The client has opened streams 1 to 5.
    static let lastStream = 5

    /// Returns all events of the bytes, which are read in pieces of a given size.
    static func events(
        _ bytes: ByteBuffer, pieces: Int = .max, begin: Bool = true
    ) throws(HTTP2Failure) -> [PeerEvent] {
        var reader = FrameReader()
        if begin {
            reader.feed(ServerFrames.settings())
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
            "a frame that is too large", ServerFrames.frame(.data, on: 1, .init(repeating: 0, count: 16_385)),
            code: .frameSizeError),
        Case("DATA on the connection", ServerFrames.frame(.data), code: .protocolError),
        Case("DATA on a stream that was not opened", ServerFrames.frame(.data, on: 7), code: .protocolError),
        Case("DATA on a stream of the server's", ServerFrames.frame(.data, on: 2), code: .protocolError),
        Case("DATA, all padding and more", ServerFrames.frame(.data, .padded, on: 1, [3, 0, 0]), code: .protocolError),
        Case(
            "DATA that lacks the length of its padding", ServerFrames.frame(.data, .padded, on: 1),
            code: .frameSizeError),
        Case(
            "HEADERS on the connection", ServerFrames.frame(.headers, .endHeaders, on: 0, [0x88]), code: .protocolError),
        Case(
            "HEADERS on a stream that was not opened", ServerFrames.frame(.headers, .endHeaders, on: 7, [0x88]),
            code: .protocolError),
        Case(
            "HEADERS on a stream of the server's", ServerFrames.frame(.headers, .endHeaders, on: 4, [0x88]),
            code: .protocolError),
        Case(
            "HEADERS with too much padding", ServerFrames.frame(.headers, [.endHeaders, .padded], on: 1, [9, 0x88]),
            code: .protocolError),
        Case(
            "HEADERS with half a priority", ServerFrames.frame(.headers, [.endHeaders, .priority], on: 1, [0, 0, 0]),
            code: .frameSizeError),
        Case(
            "HEADERS of an unknown index", ServerFrames.frame(.headers, .endHeaders, on: 1, [0xff, 0x20]),
            code: .compressionError),
        Case(
            "HEADERS that break off", ServerFrames.frame(.headers, .endHeaders, on: 1, [0x00, 0x05, 0x61]),
            code: .compressionError),
        Case(
            "HEADERS with an endless integer",
            ServerFrames.frame(.headers, .endHeaders, on: 1, .init(repeating: 0xff, count: 20)), code: .compressionError
        ),
        Case(
            "HEADERS with a table beyond what we keep",
            ServerFrames.frame(.headers, .endHeaders, on: 1, [0x3f, 0xe2, 0x1f]),
            code: .compressionError),
        Case(
            "HEADERS that unfold to more than they are",
            ServerFrames.frame(
                .headers, .endHeaders, on: 1,
                [0x40, 1, 0x61, 0x7f, 0x81, 0x0f] + .init(repeating: 0x61, count: 2048)
                    + .init(repeating: 0xbe, count: 100)),
            code: .enhanceYourCalm),
        Case(
            "headers within headers", ServerFrames.frame(.headers, on: 1), ServerFrames.frame(.headers, on: 1),
            code: .protocolError),
        Case(
            "PING within headers", ServerFrames.frame(.headers, on: 1),
            ServerFrames.frame(.ping, on: 0, .init(repeating: 0, count: 8)),
            code: .protocolError),
        Case(
            "CONTINUATION of another stream", ServerFrames.frame(.headers, on: 1),
            ServerFrames.frame(.continuation, on: 3),
            code: .protocolError),
        Case("CONTINUATION of nothing", ServerFrames.frame(.continuation, .endHeaders, on: 1), code: .protocolError),
        Case(
            "CONTINUATION without an end",
            ServerFrames.joined(
                [ServerFrames.frame(.headers, on: 1)]
                    + .init(repeating: ServerFrames.frame(.continuation, on: 1), count: 17)),
            code: .enhanceYourCalm),
        Case(
            "CONTINUATION without measure", ServerFrames.frame(.headers, on: 1, .init(repeating: 0, count: 16_000)),
            ServerFrames.frame(.continuation, .endHeaders, on: 1, .init(repeating: 0, count: 16_000)),
            code: .enhanceYourCalm),
        Case(
            "PRIORITY on the connection", ServerFrames.frame(.priority, on: 0, .init(repeating: 0, count: 5)),
            code: .protocolError),
        Case("PRIORITY of the wrong length", ServerFrames.frame(.priority, on: 1, [0]), code: .frameSizeError),
        Case(
            "RST_STREAM on the connection", ServerFrames.frame(.reset, on: 0, ServerFrames.bytes(0)),
            code: .protocolError),
        Case(
            "RST_STREAM on a stream that was not opened", ServerFrames.frame(.reset, on: 9, ServerFrames.bytes(0)),
            code: .protocolError
        ),
        Case("RST_STREAM of the wrong length", ServerFrames.frame(.reset, on: 1, [0, 0, 0]), code: .frameSizeError),
        Case("SETTINGS on a stream", ServerFrames.frame(.settings, on: 1), code: .protocolError),
        Case("SETTINGS of the wrong length", ServerFrames.frame(.settings, on: 0, [0, 1, 0]), code: .frameSizeError),
        Case(
            "an acknowledgement with something in it", ServerFrames.frame(.settings, .ack, on: 0, [0, 1, 0, 0, 0, 0]),
            code: .frameSizeError),
        Case("SETTINGS that enable push", ServerFrames.settings([(2, 1)]), code: .protocolError),
        Case("SETTINGS with too large a window", ServerFrames.settings([(4, 1 << 31)]), code: .flowControlError),
        Case("SETTINGS with too small a frame", ServerFrames.settings([(5, 16_383)]), code: .protocolError),
        Case("SETTINGS with too large a frame", ServerFrames.settings([(5, 1 << 24)]), code: .protocolError),
        Case(
            "PUSH_PROMISE", ServerFrames.frame(.pushPromise, .endHeaders, on: 1, ServerFrames.bytes(2) + [0x88]),
            code: .protocolError),
        Case("PING on a stream", ServerFrames.frame(.ping, on: 1, .init(repeating: 0, count: 8)), code: .protocolError),
        Case(
            "PING of the wrong length", ServerFrames.frame(.ping, on: 0, .init(repeating: 0, count: 9)),
            code: .frameSizeError),
        Case(
            "GOAWAY on a stream", ServerFrames.frame(.goAway, on: 1, .init(repeating: 0, count: 8)),
            code: .protocolError),
        Case(
            "GOAWAY that is too short", ServerFrames.frame(.goAway, on: 0, .init(repeating: 0, count: 7)),
            code: .frameSizeError
        ),
        Case("WINDOW_UPDATE by nothing", ServerFrames.windowUpdate(0), code: .protocolError),
        Case("WINDOW_UPDATE by nothing on a stream", ServerFrames.windowUpdate(0, on: 1), code: .protocolError),
        Case(
            "WINDOW_UPDATE on a stream that was not opened", ServerFrames.windowUpdate(1, on: 7), code: .protocolError),
        Case("WINDOW_UPDATE of the wrong length", ServerFrames.frame(.windowUpdate, on: 0, [1]), code: .frameSizeError),
    ]

    @Test("Frames that the RFC does not allow end the connection", arguments: malformed)
    func refuses(_ test: Case) {
        for pieces in [Int.max, 1] {
            let failure = #expect(throws: HTTP2Failure.self) { try Self.events(test.bytes, pieces: pieces) }
            #expect(failure?.code == test.code)
        }
    }

    @Test(
        "A connection begins with SETTINGS",
        arguments: [
            ServerFrames.frame(.settings, .ack), ServerFrames.frame(.ping, on: 0, .init(repeating: 0, count: 8)),
            ByteBuffer(string: "HTTP/1.1 400 Bad Request\r\n\r\n"), ServerFrames.accept(1),
        ])
    func beginning(_ bytes: ByteBuffer) {
        #expect(throws: HTTP2Failure.self) { try Self.events(bytes, begin: false) }
    }

    /// Every kind of frame with its event.
    static let conversation: [(bytes: ByteBuffer, event: PeerEvent)] = [
        (ServerFrames.accept(1), .headers(stream: 1, status: 200, endsStream: true)),
        (
            ServerFrames.frame(.headers, [.endHeaders, .padded, .priority], on: 3, [2, 0, 0, 0, 0, 7, 0x8c, 0, 0]),
            .headers(stream: 3, status: 400, endsStream: false)
        ),
        (
            ServerFrames.frame(.data, [.padded, .endStream], on: 3, [2] + "{}".utf8 + [0, 0]),
            .data(stream: 3, bytes: ByteBuffer(string: "{}"), endsStream: true, size: 5)
        ),
        (
            ServerFrames.frame(.data, .padded, on: 1, [1, 0]),
            .data(stream: 1, bytes: ByteBuffer(), endsStream: false, size: 2)
        ),
        (ServerFrames.frame(.headers, .endStream, on: 5), .nothing),
        (ServerFrames.frame(.continuation, on: 5, Array(ServerFrames.block([(":status", "503")]).prefix(4))), .nothing),
        (
            ServerFrames.frame(
                .continuation, .endHeaders, on: 5, Array(ServerFrames.block([(":status", "503")]).dropFirst(4))),
            .headers(stream: 5, status: 503, endsStream: true)
        ),
        (
            ServerFrames.frame(.headers, .endHeaders, on: 1, ServerFrames.block([(":status", "+20")])),
            .headers(stream: 1, status: 20, endsStream: false)
        ),
        (
            ServerFrames.frame(.headers, .endHeaders, on: 1, ServerFrames.block([(":status", "2000"), ("a", "b")])),
            .headers(stream: 1, status: nil, endsStream: false)
        ),
        (ServerFrames.frame(.headers, .endHeaders, on: 1), .headers(stream: 1, status: nil, endsStream: false)),
        (ServerFrames.frame(.priority, on: 99, .init(repeating: 0, count: 5)), .nothing),
        (ServerFrames.frame(.reset, on: 5, ServerFrames.bytes(7)), .reset(stream: 5, code: 7)),
        (ServerFrames.frame(.settings, .ack), .nothing),
        (ServerFrames.frame(.ping, on: 0, ServerFrames.bytes(77, 8)), .ping(77)),
        (ServerFrames.frame(.ping, .ack, on: 0, ServerFrames.bytes(77, 8)), .nothing),
        (
            ServerFrames.frame(.goAway, on: 0, ServerFrames.bytes(1 << 31 | 3) + ServerFrames.bytes(11) + "bye".utf8),
            .goAway(lastStream: 3, code: 11, debug: ByteBuffer(string: "bye"))
        ),
        (ServerFrames.windowUpdate(1 << 31 | 9), .windowUpdate(stream: 0, increment: 9)),
        (ServerFrames.windowUpdate(9, on: 5), .windowUpdate(stream: 5, increment: 9)),
        (ByteBuffer(bytes: [0, 0, 1, 0x2a, 0xff, 0, 0, 0, 0, 1]), .nothing),
        (
            ServerFrames.frame(.data, on: 1, .init(repeating: 1, count: 16_384)),
            .data(stream: 1, bytes: ByteBuffer(repeating: 1, count: 16_384), endsStream: false, size: 16_384)
        ),
        (ServerFrames.accept(5), .headers(stream: 5, status: 200, endsStream: true)),
    ]

    @Test(
        "Every kind of frame is read, however the bytes are divided", arguments: [Int.max, 1, 2, 3, 7, 10, 100, 4096])
    func cut(pieces: Int) throws {
        let bytes = ServerFrames.joined(Self.conversation.map(\.bytes))
        #expect(try Self.events(bytes, pieces: pieces) == Self.conversation.map(\.event))
    }

    @Test("The last value of each setting counts, and the lowest of the header table as well; unknown ones are ignored")
    func settings() throws {
        let frame = ServerFrames.settings([
            (1, 100), (3, 5), (1, 0), (1, 50), (3, 6), (4, 7), (5, 20_000), (99, 1), (2, 0),
        ])
        guard case .settings(let settings) = try Self.events(frame).first else {
            Issue.record("no settings")
            return
        }
        #expect(settings.minHeaderTable == 0)
        #expect(settings.headerTable == 50)
        #expect(settings.maxStreams == 6)
        #expect(settings.streamWindow == 7)
        #expect(settings.frameSize == 20_000)
    }

    @Test("Headers that NIOHPACK compresses are read, with a table that fills and is emptied")
    func compressed() throws {
        var encoder = HPACKEncoder(allocator: ByteBufferAllocator())
        var frames: [ByteBuffer] = []
        for number in 0..<300 {
            if number == 200 { try encoder.setDynamicTableSize(64) }
            var block = ByteBuffer()
            try encoder.encode(
                headers: [":status": "\(200 + number)", "apns-id": "8c4f7a5e-0000-4000-8000-\(number)"], to: &block)
            frames.append(
                ServerFrames.frame(.headers, [.endHeaders, .endStream], on: 1, Array(block.readableBytesView)))
        }
        let events = try Self.events(ServerFrames.joined(frames), pieces: 1000)
        #expect(events == (0..<300).map { .headers(stream: 1, status: 200 + $0, endsStream: true) })
    }
}

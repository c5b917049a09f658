import Foundation
import NIOCore
import NIOEmbedded
import NIOHPACK
import NIOHTTP2
import PushWire
import Synchronization
import TestSupport
import Testing

@testable import PushSandbox

/// Tests the HTTP/2 side on a channel without sockets, where only the test advances the time.
@Suite("A connection to the HTTP/2 side")
struct SandboxHTTP2HandlerTests {
    /// A connection with a certificate, and the client at its other end.
    private final class Connection {
        let state: SharedState
        private let loop = EmbeddedEventLoop()
        private let server: EmbeddedChannel
        private let client: EmbeddedChannel
        private let frames = Frames()

        /// - Parameter negotiated: The protocol that the client agreed to in TLS.
        init(
            negotiated: String? = ListenerKind.http2Protocol,
            _ change: (inout SandboxConfiguration) -> Void = { _ in }
        ) throws {
            var configuration = SandboxConfiguration.forTests(directory: "/nonexistent")
            change(&configuration)
            state = SharedState(configuration)
            server = EmbeddedChannel(
                handler: SandboxHTTP2Handshake(
                    connection: 1, keys: .init(teamID: "", keys: [:]), configuration: configuration, state: state,
                    logger: .silent),
                loop: loop)
            client = EmbeddedChannel(handlers: [NIOHTTP2Handler(mode: .client), frames], loop: loop)
            for channel in [server, client] {
                try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
            }
            let certificate = ClientCertificate(topic: configuration.topic, isForDevelopment: true)
            server.pipeline.fireUserInboundEventTriggered(
                ClientIdentified(certificate: certificate, applicationProtocol: negotiated))
            if negotiated != nil { try transfer() }
        }

        /// Passes bytes to the server as if the client had sent them.
        func receive(_ bytes: some Collection<UInt8>) throws {
            try server.writeInbound(ByteBuffer(bytes: bytes))
        }

        /// Advances the time without passing the server's bytes to the client, which could not read a rejection.
        func pass(_ time: TimeAmount) {
            loop.advanceTime(by: time)
        }

        /// Returns the text that the server has written.
        func written() throws -> String {
            var text = ""
            while let bytes = try server.readOutbound(as: ByteBuffer.self) { text += String(buffer: bytes) }
            return text
        }

        func end() throws {
            _ = try server.finish()
        }

        var refusals: [RefusedConnection] { state.withLock { $0.stats.refusals } }

        /// Passes all bytes that either side has written to the other.
        func transfer() throws {
            var isDone = false
            while !isDone {
                isDone = true
                var sent = ByteBuffer()
                while var bytes = try client.readOutbound(as: ByteBuffer.self) { sent.writeBuffer(&bytes) }
                if sent.readableBytes > 0, server.isActive {
                    try server.writeInbound(sent)
                    isDone = false
                }
                while let bytes = try server.readOutbound(as: ByteBuffer.self) {
                    try client.writeInbound(bytes)
                    isDone = false
                }
            }
        }

        func advance(by time: TimeAmount) throws {
            loop.advanceTime(by: time)
            try transfer()
        }

        func fault(_ fault: ProviderFault) throws {
            _ = try state.withLock { try $0.faults.add(Fault(fault)) }
        }

        /// Sends notifications on these streams at once.
        func push(_ streams: HTTP2StreamID...) throws {
            for stream in streams {
                let headers: HPACKHeaders = [
                    ":method": "POST", ":scheme": "https", ":authority": "localhost",
                    ":path": "/3/device/" + HTTP2Client.token,
                ]
                client.write(HTTP2Frame(streamID: stream, payload: .headers(.init(headers: headers))), promise: nil)
                let body = HTTP2Frame.FramePayload.Data(data: .byteBuffer(ByteBuffer(string: "{}")), endStream: true)
                client.write(HTTP2Frame(streamID: stream, payload: .data(body)), promise: nil)
                // The library keeps an order only among frames that are flushed together, and chooses that order
                // itself.
                client.flush()
            }
            try transfer()
        }

        func ping() throws {
            let ping = HTTP2Frame(streamID: .rootStream, payload: .ping(HTTP2PingData(withInteger: 1), ack: false))
            try client.writeOutbound(ping)
            try transfer()
        }

        /// The streams with a response, in order.
        var answered: [HTTP2StreamID] { frames.answered }
        var pingsAnswered: Int { frames.pingsAnswered }
        var limits: [Int] { frames.limits }
        var goAways: [String] { frames.goAways }
        var isOpen: Bool { server.isActive }
        var recorded: [Int?] { state.withLock { $0.inbox.page().entries.map(\.stream) } }
    }

    private final class Frames: ChannelInboundHandler {
        typealias InboundIn = HTTP2Frame
        var answered: [HTTP2StreamID] = []
        var pingsAnswered = 0
        var limits: [Int] = []
        var goAways: [String] = []

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let frame = unwrapInboundIn(data)
            switch frame.payload {
            case .headers: answered.append(frame.streamID)
            case .ping(_, ack: true): pingsAnswered += 1
            case .settings(.settings(let settings)):
                limits += settings.filter { $0.parameter == .maxConcurrentStreams }.map(\.value)
            case .goAway(_, _, let text): goAways.append(text.map { String(buffer: $0) } ?? "")
            default: break
            }
        }
    }

    @Test("A preface is recognized in any pieces, and the bytes after it are the first frames")
    func dividedPreface() throws {
        let connection = try Connection(negotiated: nil)
        for byte in HTTP2Preface.bytes.dropLast() { try connection.receive([byte]) }
        #expect(try connection.written() == "")
        // The last byte of the preface, SETTINGS without a setting, and a PING.
        let ping: [UInt8] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
        try connection.receive([0x0A] + [0, 0, 0, 4, 0, 0, 0, 0, 0] + ping)
        let answer = Array(try connection.written().utf8)
        #expect(answer.suffix(17) == [0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
        #expect(connection.isOpen)
        #expect(connection.refusals == [])
    }

    @Test(
        "Other first bytes are refused at the first difference from the preface, and recorded",
        arguments: ["GET / HTTP/1.1\r\n", "PRI * HTTP/2.1", "\u{2}\u{0}", "PRI * HTTP/2.0\r\n\r\nSM\r\n\rX"])
    func otherBytes(text: String) throws {
        let connection = try Connection(negotiated: nil)
        try connection.receive(text.utf8)
        #expect(!connection.isOpen)
        #expect(connection.refusals.map(\.reason) == [.noPreface])
        let shown = String(text.utf8.map { (0x20..<0x7F).contains($0) ? Character(UnicodeScalar($0)) : "." })
        #expect(connection.refusals.first?.message.contains(shown) == true, "\(connection.refusals)")
        #expect(try connection.written().hasPrefix("HTTP/1.1 505"))
        // The server neither reads nor counts later bytes.
        try? connection.receive(text.utf8)
        #expect(connection.refusals.count == 1)
    }

    @Test("A client that neither negotiates HTTP/2 nor sends its preface in time is refused")
    func noPreface() throws {
        let connection = try Connection(negotiated: nil) { $0.handshakeTimeout = .seconds(10) }
        try connection.receive("PRI".utf8)
        connection.pass(.milliseconds(9_999))
        #expect(connection.isOpen)
        connection.pass(.milliseconds(1))
        #expect(!connection.isOpen)
        #expect(connection.refusals.map(\.reason) == [.noPreface])
    }

    @Test("A client that disconnects before its preface counts as refused once")
    func goneBeforePreface() throws {
        let connection = try Connection(negotiated: nil)
        try connection.receive("PRI".utf8)
        try connection.end()
        #expect(connection.refusals.map(\.reason) == [.noPreface])
    }

    @Test("A delayed notification is decided and gets its response after its delay; others overtake it")
    func delay() throws {
        let connection = try Connection()
        try connection.fault(.delay(150))
        try connection.push(1, 3)
        #expect(connection.answered == [3])
        try connection.advance(by: .milliseconds(149))
        #expect(connection.answered == [3])
        try connection.advance(by: .milliseconds(1))
        #expect(connection.answered == [3, 1])
        #expect(connection.recorded == [3, 1])
    }

    @Test("A late response is decided at once and written after its delay")
    func lateResponse() throws {
        let connection = try Connection()
        try connection.fault(.status(503, delay: 20))
        try connection.push(1, 3)
        #expect(connection.answered == [3])
        #expect(connection.recorded == [1, 3])
        try connection.advance(by: .milliseconds(19))
        #expect(connection.answered == [3])
        try connection.advance(by: .milliseconds(1))
        #expect(connection.answered == [3, 1])
    }

    @Test("A connection that stops reading responds to nothing, not even PING, and resumes when its time is over")
    func stopReading() throws {
        let connection = try Connection()
        try connection.fault(.stopReading(300))
        try connection.push(1, 3)
        try connection.ping()
        try connection.advance(by: .milliseconds(299))
        #expect(connection.answered == [])
        #expect(connection.pingsAnswered == 0)
        #expect(connection.recorded == [1])
        try connection.advance(by: .milliseconds(1))
        #expect(connection.answered == [1, 3])
        #expect(connection.pingsAnswered == 1)
    }

    @Test("A connection that stops reading for good does not resume by itself")
    func stopReadingForGood() throws {
        let connection = try Connection()
        try connection.fault(.stopReading(nil))
        try connection.push(1, 3)
        try connection.advance(by: .hours(24))
        #expect(connection.answered == [])
        #expect(connection.isOpen)
    }

    @Test("A connection is idle from its last read on, gets a GOAWAY and is closed")
    func idleTimeout() throws {
        let connection = try Connection { $0.http2IdleTimeout = .seconds(10) }
        try connection.advance(by: .seconds(6))
        try connection.push(1)
        try connection.advance(by: .milliseconds(9_999))
        #expect(connection.isOpen)
        #expect(connection.goAways == [])
        try connection.advance(by: .milliseconds(1))
        #expect(connection.goAways == [#"{"reason":"IdleTimeout"}"#])
        #expect(!connection.isOpen)
    }

    @Test("After GOAWAY the connection waits two seconds for the streams up to the announced last one")
    func linger() throws {
        let connection = try Connection()
        try connection.fault(.goAway(reason: nil, lastStream: 5, code: 0))
        try connection.push(1)
        #expect(connection.answered == [1])
        try connection.advance(by: .milliseconds(1999))
        #expect(connection.isOpen)
        try connection.advance(by: .milliseconds(1))
        #expect(!connection.isOpen)
    }

    @Test("The stream limit of a fault ends when its time is over")
    func streamLimit() throws {
        let connection = try Connection()
        try connection.fault(.limitStreams(3, milliseconds: 50))
        try connection.push(1)
        #expect(connection.limits == [1000, 3])
        try connection.advance(by: .milliseconds(49))
        #expect(connection.limits == [1000, 3])
        try connection.advance(by: .milliseconds(1))
        #expect(connection.limits == [1000, 3, 1000])
    }

    @Test("Notifications to one device above the limit per second are rejected until the next second")
    func deviceRate() throws {
        let now = Mutex(Date(timeIntervalSince1970: 1_800_000_000))
        let connection = try Connection {
            $0.deviceRate = 2
            $0.now = { now.withLock { $0 } }
        }
        func names() -> [String] { connection.state.withLock { $0.inbox.page().entries.map(\.answer.name) } }
        try connection.push(1, 3, 5)
        #expect(names() == ["accepted", "accepted", "TooManyRequests"])
        now.withLock { $0 += 1 }
        try connection.push(7)
        #expect(names().last == "accepted")
    }
}

import NIOCore
import Testing

@testable import HTTP2Wire

@Suite("The client side of an HTTP/2 connection")
struct HTTP2SessionTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    private func opened(_ adjust: (inout HTTP2Session.Limits) -> Void = { _ in }) throws -> HTTP2Session {
        var limits = HTTP2Session.Limits()
        adjust(&limits)
        var session = HTTP2Session(limits: limits)
        try give(ServerFrames.settings(), to: &session)
        _ = session.takeOutput()
        return session
    }

    private func give(
        _ bytes: ByteBuffer, to session: inout HTTP2Session, after: TimeAmount = .zero
    ) throws(HTTP2Failure) {
        session.feed(bytes, now: Self.start + after)
        while try session.next() != nil {}
    }

    private func taken(_ session: inout HTTP2Session) -> [ServerFrames.Frame] {
        session.takeOutput().map(ServerFrames.frames) ?? []
    }

    @Test("The session begins with the preface and SETTINGS, and acknowledges SETTINGS and PING")
    func begins() throws {
        var session = HTTP2Session()
        let output = session.takeOutput()
        let bytes = try #require(output)
        #expect(bytes.getString(at: 0, length: 24) == "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        #expect(ServerFrames.frames(bytes).map(\.type) == [.settings])
        try give(
            ServerFrames.joined([ServerFrames.settings(), ServerFrames.frame(.ping, on: 0, ServerFrames.bytes(42, 8))]),
            to: &session)
        let answers = taken(&session)
        #expect(answers.map(\.type) == [.settings, .ping])
        #expect(answers.allSatisfy { $0.flags == .ack })
        #expect(answers.last.map { Array($0.payload.readableBytesView) } == ServerFrames.bytes(42, 8))
        try give(ServerFrames.frame(.ping, .ack, on: 0, ServerFrames.bytes(42, 8)), to: &session)
        #expect(taken(&session).isEmpty)
    }

    @Test("The window grows by the bytes read, padding included, before the peer has to wait")
    func inboundWindow() throws {
        var session = try opened()
        try session.open(1, headers: [":method": "POST"], body: [])
        _ = session.takeOutput()
        let frame = ServerFrames.frame(.data, .padded, on: 1, [100] + [UInt8](repeating: 0, count: 9999))
        for _ in 0..<3 { try give(frame, to: &session) }
        #expect(taken(&session).isEmpty)
        for _ in 0..<100 { try give(frame, to: &session) }
        let updates = taken(&session)
        #expect(updates.count == 25)
        #expect(updates.allSatisfy { $0.type == .windowUpdate && $0.stream == 0 })
        #expect(updates.first.map { Array($0.payload.readableBytesView) } == ServerFrames.bytes(40_000))
    }

    static let floods: [ByteBuffer] = [
        ServerFrames.settings([(3, 1)]), ServerFrames.frame(.settings, .ack),
        ServerFrames.frame(.ping, on: 0, ServerFrames.bytes(1, 8)),
        ServerFrames.frame(.ping, .ack, on: 0, ServerFrames.bytes(1, 8)), ServerFrames.frame(.data, on: 1),
        ServerFrames.accept(1),
        ServerFrames.frame(.reset, on: 1, ServerFrames.bytes(8)),
        ServerFrames.frame(.priority, on: 1, ServerFrames.bytes(1, 5)),
        ServerFrames.windowUpdate(1, on: 1), ByteBuffer(bytes: [0, 0, 0, 0xee, 0, 0, 0, 0, 0]),
    ]

    @Test(
        "A flood of any frames ends the connection; as many in a longer time, or for more pushes, do not",
        arguments: floods)
    func flood(_ frame: ByteBuffer) throws {
        var session = try opened { $0.frames = 100 }
        try session.open(1, headers: [":method": "POST"], body: [])
        for second in 0..<10 {
            // The first interval also allows one SETTINGS at the beginning and eight frames because of the stream.
            let count = second == 0 ? 107 : 100
            let bytes = ServerFrames.joined(.init(repeating: frame, count: count))
            try give(bytes, to: &session, after: .seconds(Int64(30 * second)))
            session.noteSent(session.takeOutput() ?? ByteBuffer(), peerIsReading: true)
        }
        let failure = #expect(throws: HTTP2Failure.self) { try give(frame, to: &session, after: .seconds(290)) }
        #expect(failure?.code == .enhanceYourCalm)
    }

    @Test("A peer that causes acknowledgements and does not read them is an error", arguments: [true, false])
    func acknowledgements(peerIsReading: Bool) throws {
        var session = try opened { $0.acknowledgements = 10 }
        session.noteSent(ByteBuffer(), peerIsReading: true)
        let ping = ServerFrames.frame(.ping, on: 0, ServerFrames.bytes(1, 8))
        for _ in 0..<10 { try give(ping, to: &session) }
        let answers = session.takeOutput()
        session.noteSent(try #require(answers), peerIsReading: peerIsReading)
        if peerIsReading {
            try give(ping, to: &session)
        } else {
            #expect(throws: HTTP2Failure.self) { try give(ping, to: &session) }
        }
    }

    @Test("Late responses for closed streams are read, and change the table for the next")
    func late() throws {
        var session = try opened()
        for stream in [1, 3] { try session.open(stream, headers: [":method": "POST"], body: [1]) }
        session.reset(1, .cancel)
        // Enters `:status: 299` into the table. The next block refers to it.
        session.feed(
            ServerFrames.joined([
                ServerFrames.frame(.headers, .endHeaders, on: 1, [0x48, 3] + "299".utf8),
                ServerFrames.frame(.data, .endStream, on: 1, [1, 2]),
                ServerFrames.frame(.reset, on: 1, ServerFrames.bytes(0)),
                ServerFrames.frame(.headers, [.endHeaders, .endStream], on: 3, [0xbe]),
            ]), now: Self.start)
        var last: PeerEvent?
        while let event = try session.next() { last = event }
        #expect(last == .headers(stream: 3, status: 299, endsStream: true))
    }

    @Test("Random bytes give events or an error, and the output stays small", arguments: 0..<8)
    func fuzz(seed: Int) throws {
        var random = Seeded(state: UInt64(seed))
        var failures: Set<HTTP2Code> = []
        var events = 0
        let valid = FrameReaderTests.conversation.map(\.bytes).filter { $0.readableBytes < 1000 } + Self.floods
        for _ in 0..<500 {
            var session = try opened()
            for stream in [1, 3, 5] {
                try session.open(stream, headers: [":method": "POST"], body: .init(repeating: 7, count: 30_000))
            }
            let bytes = ServerFrames.mutilated(valid, wildly: seed == 0, using: &random)
            do {
                var rest = bytes[...]
                while !rest.isEmpty {
                    let piece = rest.prefix(.random(in: 1...100, using: &random))
                    rest = rest.dropFirst(piece.count)
                    session.feed(ByteBuffer(bytes: piece), now: Self.start)
                    while try session.next() != nil { events += 1 }
                }
            } catch {
                failures.insert(error.code)
                #expect(error.code != .internalError)
            }
            #expect(session.outputSize < 200_000)
        }
        #expect(events > 200)
        #expect(failures.isSuperset(of: [.protocolError, .frameSizeError, .compressionError]))
    }
}

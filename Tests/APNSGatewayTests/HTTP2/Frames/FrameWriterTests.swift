import ChatDomain
import NIOCore
import NIOEmbedded
import NIOHPACK
import NIOHTTP2
import Testing

@testable import APNSGateway
@testable import GatewayPool
@testable import HTTP2Wire

@Suite("Writing a client's frames")
struct FrameWriterTests {
    private func taken(_ writer: inout FrameWriter) -> [ServerFrames.Frame] {
        guard let bytes = writer.take() else { return [] }
        defer { writer.reuse(bytes) }
        return ServerFrames.frames(bytes)
    }

    private func apply(_ settings: [(id: Int, value: Int)], to writer: inout FrameWriter) throws {
        var payload = ByteBuffer(
            bytes: settings.flatMap { ServerFrames.bytes($0.id, 2) + ServerFrames.bytes($0.value) })
        try writer.apply(PeerSettings(reading: &payload))
    }

    /// Returns the sizes of the DATA frames on a stream.
    private func sizes(_ frames: [ServerFrames.Frame], on stream: Int = 1) -> [Int] {
        frames.filter { $0.type == .data && $0.stream == stream }.map { $0.payload.readableBytes }
    }

    @Test("NIOHTTP2 reads our requests, bodies, and the frames that keep a connection alive")
    func independent() throws {
        let channel = EmbeddedChannel()
        try channel.pipeline.syncOperations.addHandler(NIOHTTP2Handler(mode: .server))
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        var session = HTTP2Session()
        let template = HTTP2RequestTemplate(host: "host", bundleID: "com.example.app", token: "the.token")
        // Exchange the server's SETTINGS, and later its acknowledgement.
        func exchange() throws {
            while let bytes = session.takeOutput() { try channel.writeInbound(bytes) }
            while let bytes = try channel.readOutbound(as: ByteBuffer.self) { session.feed(bytes, now: .now()) }
            while try session.next() != nil {}
            while let bytes = session.takeOutput() { try channel.writeInbound(bytes) }
        }
        try exchange()
        let pushes = try (UInt32(1)...50).map { try HTTP2GatewayFixture.push($0) }
        for (number, push) in pushes.enumerated() {
            let request = template.request(for: push)
            try session.open(2 * number + 1, headers: request.headers, body: request.body)
        }
        session.reset(1, .cancel)
        session.ping()
        try exchange()
        var paths: [String] = []
        var bodies: [[UInt8]] = []
        var others: [String] = []
        while let frame = try channel.readInbound(as: HTTP2Frame.self) {
            switch frame.payload {
            case .headers(let content):
                paths.append(content.headers.first(name: ":path") ?? "")
                #expect(content.headers == template.request(for: pushes[paths.count - 1]).headers)
            case .data(let content):
                #expect(content.endStream)
                guard case .byteBuffer(let bytes) = content.data else { continue }
                bodies.append(Array(bytes.readableBytesView))
            case .rstStream(.cancel): others.append("reset \(Int(frame.streamID))")
            case .ping(_, ack: false): others.append("ping")
            case .settings(.settings(let settings)):
                others.append("settings \(settings.map(\.value))")
            case .settings(.ack): others.append("ack")
            default: others.append("\(frame.payload)")
            }
        }
        #expect(paths == pushes.map { "/3/device/\($0.address)" })
        #expect(bodies == pushes.map(\.payload))
        #expect(others == ["settings [0, 16384]", "ack", "reset 1", "ping"])
        _ = try? channel.finish()
    }

    @Test("A body is sent as far as the windows allow, and continues when they grow", arguments: [0, 1, 10, 99])
    func streamWindow(window: Int) throws {
        var writer = FrameWriter()
        try apply([(4, window)], to: &writer)
        try writer.open(1, headers: [":method": "POST"], body: .init(repeating: 7, count: 100))
        try writer.open(3, headers: [":method": "POST"], body: [])
        #expect(writer.hasUnsentBody(1))
        #expect(!writer.hasUnsentBody(3))
        let first = taken(&writer)
        #expect(sizes(first) == (window > 0 ? [window] : []))
        #expect(sizes(first, on: 3) == [0])
        try writer.received(increment: 100 - window, on: 1)
        let second = taken(&writer)
        #expect(sizes(second) == [100 - window])
        #expect(second.last?.flags == .endStream)
        #expect(!writer.hasUnsentBody(1))
    }

    @Test("A lowered initial window makes a body wait until the peer has compensated for it")
    func negativeWindow() throws {
        var writer = FrameWriter()
        try apply([(4, 50)], to: &writer)
        try writer.open(1, headers: [":method": "POST"], body: .init(repeating: 7, count: 100))
        try apply([(4, 10)], to: &writer)
        try writer.received(increment: 40, on: 1)
        #expect(sizes(taken(&writer)) == [50])
        try writer.received(increment: 1, on: 1)
        #expect(sizes(taken(&writer)) == [1])
        try apply([(4, 59)], to: &writer)
        #expect(sizes(taken(&writer)) == [49])
        #expect(!writer.hasUnsentBody(1))
    }

    @Test("The window of the connection counts all bodies, and the oldest is finished first")
    func connectionWindow() throws {
        var writer = FrameWriter()
        for stream in [1, 3, 5] {
            try writer.open(stream, headers: [":method": "POST"], body: .init(repeating: 7, count: 30_000))
        }
        try writer.open(7, headers: [":method": "POST"], body: [1])
        #expect(writer.window == 0)
        let first = taken(&writer)
        #expect(sizes(first) == [16_384, 13_616])
        #expect(sizes(first, on: 5) == [5535])
        #expect(sizes(first, on: 7) == [])
        try writer.received(increment: 24_465, on: 0)
        #expect(taken(&writer).map(\.stream) == [5, 5])
        #expect(writer.window == 0)
        try writer.received(increment: 1000, on: 0)
        #expect(taken(&writer).map(\.stream) == [7])
        #expect(writer.window == 999)
    }

    @Test("Windows beyond 2^31 - 1 are an error, except on a stream whose body has been written")
    func overflow() throws {
        let all = PeerSettings.maxWindow
        var writer = FrameWriter()
        try writer.received(increment: all - 65_535, on: 0)
        #expect(throws: HTTP2Failure.self) { try writer.received(increment: 1, on: 0) }
        writer = FrameWriter()
        try writer.open(1, headers: [":method": "POST"], body: [1])
        try writer.received(increment: all, on: 1)
        try writer.open(3, headers: [":method": "POST"], body: .init(repeating: 7, count: 70_000))
        try apply([(4, 65_545)], to: &writer)
        #expect(writer.hasUnsentBody(3))
        var other = writer
        #expect(throws: HTTP2Failure.self) { try other.received(increment: all - 8, on: 3) }
        try writer.received(increment: all - 20, on: 3)
        #expect(throws: HTTP2Failure.self) { try apply([(4, 65_600)], to: &writer) }
    }

    @Test("Nothing is sent on a stream that was reset or that GOAWAY excludes")
    func forgotten() throws {
        var writer = FrameWriter()
        try apply([(4, 1)], to: &writer)
        for stream in [1, 3, 5] { try writer.open(stream, headers: [":method": "POST"], body: [1, 2, 3]) }
        writer.reset(1, .cancel)
        writer.drop(above: 3)
        _ = writer.take()
        try apply([(4, 10)], to: &writer)
        #expect(taken(&writer).map(\.stream) == [3])
    }

    @Test("Headers longer than a frame are split, and larger frames are used if the peer accepts them")
    func longHeaders() throws {
        let headers: HPACKHeaders = ["long": String(repeating: "~", count: 36_000), "short": "x"]
        for (size, types) in [(16_384, [FrameType.headers, .continuation, .continuation]), (40_000, [.headers])] {
            var writer = FrameWriter()
            try apply([(5, size)], to: &writer)
            try writer.open(1, headers: ["a": "b"], body: [1])
            _ = writer.take()
            try writer.open(3, headers: headers, body: [1])
            let frames = taken(&writer)
            #expect(frames.dropLast().map(\.type) == types)
            #expect(frames.dropLast().map { $0.flags == .endHeaders } == types.indices.map { $0 == types.count - 1 })
            #expect(frames.allSatisfy { $0.stream == 3 && $0.payload.readableBytes <= size })
            var block = ServerFrames.joined(frames.dropLast().map(\.payload))
            var decoder = HPACKDecoder(
                allocator: ByteBufferAllocator(), maxDynamicTableSize: 4096, maxHeaderListSize: 100_000)
            #expect(try decoder.decodeHeaders(from: &block) == headers)
        }
    }

    @Test(
        "The header table is never larger than the peer's, and every change is announced",
        arguments: [0, 100, 4096, 1 << 30])
    func headerTable(size: Int) throws {
        var writer = FrameWriter()
        var decoder = HPACKDecoder(allocator: ByteBufferAllocator(), maxDynamicTableSize: 4096)
        let template = HTTP2RequestTemplate(host: "host", bundleID: "com.example.app", token: "the.token")
        for identifier in UInt32(1)...6 {
            if identifier == 3 { try apply([(1, size)], to: &writer) }
            if identifier == 5 { try apply([(1, 0), (1, 4096)], to: &writer) }
            let request = template.request(for: try HTTP2GatewayFixture.push(identifier))
            try writer.open(Int(identifier) * 2 - 1, headers: request.headers, body: request.body)
            let first = taken(&writer).first
            var block = try #require(first).payload
            if identifier == 5, size > 0 { #expect(block.readableBytesView.first == 0x20) }
            #expect(try decoder.decodeHeaders(from: &block) == request.headers)
            if identifier == 3 || identifier == 4 { #expect(decoder.allowedDynamicTableLength <= size) }
        }
    }
}

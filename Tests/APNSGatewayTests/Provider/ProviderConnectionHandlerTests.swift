import APNSWire
import ChatDomain
import Logging
import NIOCore
import NIOEmbedded
import Testing

@testable import APNSGateway

@Suite("What happens on a connection of the provider API")
struct ProviderConnectionHandlerTests {
    private let mailbox = VerdictMailbox()

    private func connection(streams: Int = 100) throws -> (EmbeddedChannel, ProviderConnectionHandler) {
        let loop = EmbeddedEventLoop()
        let handler = ProviderConnectionHandler(
            epoch: ConnectionEpoch(1),
            state: ProviderConnectionState(
                limits: ProviderLimits(), judge: AnswerJudge(host: "host", bundleID: nil), isProved: true,
                clock: ProviderConnectionClock(now: loop.now)),
            retirement: loop.makePromise(), mailbox: mailbox, temper: ServiceTemper(), clock: Timestamp.now,
            listeners: .init(changed: {}, credentialsRefused: { _ in }), logger: ProviderRig.silent)
        let channel = EmbeddedChannel(handler: handler, loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        try channel.writeInbound(Wire.settings([(3, streams)]))
        return (channel, handler)
    }

    private func answer(_ channel: EmbeddedChannel, _ streams: some Sequence<Int>) throws {
        var bytes = ByteBuffer()
        for stream in streams { bytes.writeImmutableBuffer(Wire.accept(stream)) }
        bytes.writeImmutableBuffer(Wire.windowUpdate(100_000))
        try channel.writeInbound(bytes)
    }

    /// What was written since the last look.
    private func written(_ channel: EmbeddedChannel) throws -> [Wire.Frame] {
        var bytes = ByteBuffer()
        while let piece = try channel.readOutbound(as: ByteBuffer.self) { bytes.writeImmutableBuffer(piece) }
        return Wire.frames(bytes)
    }

    /// The streams that were opened since the last look.
    private func opened(_ channel: EmbeddedChannel) throws -> [Int] {
        try written(channel).filter { $0.type == .headers }.map(\.stream)
    }

    @Test("20,000 pushes have one verdict each, one range for each time that something was read")
    func many() async throws {
        let (channel, handler) = try connection(streams: 1000)
        let template = ProviderRequestTemplate(host: "host", bundleID: "com.example.app", token: nil)
        var next: UInt32 = 1
        var seen = 0
        while seen < 20_000 {
            let slot = handler.desk.slot(on: ConnectionEpoch(1))
            if let slot, next <= 20_000 {
                #expect(slot.firstIdentifier == next)
                let last = min(20_000, next + UInt32(slot.room) - 1)
                handler.desk.noteLeased(through: last, isProbe: false)
                handler.write(try (next...last).map { template.request(for: try ProviderRig.push($0)) })
                next = last + 1
            }
            let streams = try opened(channel)
            #expect(streams.count <= 1000)
            seen += streams.count
            try answer(channel, streams.reversed())
        }
        mailbox.close()
        let verdicts = await mailbox.take() ?? []
        #expect(verdicts.count < 50)
        #expect(verdicts.allSatisfy { $0.outcome == .accepted })
        #expect(verdicts.reduce(0) { $0 + $1.identifiers.count } == 20_000)
        #expect(Set(verdicts.flatMap { Array($0.identifiers) }).count == 20_000)
        _ = try? channel.finish()
    }

    @Test("An exhausted window stops what is taken, and an update lets it go on")
    func window() throws {
        let (channel, handler) = try connection()
        let template = ProviderRequestTemplate(host: "host", bundleID: nil, token: nil)
        let body = [UInt8](repeating: 0x20, count: 5000)
        let requests = try (UInt32(1)...20).map {
            let push = try ProviderRig.push($0)
            return template.request(for: Push(entry: 1, identifier: $0, address: push.address, payload: body))
        }
        handler.desk.noteLeased(through: 20, isProbe: false)
        handler.write(requests)
        // 13 bodies and a part of the next.
        #expect(try opened(channel) == Array(stride(from: 1, through: 27, by: 2)))
        try channel.writeInbound(Wire.windowUpdate(20_000))
        let more = try written(channel)
        #expect(more.filter { $0.type == .data }.map(\.stream) == [27, 29, 31, 33, 35])
        #expect(more.first?.payload.readableBytes == 14 * 5000 - 65_535)
        _ = try? channel.finish()
    }

    @Test("What breaks the rules ends the connection with a GOAWAY that says why, and what is open is in doubt")
    func brokenRules() async throws {
        let (channel, handler) = try connection()
        let template = ProviderRequestTemplate(host: "host", bundleID: nil, token: nil)
        handler.desk.noteLeased(through: 1, isProbe: false)
        handler.write([template.request(for: try ProviderRig.push(1))])
        #expect(try opened(channel) == [1])
        try channel.writeInbound(Wire.frame(.data, on: 3))
        let goodbye = try #require(try written(channel).last)
        #expect(goodbye.type == .goAway)
        #expect(goodbye.payload.getInteger(at: goodbye.payload.readerIndex + 4, as: UInt32.self) == 1)
        #expect(!channel.isActive)
        mailbox.close()
        #expect(await mailbox.take()?.map(\.outcome) == [.unanswered(reason: "ConnectionLost")])
        _ = try? channel.finish()
    }

    @Test("An answer before the request is whole counts, and the stream is reset")
    func early() async throws {
        let (channel, handler) = try connection()
        try channel.writeInbound(Wire.settings([(4, 2)]))
        let template = ProviderRequestTemplate(host: "host", bundleID: nil, token: nil)
        handler.desk.noteLeased(through: 1, isProbe: false)
        handler.write([template.request(for: try ProviderRig.push(1))])
        #expect(try written(channel).last?.flags == [])
        try answer(channel, [1])
        #expect(try written(channel).last?.type == .reset)
        #expect(handler.state.isEmpty)
        mailbox.close()
        #expect(await mailbox.take()?.map(\.outcome) == [.accepted])
        _ = try? channel.finish()
    }

    @Test("Whatever the gateway sends, each push has one verdict", arguments: 0..<4)
    func anything(seed: Int) async throws {
        var random = Seeded(state: UInt64(seed))
        let template = ProviderRequestTemplate(host: "host", bundleID: nil, token: nil)
        let frames = FrameReaderTests.conversation.map(\.bytes).filter { $0.readableBytes < 1000 }
        var rounds = 0
        for _ in 0..<100 {
            let (channel, handler) = try connection(streams: 3)
            handler.desk.noteLeased(through: 6, isProbe: false)
            handler.write(try (UInt32(1)...6).map { template.request(for: try ProviderRig.push($0)) })
            while channel.isActive, rounds % 5 > 0 || Bool.random(using: &random) {
                let bytes = Wire.mutilated(frames, using: &random)
                try channel.writeInbound(ByteBuffer(bytes: bytes))
                rounds += 1
            }
            _ = try? channel.finish()
        }
        mailbox.close()
        let verdicts = await mailbox.take() ?? []
        #expect(verdicts.reduce(0) { $0 + $1.identifiers.count } == 600)
        for number in UInt32(1)...6 {
            #expect(verdicts.count { $0.identifiers.contains(number) } == 100)
        }
        #expect(rounds > 100)
        #expect(Set(verdicts.map { "\($0.outcome)".prefix(6) }).count >= 3)
    }

    @Test("Without a bundle id no topic is sent; collapse ids, priorities and expirations are what they should be")
    func requests() throws {
        let template = ProviderRequestTemplate(host: "host", bundleID: nil, token: nil)
        let base = try ProviderRig.push(2)
        func headers(_ type: String, priority: UInt8? = nil, collapseID: String? = nil) -> [String?] {
            let push = Push(
                entry: 1, identifier: 2, address: base.address, payload: [], expiration: 0, priority: priority,
                id: "the-id", type: type, collapseID: collapseID)
            let headers = template.request(for: push).headers
            return ["apns-topic", "apns-priority", "apns-expiration", "apns-collapse-id"].map {
                headers.first(name: $0)
            }
        }
        #expect(headers("alert") == [nil, nil, "0", "the-id"])
        #expect(headers("alert", priority: 10, collapseID: "own") == [nil, "10", "0", "own"])
        #expect(headers("background") == [nil, "5", "0", nil])
    }
}

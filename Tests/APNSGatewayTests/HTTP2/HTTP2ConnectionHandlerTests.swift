import ChatDomain
import Logging
import NIOCore
import NIOEmbedded
import NIOSSL
import NIOTLS
import PushWire
import TestSupport
import Testing

@testable import APNSGateway
@testable import GatewayPool
@testable import HTTP2Wire

@Suite("The handler of an HTTP/2 connection")
struct HTTP2ConnectionHandlerTests {
    private let buffer = ReportBuffer()

    /// - Parameters:
    ///   - streams: The limit that the gateway sends. `nil` if it has not sent anything.
    ///   - tokenEnd: The time after which the provider token is too old.
    private func connection(
        streams: Int? = 100, tokenEnd: TimeAmount? = nil, logger: Logger = HTTP2GatewayFixture.silent
    ) throws -> (EmbeddedChannel, HTTP2ClientHandler<HTTP2Pushes<APNSClient>>) {
        let loop = EmbeddedEventLoop()
        let client = APNSClient(host: "host", bundleID: nil, token: nil)
        let pushes = HTTP2Pushes(
            connectionID: ConnectionID(1), client: client, retirement: loop.makePromise(), reports: buffer,
            breaker: CircuitBreaker(), now: Timestamp.now, clock: MonotonicClock(), changed: {}, logger: logger)
        let state = HTTP2ConnectionState(
            limits: HTTP2Limits(), isConfirmed: true, tokenEnd: tokenEnd.map { loop.now + $0 }, now: loop.now,
            interpret: client.answer)
        let handler = HTTP2ClientHandler(state, owner: pushes)
        return (try channel(handler, streams: streams, loop: loop), handler)
    }

    /// Returns a channel in which TLS is up.
    private func channel(
        _ handler: HTTP2ClientHandler<some HTTP2Owner>, streams: Int?, loop: EmbeddedEventLoop
    ) throws -> EmbeddedChannel {
        let channel = EmbeddedChannel(handler: handler, loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        channel.pipeline.fireUserInboundEventTriggered(TLSUserEvent.handshakeCompleted(negotiatedProtocol: "h2"))
        if let streams { try channel.writeInbound(ServerFrames.settings([(3, streams)])) }
        return channel
    }

    /// Writes pushes without a bundle id to the connection.
    private func write(_ handler: HTTP2ClientHandler<HTTP2Pushes<APNSClient>>, _ identifiers: ClosedRange<UInt32>)
        throws
    {
        let template = HTTP2RequestTemplate(host: "host", bundleID: nil, token: nil)
        handler.owner.capacity.noteLeased(through: identifiers.upperBound, isProbe: false)
        let requests = try identifiers.map { template.request(for: try HTTP2GatewayFixture.push($0)) }
        handler.enqueue(requests)
    }

    /// Returns the outcomes of each push so far. No report may follow.
    private func outcomes() async -> [UInt32: [Outcome]] {
        buffer.close()
        var outcomes: [UInt32: [Outcome]] = [:]
        for report in await buffer.take() ?? [] {
            for identifier in report.identifiers { outcomes[identifier, default: []].append(report.outcome) }
        }
        return outcomes
    }

    /// A gateway that interprets responses itself, as the gateway to browsers does, and collects the results.
    private final class Collector: HTTP2Owner {
        var results: [UInt32: Int] = [:]
        var kinds: Set<String> = []

        static func state(now: NIODeadline) -> HTTP2ConnectionState {
            var limits = HTTP2Limits()
            (limits.acceptedStatus, limits.watchesPeer) = (nil, false)
            return HTTP2ConnectionState(limits: limits, isConfirmed: true, now: now) { _ in HTTP2Answer(nil, .device) }
        }

        func willOpen(_ state: inout HTTP2ConnectionState) -> Timestamp { .now() }
        func noteOpened(_ request: HTTP2Request) {}
        func noteSettings(_ settings: PeerSettings) {}
        func noteReset(code: UInt32) {}
        func noteGoAway(code: UInt32, debugData: ByteBuffer) -> String { "" }
        func ended(_ end: HTTP2End, hasBegun: Bool, hasSettings: Bool) {}

        func deliver(_ state: inout HTTP2ConnectionState, now: NIODeadline) {
            let responses = state.takeResponses()
            for (identifier, outcome) in state.takeOutcomes() {
                note(identifier, responses[identifier].map { "\($0.status)" } ?? "\(outcome)")
            }
        }

        private func note(_ identifier: UInt32, _ kind: String) {
            results[identifier, default: 0] += 1
            kinds.insert(kind)
        }
    }

    private final class Retirement {
        var hasCome = false
    }

    private func retirement(of handler: HTTP2ClientHandler<HTTP2Pushes<APNSClient>>) -> Retirement {
        let retirement = Retirement()
        handler.owner.retirement.futureResult.assumeIsolated().whenSuccess { retirement.hasCome = true }
        return retirement
    }

    /// Advances the time.
    /// - Parameter isAlive: Whether the peer sends bytes each second.
    private func pass(_ seconds: Int, on channel: EmbeddedChannel, isAlive: Bool = true) throws {
        for _ in 0..<seconds {
            channel.embeddedEventLoop.advanceTime(by: .seconds(1))
            if isAlive, channel.isActive { try channel.writeInbound(ServerFrames.windowUpdate(1)) }
        }
    }

    private func answer(_ channel: EmbeddedChannel, _ streams: some Sequence<Int>) throws {
        var bytes = ByteBuffer()
        for stream in streams { bytes.writeImmutableBuffer(ServerFrames.accept(stream)) }
        bytes.writeImmutableBuffer(ServerFrames.windowUpdate(100_000))
        try channel.writeInbound(bytes)
    }

    /// Returns the frames that were written since the last call.
    private func written(_ channel: EmbeddedChannel) throws -> [ServerFrames.Frame] {
        var bytes = ByteBuffer()
        while let piece = try channel.readOutbound(as: ByteBuffer.self) { bytes.writeImmutableBuffer(piece) }
        return ServerFrames.frames(bytes)
    }

    /// Returns the streams that were opened since the last call.
    private func opened(_ channel: EmbeddedChannel) throws -> [Int] {
        try written(channel).filter { $0.type == .headers }.map(\.stream)
    }

    @Test(
        "The log does not call an end without notice a failed handshake, if the gateway has spoken before",
        arguments: [
            (100, "it closed the connection without notice"), (nil, "it closed the connection before TLS was up"),
        ] as [(Int?, String)])
    func endWithoutNotice(streams: Int?, text: String) throws {
        let log = LogRecorder()
        let (channel, _) = try connection(streams: streams, logger: log.logger)
        channel.pipeline.fireErrorCaught(NIOSSLError.uncleanShutdown)
        #expect(log.lines.contains { $0.contains("connection failed") && $0.contains("error=\(text)") }, "\(log.lines)")
    }

    @Test("A storm of GOAWAY is logged once")
    func storm() throws {
        let log = LogRecorder()
        let (channel, handler) = try connection(logger: log.logger)
        // While a push is in flight, the connection stays open.
        try write(handler, 1...1)
        for _ in 0..<100 {
            try channel.writeInbound(
                ServerFrames.frame(.goAway, on: 0, ServerFrames.bytes(1) + ServerFrames.bytes(0)))
        }
        #expect(channel.isActive)
        #expect(log.lines.filter { $0.hasPrefix("info received GOAWAY") }.count == 1)
        _ = try? channel.finish()
    }

    @Test("5,000 pushes get one report each, as one range per read")
    func many() async throws {
        let (channel, handler) = try connection(streams: 1000)
        let template = HTTP2RequestTemplate(host: "host", bundleID: "com.example.app", token: nil)
        var next: UInt32 = 1
        var seen = 0
        while seen < 5_000 {
            let slot = handler.owner.capacity.slot(on: ConnectionID(1))
            if let slot, next <= 5_000 {
                #expect(slot.firstIdentifier == next)
                let last = min(5_000, next + UInt32(slot.capacity) - 1)
                handler.owner.capacity.noteLeased(through: last, isProbe: false)
                let requests = try (next...last).map { template.request(for: try HTTP2GatewayFixture.push($0)) }
                handler.enqueue(requests)
                next = last + 1
            }
            let streams = try opened(channel)
            #expect(streams.count <= 1000)
            seen += streams.count
            try answer(channel, streams.reversed())
        }
        buffer.close()
        let reports = await buffer.take() ?? []
        #expect(reports.count < 15)
        #expect(reports.allSatisfy { $0.outcome == .accepted })
        #expect(reports.reduce(0) { $0 + $1.identifiers.count } == 5_000)
        #expect(Set(reports.flatMap { Array($0.identifiers) }).count == 5_000)
        _ = try? channel.finish()
    }

    @Test("An exhausted window stops the connection from opening streams, and an update resumes it")
    func window() throws {
        let (channel, handler) = try connection()
        let template = HTTP2RequestTemplate(host: "host", bundleID: nil, token: nil)
        let body = [UInt8](repeating: 0x20, count: 5000)
        let requests = try (UInt32(1)...20).map {
            let push = try HTTP2GatewayFixture.push($0)
            return template.request(for: Push(id: 1, identifier: $0, address: push.address, payload: body))
        }
        handler.owner.capacity.noteLeased(through: 20, isProbe: false)
        handler.enqueue(requests)
        // The window holds 13 bodies and a part of the next.
        #expect(try opened(channel) == Array(stride(from: 1, through: 27, by: 2)))
        try channel.writeInbound(ServerFrames.windowUpdate(20_000))
        let more = try written(channel)
        #expect(more.filter { $0.type == .data }.map(\.stream) == [27, 29, 31, 33, 35])
        #expect(more.first?.payload.readableBytes == 14 * 5000 - 65_535)
        _ = try? channel.finish()
    }

    @Test("A protocol violation ends the connection with a GOAWAY and its reason, and open pushes are in doubt")
    func brokenRules() async throws {
        let (channel, handler) = try connection()
        try write(handler, 1...1)
        #expect(try opened(channel) == [1])
        try channel.writeInbound(ServerFrames.frame(.data, on: 3))
        let goAway = try #require(try written(channel).last)
        #expect(goAway.type == .goAway)
        #expect(goAway.payload.getInteger(at: goAway.payload.readerIndex + 4, as: UInt32.self) == 1)
        #expect(!channel.isActive)
        #expect(await outcomes() == [1: [.unanswered(reason: "ConnectionLost")]])
        _ = try? channel.finish()
    }

    @Test("A response before the request is complete counts, and the stream is reset")
    func early() async throws {
        let (channel, handler) = try connection()
        try channel.writeInbound(ServerFrames.settings([(4, 2)]))
        try write(handler, 1...1)
        #expect(try written(channel).last?.flags == [])
        try answer(channel, [1])
        #expect(try written(channel).last?.type == .reset)
        #expect(handler.owner.capacity.slot(on: ConnectionID(1))?.isFresh == true)
        #expect(await outcomes() == [1: [.accepted]])
        _ = try? channel.finish()
    }

    // MARK: Time

    @Test(
        "A push without a response in time is in doubt and its stream reset; the connection continues with the others")
    func deadline() async throws {
        let (channel, handler) = try connection()
        try write(handler, 1...2)
        try pass(10, on: channel)
        try answer(channel, [3])
        _ = try written(channel)
        try pass(19, on: channel)
        #expect(try written(channel).isEmpty)
        try pass(3, on: channel)
        #expect(try written(channel).map(\.type) == [.reset])
        #expect(channel.isActive)
        #expect(handler.owner.capacity.slot(on: ConnectionID(1))?.isFresh == true)
        #expect(await outcomes() == [1: [.unanswered(reason: "NoResponse")], 2: [.accepted]])
        _ = try? channel.finish()
    }

    @Test("A late stream is reset before another one takes its place, so that the peer's limit is never exceeded")
    func lateStream() throws {
        func check<Owner>(_ channel: EmbeddedChannel, _ handler: HTTP2ClientHandler<Owner>) throws {
            let template = HTTP2RequestTemplate(host: "host", bundleID: nil, token: nil)
            let requests = try (UInt32(1)...4).map { template.request(for: try HTTP2GatewayFixture.push($0)) }
            handler.enqueue([requests[0]])
            try pass(10, on: channel)
            handler.enqueue(Array(requests[1...]))
            try answer(channel, [3])
            #expect(try opened(channel) == [1, 3, 5])
            try pass(21, on: channel)
            #expect(
                try written(channel).filter { $0.type != .data }.map { "\($0.type) \($0.stream)" } == [
                    "reset 1", "headers 7",
                ])
            _ = try? channel.finish()
        }
        let (channel, handler) = try connection(streams: 2)
        try check(channel, handler)
        let loop = EmbeddedEventLoop()
        let other = HTTP2ClientHandler(Collector.state(now: loop.now), owner: Collector())
        try check(try self.channel(other, streams: 2, loop: loop), other)
    }

    @Test("The connection to a live peer that responds to no push ends, and waiting pushes are released")
    func unresponsive() async throws {
        let (channel, handler) = try connection(streams: 2)
        let retirement = retirement(of: handler)
        try write(handler, 1...3)
        try pass(29, on: channel)
        #expect(!retirement.hasCome)
        try pass(3, on: channel)
        #expect(retirement.hasCome)
        #expect(!channel.isActive)
        #expect(handler.result == .nothing)
        let doubtful = [Outcome.unanswered(reason: "NoResponse")]
        #expect(await outcomes() == [1: doubtful, 2: doubtful, 3: [.notProcessed]])
    }

    @Test("PING detects a dead peer, and open pushes are in doubt")
    func gone() async throws {
        let (channel, handler) = try connection()
        try write(handler, 1...1)
        _ = try written(channel)
        try pass(6, on: channel, isAlive: false)
        #expect(try written(channel).map(\.type) == [.ping])
        #expect(channel.isActive)
        try pass(5, on: channel, isAlive: false)
        #expect(!channel.isActive)
        #expect(await outcomes() == [1: [.unanswered(reason: "ConnectionLost")]])
    }

    @Test("An idle connection sends a PING after a minute, and stays open if the peer acknowledges it")
    func idlePing() throws {
        let (channel, handler) = try connection()
        _ = try written(channel)
        try pass(59, on: channel, isAlive: false)
        #expect(try written(channel).isEmpty)
        try pass(2, on: channel, isAlive: false)
        #expect(try written(channel).map(\.type) == [.ping])
        try channel.writeInbound(ServerFrames.frame(.ping, .ack, on: 0, ServerFrames.bytes(0, 8)))
        try pass(30, on: channel, isAlive: false)
        #expect(channel.isActive)
        #expect(handler.owner.capacity.slot(on: ConnectionID(1)) != nil)
        _ = try? channel.finish()
    }

    @Test("A drain releases waiting pushes, waits eight seconds for responses, and reports every push")
    func drain() async throws {
        let (channel, handler) = try connection(streams: 4)
        try write(handler, 1...8)
        handler.drain()
        try answer(channel, [3, 5, 7])
        try pass(7, on: channel)
        #expect(channel.isActive)
        #expect(handler.owner.capacity.slot(on: ConnectionID(1)) == nil)
        try pass(2, on: channel)
        #expect(!channel.isActive)
        var expected = Dictionary(uniqueKeysWithValues: (UInt32(5)...8).map { ($0, [Outcome.notProcessed]) })
        for identifier in UInt32(2)...4 { expected[identifier] = [.accepted] }
        expected[1] = [.unanswered(reason: "NoResponse")]
        #expect(await outcomes() == expected)
    }

    @Test("A connection whose provider token is too old waits for its open responses, and closes")
    func tokenAge() async throws {
        let (channel, handler) = try connection(tokenEnd: .seconds(10))
        try write(handler, 1...1)
        try pass(11, on: channel)
        #expect(handler.owner.capacity.slot(on: ConnectionID(1)) == nil)
        #expect(channel.isActive)
        try answer(channel, [1])
        #expect(!channel.isActive)
        #expect(await outcomes() == [1: [.accepted]])
    }

    @Test("Whatever the gateway sends, each push has one report", arguments: 0..<4)
    func anything(seed: Int) async throws {
        var random = Seeded(state: UInt64(seed))
        let frames = FrameReaderTests.conversation.map(\.bytes).filter { $0.readableBytes < 1000 }
        var rounds = 0
        for _ in 0..<100 {
            let (channel, handler) = try connection(streams: 3)
            try write(handler, 1...6)
            while channel.isActive, rounds % 5 > 0 || Bool.random(using: &random) {
                let bytes = ServerFrames.mutilated(frames, using: &random)
                try channel.writeInbound(ByteBuffer(bytes: bytes))
                rounds += 1
            }
            _ = try? channel.finish()
        }
        buffer.close()
        let reports = await buffer.take() ?? []
        #expect(reports.reduce(0) { $0 + $1.identifiers.count } == 600)
        for number in UInt32(1)...6 {
            #expect(reports.count { $0.identifiers.contains(number) } == 100)
        }
        #expect(rounds > 100)
        #expect(Set(reports.map { "\($0.outcome)".prefix(6) }).count >= 3)
    }

    @Test("Each push has one result, also for a gateway that interprets responses itself", arguments: 0..<4)
    func anythingInterpretedOutside(seed: Int) throws {
        var random = Seeded(state: UInt64(seed))
        let frames = FrameReaderTests.conversation.map(\.bytes).filter { $0.readableBytes < 1000 }
        let template = HTTP2RequestTemplate(host: "host", bundleID: nil, token: nil)
        let requests = try (UInt32(1)...6).map { template.request(for: try HTTP2GatewayFixture.push($0)) }
        let owner = Collector()
        for _ in 0..<100 {
            let loop = EmbeddedEventLoop()
            let handler = HTTP2ClientHandler(Collector.state(now: loop.now), owner: owner)
            let channel = try channel(handler, streams: 3, loop: loop)
            handler.enqueue(requests)
            while channel.isActive, Int.random(in: 0..<5, using: &random) > 0 {
                try channel.writeInbound(ByteBuffer(bytes: ServerFrames.mutilated(frames, using: &random)))
            }
            if Bool.random(using: &random) { try pass(31, on: channel, isAlive: false) }
            _ = try? channel.finish()
        }
        #expect(owner.results == Dictionary(uniqueKeysWithValues: (UInt32(1)...6).map { ($0, 100) }))
        #expect(owner.kinds.count >= 3)
    }

    @Test("Without a bundle id no topic is sent; collapse ids, priorities and expirations are correct")
    func requests() throws {
        let template = HTTP2RequestTemplate(host: "host", bundleID: nil, token: nil)
        let base = try HTTP2GatewayFixture.push(2)
        func headers(_ type: String, priority: UInt8? = nil, collapseID: String? = nil) -> [String?] {
            let push = Push(
                id: 1, identifier: 2, address: base.address, payload: [], expiration: 0, priority: priority,
                apnsID: "the-id", type: type, collapseID: collapseID)
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

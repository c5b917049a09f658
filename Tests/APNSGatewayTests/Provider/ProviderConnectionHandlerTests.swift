import APNSWire
import ChatDomain
import Logging
import NIOCore
import NIOEmbedded
import NIOHTTP2
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
        let limit = HTTP2Setting(parameter: .maxConcurrentStreams, value: streams)
        try channel.writeInbound(HTTP2Frame(streamID: .rootStream, payload: .settings(.settings([limit]))))
        return (channel, handler)
    }

    private func answer(_ channel: EmbeddedChannel, _ streams: some Sequence<Int>, status: String = "200") throws {
        for stream in streams {
            let id = HTTP2StreamID(stream)
            channel.pipeline.fireChannelRead(
                HTTP2Frame(streamID: id, payload: .headers(.init(headers: [":status": status], endStream: true))))
            channel.pipeline.fireUserInboundEventTriggered(StreamClosedEvent(streamID: id, reason: nil))
        }
        channel.pipeline.fireChannelReadComplete()
    }

    /// The streams that were opened since the last look.
    private func opened(_ channel: EmbeddedChannel) throws -> [Int] {
        var streams: [Int] = []
        while let frame = try channel.readOutbound(as: HTTP2Frame.self) {
            if case .headers = frame.payload { streams.append(Int(frame.streamID)) }
        }
        return streams
    }

    @Test("20,000 pushes have one verdict each, one range for each time that something was read")
    func many() async throws {
        let (channel, handler) = try connection(streams: 1000)
        let template = ProviderRequestTemplate(host: "host", bundleID: "com.example.app", token: nil)
        var next: UInt32 = 1
        var seen = 0
        while seen < 20_000 {
            let slot = handler.desk.slot(on: ConnectionEpoch(1), payloadLimit: 4096, largerLimits: [:])
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
        func window(_ size: Int) {
            channel.pipeline.fireUserInboundEventTriggered(
                NIOHTTP2WindowUpdatedEvent(streamID: .rootStream, inboundWindowSize: 65_535, outboundWindowSize: size))
        }
        window(0)
        let template = ProviderRequestTemplate(host: "host", bundleID: nil, token: nil)
        handler.desk.noteLeased(through: 1, isProbe: false)
        handler.write([template.request(for: try ProviderRig.push(1))])
        #expect(try opened(channel) == [])
        window(1)
        channel.pipeline.fireChannelReadComplete()
        #expect(try opened(channel) == [1])
        _ = try? channel.finish()
    }

    @Test("Bodies of answers are acknowledged before the peer has to wait")
    func acknowledges() throws {
        let (channel, _) = try connection()
        channel.pipeline.fireUserInboundEventTriggered(
            NIOHTTP2WindowUpdatedEvent(streamID: .rootStream, inboundWindowSize: 30_000, outboundWindowSize: nil))
        channel.pipeline.fireChannelReadComplete()
        let frame = try channel.readOutbound(as: HTTP2Frame.self)
        guard case .windowUpdate(35_535) = frame?.payload else {
            Issue.record("\(String(describing: frame))")
            return
        }
        _ = try? channel.finish()
    }

    @Test("Without a bundle id no topic is sent; collapse ids, priorities and expirations are what they should be")
    func requests() throws {
        let template = ProviderRequestTemplate(host: "host", bundleID: nil, token: nil)
        let base = try ProviderRig.push(2)
        func headers(_ type: String, priority: UInt8? = nil, collapseID: String? = nil) -> [String?] {
            let push = Push(
                entry: 1, identifier: 2, token: base.token, payload: [], expiration: 0, priority: priority,
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

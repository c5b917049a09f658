import ChatDomain
import Logging
import NIOCore
import NIOEmbedded
import PushWire
import TestSupport
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("The handler of a binary connection")
struct BinaryConnectionHandlerTests {
    private let buffer = ReportBuffer()

    private func connection(
        _ sentinels: SharedSentinelKnowledge = SharedSentinelKnowledge()
    ) throws -> (EmbeddedChannel, BinaryConnectionHandler) {
        let loop = EmbeddedEventLoop()
        let handler = BinaryConnectionHandler(
            state: BinaryConnectionState(
                connectionID: ConnectionID(1), settleTime: .seconds(5), stallLimit: .seconds(15), now: loop.now),
            sentinels: sentinels, reports: buffer, logger: .silent,
            changed: {})
        let channel = EmbeddedChannel(handler: handler, loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        return (channel, handler)
    }

    private func write(_ handler: BinaryConnectionHandler, _ identifiers: ClosedRange<UInt32>, isProbe: Bool = false) {
        handler.write(ByteBuffer(string: "frames"), identifiers: identifiers, isProbe: isProbe)
    }

    /// Returns the outcomes so far, without waiting for more.
    private func reports() async -> [Outcome] {
        buffer.close()
        return await buffer.take()?.map(\.outcome) ?? []
    }

    @Test("A probe is followed by a frame without a token, and by nothing else")
    func sentinel() throws {
        let (channel, handler) = try connection()
        write(handler, 1...2, isProbe: true)
        #expect(try channel.readOutbound(as: ByteBuffer.self) == ByteBuffer(string: "frames"))
        let sentinel = try #require(try channel.readOutbound(as: ByteBuffer.self))
        #expect(
            Array(sentinel.readableBytesView) == [2, 0, 0, 0, 15, 1, 0, 0, 2, 0, 2, 0x7B, 0x7D, 3, 0, 4, 0, 0, 0, 3])
        write(handler, 3...3)
        #expect(try channel.readOutbound(as: ByteBuffer.self) == nil)
        _ = try? channel.finish()
    }

    @Test(
        "After one failed sentinel no other follows pushes, and silence ends the probe",
        arguments: [nil, [8, 1, 0, 0, 0, 0], [8, 10, 0, 0, 0, 0], [8, 255, 0, 0, 1, 0]] as [[UInt8]?])
    func muteGateway(answer: [UInt8]?) async throws {
        let sentinels = SharedSentinelKnowledge()
        let (first, asking) = try connection(sentinels)
        write(asking, 1...2, isProbe: true)
        if let answer { try first.writeInbound(ByteBuffer(bytes: answer)) }
        _ = try? first.finish()
        #expect(!sentinels.isUseful)
        let (channel, handler) = try connection(sentinels)
        write(handler, 1...2, isProbe: true)
        #expect(handler.availability.isProvingBySilence)
        _ = try channel.readOutbound(as: ByteBuffer.self)
        #expect(try channel.readOutbound(as: ByteBuffer.self) == nil)
        for _ in 0..<60 { channel.embeddedEventLoop.advanceTime(by: .milliseconds(100)) }
        #expect(!channel.isActive)
        let reason = answer.map { BinaryStatus(rawValue: $0[1]).name } ?? "ConnectionClosed"
        #expect(await reports() == [.unanswered(reason: reason), .accepted])
    }

    @Test(
        "A trial carries no push: its response makes sentinels useful again, and no other end leaves a push in doubt",
        arguments: [([8, 2, 0, 0, 0, 1], true), ([8, 1, 0, 0, 0, 0], false), (nil, false)] as [([UInt8]?, Bool)])
    func trial(answer: [UInt8]?, isUnderstood: Bool) async throws {
        let sentinels = SharedSentinelKnowledge()
        _ = sentinels.learn(.notUnderstood, isTrial: false, now: EmbeddedEventLoop().now)
        let (channel, handler) = try connection(sentinels)
        let done = channel.eventLoop.makePromise(of: Void.self)
        handler.tryOut(done)
        #expect(!handler.availability.takesPushes)
        #expect(try channel.readOutbound(as: ByteBuffer.self)?.readableBytes == 20)
        if let answer { try channel.writeInbound(ByteBuffer(bytes: answer)) }
        // The connection waits one second for a silent gateway.
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1100))
        #expect(!channel.isActive)
        #expect(sentinels.isUseful == isUnderstood)
        try await done.futureResult.get()
        #expect(await reports().isEmpty)
    }

    @Test("The loss of many pushes causes a trial before any push has to be proven", arguments: [31, 32] as [UInt32])
    func lossBeforeProof(count: UInt32) throws {
        let sentinels = SharedSentinelKnowledge()
        let (channel, handler) = try connection(sentinels)
        write(handler, 1...count)
        _ = try channel.finish()
        #expect(sentinels.takeTrial(now: EmbeddedEventLoop().now) == (count == 32))
        #expect(sentinels.isUseful)
    }

    @Test(
        "The handler waits three seconds for a gateway that ignores a sentinel, and its silence proves nothing"
    )
    func silentGateway() async throws {
        let (channel, handler) = try connection()
        write(handler, 1...2, isProbe: true)
        for _ in 0..<29 { channel.embeddedEventLoop.advanceTime(by: .milliseconds(100)) }
        #expect(channel.isActive)
        for _ in 0..<2 { channel.embeddedEventLoop.advanceTime(by: .milliseconds(100)) }
        #expect(!channel.isActive)
        #expect(await reports() == [.unanswered(reason: "NoResponse")])
    }

    @Test("Pushes written to an ended connection were not processed, and the connection accepts no more")
    func lateWrite() async throws {
        let (channel, handler) = try connection()
        write(handler, 1...2)
        try channel.writeInbound(ByteBuffer(bytes: [8, 10, 0, 0, 0, 2]))
        #expect(!handler.availability.takesPushes)
        write(handler, 3...4)
        #expect(await reports() == [.accepted, .accepted, .notProcessed])
    }

    @Test(
        "A connection whose response accepts and rejects no push has made no progress",
        arguments: [
            [8, 10, 0, 0, 0, 0], [8, 8, 0, 0, 0, 0], [8, 3, 0, 0, 0, 1],
        ] as [[UInt8]])
    func noProgress(answer: [UInt8]) throws {
        let (channel, handler) = try connection()
        write(handler, 1...2)
        try channel.writeInbound(ByteBuffer(bytes: answer))
        #expect(handler.result == .nothing)
    }

    @Test("A response in pieces is one response, and ends the connection")
    func splitResponse() async throws {
        let (channel, handler) = try connection()
        write(handler, 1...3)
        for byte in [8, 8, 0, 0, 0] as [UInt8] { try channel.writeInbound(ByteBuffer(bytes: [byte])) }
        #expect(channel.isActive)
        try channel.writeInbound(ByteBuffer(bytes: [2]))
        #expect(!channel.isActive)
        #expect(await reports() == [.accepted, .badAddress(reason: "InvalidToken"), .notProcessed])
    }

    @Test("Bytes of another service leave all pushes in doubt, and end the connection")
    func otherService() async throws {
        let (channel, handler) = try connection()
        write(handler, 1...3)
        try channel.writeInbound(ByteBuffer(string: "SSH-2.0-x"))
        #expect(!channel.isActive)
        #expect(await reports() == [.unanswered(reason: "UnexpectedBytes")])
    }
}

import APNSWire
import ChatDomain
import Logging
import NIOCore
import NIOEmbedded
import Testing

@testable import APNSGateway

@Suite("A binary connection's handler")
struct BinaryConnectionHandlerTests {
    private let buffer = ReportBuffer()

    private func connection(
        _ sentinels: SentinelHistory = SentinelHistory()
    ) throws -> (EmbeddedChannel, BinaryConnectionHandler) {
        let loop = EmbeddedEventLoop()
        let handler = BinaryConnectionHandler(
            state: BinaryConnectionState(
                connectionID: ConnectionID(1), settleTime: .seconds(5), stallLimit: .seconds(15), now: loop.now),
            sentinels: sentinels, reports: buffer, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            changed: {})
        let channel = EmbeddedChannel(handler: handler, loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        return (channel, handler)
    }

    private func write(_ handler: BinaryConnectionHandler, _ identifiers: ClosedRange<UInt32>, isProbe: Bool = false) {
        handler.write(ByteBuffer(string: "frames"), identifiers: identifiers, isProbe: isProbe)
    }

    /// What there is, without waiting for more.
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

    @Test("After six sentinels that only closed the connection none is sent, and silence ends the probe")
    func muteGateway() async throws {
        let sentinels = SentinelHistory()
        #expect(SentinelHistory.failureLimit == 6)
        for _ in 0..<SentinelHistory.failureLimit {
            #expect(sentinels.areUseful(now: EmbeddedEventLoop().now))
            let (channel, handler) = try connection(sentinels)
            write(handler, 1...2, isProbe: true)
            _ = try channel.finish()
        }
        let now = EmbeddedEventLoop().now
        #expect(!sentinels.areUseful(now: now))
        #expect(sentinels.areUseful(now: now + .minutes(11)), "another try after a while")
        let (channel, handler) = try connection(sentinels)
        write(handler, 1...2, isProbe: true)
        _ = try channel.readOutbound(as: ByteBuffer.self)
        #expect(try channel.readOutbound(as: ByteBuffer.self) == nil)
        for _ in 0..<60 { channel.embeddedEventLoop.advanceTime(by: .milliseconds(100)) }
        #expect(!channel.isActive)
        #expect(
            await reports() == Array(
                repeating: .unanswered(reason: "ConnectionClosed"), count: SentinelHistory.failureLimit) + [.accepted])
    }

    @Test("A gateway that has answered a sentinel once is sent more, whatever follows")
    func experience() {
        let sentinels = SentinelHistory()
        let now = EmbeddedEventLoop().now
        sentinels.noteAnswered()
        for _ in 0..<SentinelHistory.failureLimit + 3 { sentinels.noteSilence(now: now) }
        #expect(sentinels.areUseful(now: now))
        let others = SentinelHistory()
        for _ in 0..<SentinelHistory.failureLimit + 3 {
            others.noteSilence(now: now)
            others.noteOtherAnswer()
        }
        #expect(others.areUseful(now: now))
    }

    @Test(
        "A gateway that neither answers a sentinel nor closes is waited for three seconds, and its silence proves nothing"
    )
    func silentGateway() async throws {
        let sentinels = SentinelHistory()
        let (channel, handler) = try connection(sentinels)
        write(handler, 1...2, isProbe: true)
        for _ in 0..<29 { channel.embeddedEventLoop.advanceTime(by: .milliseconds(100)) }
        #expect(channel.isActive)
        for _ in 0..<2 { channel.embeddedEventLoop.advanceTime(by: .milliseconds(100)) }
        #expect(!channel.isActive)
        #expect(await reports() == [.unanswered(reason: "NoAnswer")])
    }

    @Test("What is written for a connection that is over was not processed, and it takes no more pushes")
    func lateWrite() async throws {
        let (channel, handler) = try connection()
        write(handler, 1...2)
        try channel.writeInbound(ByteBuffer(bytes: [8, 10, 0, 0, 0, 2]))
        #expect(!handler.availability.takesPushes)
        write(handler, 3...4)
        #expect(await reports() == [.accepted, .accepted, .notProcessed])
    }

    @Test(
        "A connection whose answer accepts and refuses nothing has achieved nothing",
        arguments: [
            [8, 10, 0, 0, 0, 0], [8, 8, 0, 0, 0, 0], [8, 3, 0, 0, 0, 1],
        ] as [[UInt8]])
    func noProgress(answer: [UInt8]) throws {
        let (channel, handler) = try connection()
        write(handler, 1...2)
        try channel.writeInbound(ByteBuffer(bytes: answer))
        #expect(handler.result == .nothing)
    }

    @Test("An answer in pieces is one answer, and ends the connection")
    func splitAnswer() async throws {
        let (channel, handler) = try connection()
        write(handler, 1...3)
        for byte in [8, 8, 0, 0, 0] as [UInt8] { try channel.writeInbound(ByteBuffer(bytes: [byte])) }
        #expect(channel.isActive)
        try channel.writeInbound(ByteBuffer(bytes: [2]))
        #expect(!channel.isActive)
        #expect(await reports() == [.accepted, .badAddress(reason: "InvalidToken"), .notProcessed])
    }

    @Test("Bytes of another service leave everything in doubt, and end the connection")
    func otherService() async throws {
        let (channel, handler) = try connection()
        write(handler, 1...3)
        try channel.writeInbound(ByteBuffer(string: "SSH-2.0-x"))
        #expect(!channel.isActive)
        #expect(await reports() == [.unanswered(reason: "UnexpectedBytes")])
    }
}

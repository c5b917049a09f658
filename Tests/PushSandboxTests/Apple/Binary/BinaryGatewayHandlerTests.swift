import Foundation
import NIOCore
import NIOEmbedded
import PushWire
import TestSupport
import Testing

@testable import PushSandbox

/// Tests the handler on a channel without sockets, where only the test advances the time.
@Suite("A connection to the binary gateway")
struct BinaryGatewayHandlerTests {
    private let state = SharedState(.forTests(directory: "/nonexistent"))
    private let socket = Socket()
    private let channel: EmbeddedChannel

    init() throws {
        channel = EmbeddedChannel()
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandler(socket)
        try pipeline.addHandler(
            BinaryGatewayHandler(
                connection: 1, configuration: .forTests(directory: "/nonexistent"), state: state, logger: .silent))
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        channel.pipeline.fireUserInboundEventTriggered(ClientIdentified(certificate: ClientCertificate(topic: "app")))
    }

    /// Replaces the socket: counts its calls, and can be half closed, which the embedded channel cannot.
    private final class Socket: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        var reads = 0
        var isHalfClosed = false

        func read(context: ChannelHandlerContext) {
            reads += 1
            context.read()
        }

        func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
            guard mode == .output else { return context.close(mode: mode, promise: promise) }
            isHalfClosed = true
            promise?.succeed()
        }
    }

    private func fault(_ fault: BinaryFault, after: Int = 0) throws {
        _ = try state.withLock { try $0.faults.add(Fault(fault, after: after)) }
    }

    private func receive(_ notifications: BinaryNotification...) throws {
        var buffer = ByteBuffer()
        for notification in notifications { notification.write(to: &buffer) }
        try channel.writeInbound(buffer)
    }

    private func packet() throws -> BinaryErrorResponse? {
        guard var buffer = try channel.readOutbound(as: ByteBuffer.self) else { return nil }
        return try BinaryErrorResponse.read(from: &buffer)
    }

    private var identifiers: [UInt32?] {
        state.withLock { $0.inbox.page().entries.map(\.identifier) }
    }

    private var discarded: Int { state.withLock { $0.stats.binary.discarded } }

    @Test("Frames of all commands, split anywhere, are read in order")
    func splitFrames() throws {
        var bytes = ByteBuffer()
        for (number, command) in [BinaryCommand.framed, .enhanced, .simple, .framed].enumerated() {
            BinaryNotification.good(UInt32(number), command: command).write(to: &bytes)
        }
        while let byte = bytes.readSlice(length: 1) { try channel.writeInbound(byte) }
        #expect(identifiers == [0, 1, nil, 3])
        #expect(try packet() == nil)
    }

    @Test("A bad notification gets one packet, and all later ones are discarded and counted")
    func discarding() throws {
        try fault(.status(.invalidToken, delay: 0, identifier: nil), after: 2)
        try receive(.good(1), .good(2), .good(3), .good(4), .good(5))
        #expect(try packet() == BinaryErrorResponse(status: .invalidToken, identifier: 3))
        try receive(.good(6), .good(7))
        #expect(try packet() == nil)
        #expect(identifiers == [1, 2, 3])
        #expect(discarded == 4)
    }

    @Test("Discarded notifications are counted up to the first unreadable one")
    func discardingBeforeNoise() throws {
        try fault(.status(.invalidToken, delay: 0, identifier: nil))
        var bytes = ByteBuffer()
        for number in 1...3 as ClosedRange<UInt32> { BinaryNotification.good(number).write(to: &bytes) }
        bytes.writeString("noise")
        try channel.writeInbound(bytes)
        try receive(.good(4))
        #expect(discarded == 2)
        #expect(identifiers == [1])
    }

    @Test("A connection that the client leaves open is closed when the linger is over")
    func linger() throws {
        try receive(.sentinel(identifier: 9))
        #expect(try packet() == BinaryErrorResponse(status: .missingDeviceToken, identifier: 9))
        #expect(socket.isHalfClosed)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1999))
        #expect(channel.isActive)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
        #expect(!channel.isActive)
    }

    @Test("A late response is delayed, and notifications from the time between are discarded")
    func lateResponse() throws {
        try fault(.status(.invalidToken, delay: 500, identifier: nil))
        try receive(.good(1), .good(2))
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(499))
        try receive(.good(3))
        #expect(try packet() == nil)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
        #expect(try packet() == BinaryErrorResponse(status: .invalidToken, identifier: 1))
        #expect(identifiers == [1])
        #expect(discarded == 2)
    }

    @Test("A delayed notification and those after it are decided later, and nothing is read until then")
    func delay() throws {
        try fault(.delay(300), after: 1)
        try receive(.good(1), .good(2), .good(3))
        #expect(identifiers == [1])
        let before = socket.reads
        channel.read()
        #expect(socket.reads == before)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(300))
        #expect(identifiers == [1, 2, 3])
        #expect(socket.reads == before + 1)
    }

    @Test("Two delays in one batch follow each other")
    func delays() throws {
        try fault(.delay(300))
        try fault(.delay(300))
        try receive(.good(1), .good(2))
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(300))
        #expect(identifiers == [1])
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(300))
        #expect(identifiers == [1, 2])
    }

    @Test("A connection that stops reading accepts the faulted notification, and resumes when its time is over")
    func stopReading() throws {
        try fault(.stopReading(300))
        try receive(.good(1), .good(2))
        let before = socket.reads
        channel.read()
        #expect(socket.reads == before)
        #expect(identifiers == [1])
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(300))
        #expect(identifiers == [1, 2])
        #expect(socket.reads == before + 1)
    }

    @Test("A connection that stopped reading for good does not resume by itself")
    func stopReadingForGood() throws {
        try fault(.stopReading(nil))
        try receive(.good(1), .good(2))
        channel.embeddedEventLoop.advanceTime(by: .hours(24))
        #expect(identifiers == [1])
        #expect(channel.isActive)
        channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(!channel.isActive)
        #expect(discarded == 1)
    }

    @Test("A client that has finished sending still gets its late response, then the connection closes")
    func answerAfterHalfClose() throws {
        try fault(.status(.invalidToken, delay: 500, identifier: nil))
        try receive(.good(1))
        channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(channel.isActive)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(500))
        #expect(try packet() == BinaryErrorResponse(status: .invalidToken, identifier: 1))
        #expect(!channel.isActive)
    }

    @Test("The connection of a client that has finished sending closes, and its earlier notifications count")
    func halfClose() throws {
        try receive(.good(1))
        channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(!channel.isActive)
        #expect(identifiers == [1])
    }

    @Test("A client gets no packet if a fault closes its connection")
    func close() throws {
        try fault(.close)
        try receive(.good(1), .good(2))
        #expect(try packet() == nil)
        #expect(socket.isHalfClosed)
        #expect(discarded == 1)
        channel.embeddedEventLoop.advanceTime(by: .seconds(2))
        #expect(!channel.isActive)
    }

    @Test("A reset ends the connection at once")
    func reset() throws {
        try fault(.reset)
        try receive(.good(1), .good(2))
        #expect(try packet() == nil)
        #expect(!channel.isActive)
        #expect(discarded == 1)
    }
}

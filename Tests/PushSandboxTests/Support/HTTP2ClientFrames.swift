import Foundation
import NIOCore
import NIOHPACK
import NIOSSL

@testable import PushSandbox

/// The frames of ``HTTP2Client``, on its event loop (RFC 9113 §4.1).
final class HTTP2ClientFrames: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum FrameType {
        static let data: UInt8 = 0, headers: UInt8 = 1, reset: UInt8 = 3, settings: UInt8 = 4, ping: UInt8 = 6
        static let goAway: UInt8 = 7, windowUpdate: UInt8 = 8
    }

    private static let endStream: UInt8 = 1
    private static let endHeaders: UInt8 = 4
    private static let ack: UInt8 = 1
    private static let frameSize = 16_384
    private static let timeout = TimeAmount.seconds(TestLimit.seconds)

    private let channel: any Channel
    private let acknowledges: Bool
    private var encoder = HPACKEncoder(allocator: ByteBufferAllocator())
    private var decoder = HPACKDecoder(allocator: ByteBufferAllocator())
    private var incoming = ByteBuffer()
    private var outgoing = ByteBuffer(string: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    private var nextStream = 1
    private var partial: [Int: HTTP2Client.Response] = [:]
    private var promises: [Int: EventLoopPromise<HTTP2Client.Response>] = [:]
    private var pings: [EventLoopPromise<Bool>] = []
    private var isUp = false
    private var isEnded = false
    private var isClean = true
    /// The number of bytes that may be sent on all streams together.
    private var window = 65_535
    private(set) var limits: [Int] = []
    private(set) var goAways: [HTTP2Client.GoAway] = []
    let ended: EventLoopPromise<HTTP2Client.Ending>
    private var flooding: Flood?

    private struct Flood {
        var headers: HPACKHeaders
        var body: ByteBuffer
        var left: Int
        var open = 0
        var statuses: [Int: Int] = [:]
        var done: EventLoopPromise<[Int: Int]>
    }

    init(channel: any Channel, acknowledges: Bool) {
        self.channel = channel
        self.acknowledges = acknowledges
        ended = channel.eventLoop.makePromise()
        frame(FrameType.settings, on: 0, ByteBuffer())
        let ended = self.ended
        channel.eventLoop.scheduleTask(in: Self.timeout) { ended.fail(HTTP2Client.ConnectionEnded()) }
    }

    var openStreams: Int { partial.count }

    // MARK: Writing

    private func frame(_ type: UInt8, flags: UInt8 = 0, on stream: Int, _ payload: ByteBuffer) {
        outgoing.writeInteger(UInt8(payload.readableBytes >> 16))
        outgoing.writeInteger(UInt16(payload.readableBytes & 0xFFFF))
        outgoing.writeInteger(type)
        outgoing.writeInteger(flags)
        outgoing.writeInteger(UInt32(stream))
        outgoing.writeImmutableBuffer(payload)
    }

    private func flush() {
        guard isUp, outgoing.readableBytes > 0 else { return }
        channel.writeAndFlush(outgoing, promise: nil)
        outgoing = ByteBuffer()
    }

    /// Sends requests in one write.
    func send(_ count: Int, _ headers: [(String, String)], body: String, ends: Bool) throws -> [Int] {
        let streams = try (0..<count).map { _ in try send(headers, body: body, ends: ends) }
        flush()
        return streams
    }

    private func send(_ headers: [(String, String)], body: String, ends: Bool) throws -> Int {
        let stream = try begin(HPACKHeaders(headers), hasBody: !body.isEmpty || !ends)
        let promise = channel.eventLoop.makePromise(of: HTTP2Client.Response.self)
        promises[stream] = promise
        if isEnded { promise.fail(HTTP2Client.ConnectionEnded()) }
        var rest = ByteBuffer(string: body)
        while rest.readableBytes > 0 {
            let piece = rest.readSlice(length: min(rest.readableBytes, Self.frameSize)) ?? ByteBuffer()
            window -= piece.readableBytes
            let isLast = rest.readableBytes == 0 && ends
            frame(FrameType.data, flags: isLast ? Self.endStream : 0, on: stream, piece)
        }
        return stream
    }

    func finish(_ stream: Int, body: String) {
        window -= body.utf8.count
        frame(FrameType.data, flags: Self.endStream, on: stream, ByteBuffer(string: body))
        flush()
    }

    private func begin(_ headers: HPACKHeaders, hasBody: Bool) throws -> Int {
        let stream = nextStream
        nextStream += 2
        var block = ByteBuffer()
        try encoder.encode(headers: headers, to: &block)
        frame(FrameType.headers, flags: Self.endHeaders | (hasBody ? 0 : Self.endStream), on: stream, block)
        partial[stream] = HTTP2Client.Response()
        return stream
    }

    func response(to stream: Int) -> EventLoopFuture<HTTP2Client.Response> {
        guard let promise = promises[stream] else {
            return channel.eventLoop.makeFailedFuture(HTTP2Client.ConnectionEnded())
        }
        channel.eventLoop.scheduleTask(in: Self.timeout) { promise.fail(HTTP2Client.NoResponse()) }
        return promise.futureResult
    }

    func flood(
        _ count: Int, _ headers: [(String, String)], body: String
    ) -> EventLoopFuture<[Int: Int]> {
        let promise = channel.eventLoop.makePromise(of: [Int: Int].self)
        flooding = Flood(
            headers: HPACKHeaders(headers), body: ByteBuffer(string: body), left: count, done: promise)
        channel.eventLoop.scheduleTask(in: Self.timeout) { promise.fail(HTTP2Client.ConnectionEnded()) }
        floodOn()
        return promise.futureResult
    }

    private func floodOn() {
        guard var flood = flooding else { return }
        flooding = nil
        let body = flood.body
        while flood.left > 0, flood.open < limits.last ?? 1, window >= body.readableBytes,
            let stream = try? begin(flood.headers, hasBody: true)
        {
            window -= body.readableBytes
            frame(FrameType.data, flags: Self.endStream, on: stream, body)
            flood.left -= 1
            flood.open += 1
        }
        flush()
        if flood.left == 0, flood.open == 0 { flood.done.succeed(flood.statuses) } else { flooding = flood }
    }

    func ping(milliseconds: Int64) -> EventLoopFuture<Bool> {
        let promise = channel.eventLoop.makePromise(of: Bool.self)
        pings.append(promise)
        frame(FrameType.ping, on: 0, ByteBuffer(repeating: 7, count: 8))
        flush()
        channel.eventLoop.scheduleTask(in: .milliseconds(milliseconds)) { promise.succeed(false) }
        return promise.futureResult
    }

    // MARK: Reading

    func channelActive(context: ChannelHandlerContext) {
        isUp = true
        flush()
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        incoming.writeBuffer(&bytes)
        while let (type, flags, stream, payload) = next() { receive(type, flags, stream, payload) }
        incoming.discardReadBytes()
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        floodOn()
        flush()
    }

    private func next() -> (UInt8, UInt8, Int, ByteBuffer)? {
        let start = incoming.readerIndex
        guard incoming.readableBytes >= 9, let high: UInt8 = incoming.getInteger(at: start),
            let low: UInt16 = incoming.getInteger(at: start + 1), let type: UInt8 = incoming.getInteger(at: start + 3),
            let flags: UInt8 = incoming.getInteger(at: start + 4),
            let stream: UInt32 = incoming.getInteger(at: start + 5)
        else { return nil }
        let length = Int(high) << 16 | Int(low)
        guard incoming.readableBytes >= 9 + length else { return nil }
        incoming.moveReaderIndex(forwardBy: 9)
        return incoming.readSlice(length: length).map { (type, flags, Int(stream), $0) }
    }

    private func receive(_ type: UInt8, _ flags: UInt8, _ stream: Int, _ payload: ByteBuffer) {
        var payload = payload
        switch type {
        case FrameType.headers:
            for (name, value, _) in (try? decoder.decodeHeaders(from: &payload)) ?? HPACKHeaders() {
                partial[stream]?.headers[name] = value
                if name == ":status" { partial[stream]?.status = Int(value) ?? 0 }
            }
            if flags & Self.endStream != 0 { partial[stream]?.isBare = true }
        case FrameType.data:
            partial[stream]?.body += String(buffer: payload)
        case FrameType.reset:
            finish(stream, .failure(HTTP2Client.StreamReset(code: payload.readInteger() ?? 0)))
            return
        case FrameType.settings where flags & Self.ack == 0:
            while let name: UInt16 = payload.readInteger(), let value: UInt32 = payload.readInteger() {
                if name == 3 { limits.append(Int(value)) }
            }
            if acknowledges { frame(FrameType.settings, flags: Self.ack, on: 0, ByteBuffer()) }
        case FrameType.ping where flags & Self.ack != 0:
            for promise in pings { promise.succeed(true) }
            pings = []
        case FrameType.goAway:
            let last: UInt32 = payload.readInteger() ?? 0
            let code: UInt32 = payload.readInteger() ?? 0
            goAways.append(.init(lastStream: Int(last), code: code, text: String(buffer: payload)))
            for unprocessed in partial.keys where unprocessed > Int(last) {
                finish(unprocessed, .failure(HTTP2Client.ConnectionEnded()))
            }
        case FrameType.windowUpdate where stream == 0:
            window += Int(payload.readInteger(as: UInt32.self) ?? 0)
        default: break
        }
        if flags & Self.endStream != 0, type == FrameType.headers || type == FrameType.data {
            finish(stream, .success(partial[stream] ?? .init()))
        }
    }

    private func finish(_ stream: Int, _ result: Result<HTTP2Client.Response, any Error>) {
        guard partial.removeValue(forKey: stream) != nil else { return }
        if let promise = promises[stream] {
            promise.completeWith(result)
        } else if flooding != nil {
            flooding?.open -= 1
            flooding?.statuses[(try? result.get().status) ?? 0, default: 0] += 1
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        isClean = false
    }

    func channelInactive(context: ChannelHandlerContext) {
        isEnded = true
        ended.succeed(.init(goAways: goAways, isClean: isClean))
        for promise in promises.values { promise.fail(HTTP2Client.ConnectionEnded()) }
        for promise in pings { promise.succeed(false) }
        flooding?.done.fail(HTTP2Client.ConnectionEnded())
    }
}

import Foundation
import NIOCore
import NIOHPACK
import NIOHTTP2
import NIOPosix
import NIOSSL
import PushWire
import Synchronization

/// A server of the provider API that a test scripts, over real TLS on a free port.
final class ScriptedServer: Sendable {
    struct Request: Sendable {
        let stream: Int
        let headers: HPACKHeaders
        let body: String

        func header(_ name: String) -> String? { headers.first(name: name) }
    }

    /// Called on the connection's event loop for each complete request.
    typealias Script = @Sendable (Request, ScriptedPeer) -> Void

    struct Record {
        var requests: [Request] = []
        var peers: [ScriptedPeer] = []
        /// The number of streams that the client opened beyond the limit that it had acknowledged.
        var violations = 0
        var pings = 0
    }

    let record = Mutex(Record())
    private let listeners = Mutex<[AsyncStream<Void>.Continuation]>([])
    private let channel: any Channel
    private let script: Script
    var port: Int { channel.localAddress?.port ?? 0 }

    init(
        certificate: String, protocols: [String] = ["h2"], settings: HTTP2Settings, script: @escaping Script
    ) async throws {
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: try NIOSSLCertificate.fromPEMFile(certificate).map { .certificate($0) },
            privateKey: .privateKey(try NIOSSLPrivateKey(file: certificate, format: .pem)))
        configuration.applicationProtocols = protocols
        configuration.shutdownTimeout = .milliseconds(100)
        let tls = try NIOSSLContext(configuration: configuration)
        self.script = script
        let ready = Mutex<ScriptedServer?>(nil)
        channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let server = ready.withLock({ $0 }) else { throw ChannelError.eof }
                    var connection = NIOHTTP2Handler.ConnectionConfiguration()
                    connection.initialSettings = settings
                    connection.maximumRecentlyResetStreams = 10_000
                    connection.controlFrameRateLimit.maximumCount = 100_000
                    var stream = NIOHTTP2Handler.StreamConfiguration()
                    stream.streamResetFrameRateLimit.maximumCount = 100_000
                    let peer = ScriptedPeer(channel: channel)
                    server.record.withLock { $0.peers.append(peer) }
                    server.changed()
                    channel.closeFuture.whenComplete { _ in server.changed() }
                    try channel.pipeline.syncOperations.addHandlers([
                        NIOSSLServerHandler(context: tls),
                        NIOHTTP2Handler(
                            mode: .server, connectionConfiguration: connection, streamConfiguration: stream),
                        ScriptedHandler(server: server, peer: peer),
                    ])
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        ready.withLock { $0 = self }
    }

    func stop() async {
        for peer in record.withLock({ $0.peers }) { peer.channel.close(promise: nil) }
        try? await channel.close()
    }

    /// A stream with one element at once, and one after each event.
    func events() -> AsyncStream<Void> {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        listeners.withLock { $0.append(continuation) }
        continuation.yield()
        return stream
    }

    fileprivate func changed() {
        for listener in listeners.withLock({ $0 }) { listener.yield() }
    }

    fileprivate func received(_ request: Request, from peer: ScriptedPeer) {
        record.withLock { $0.requests.append(request) }
        script(request, peer)
        changed()
    }
}

/// One client of the scripted server, as the script sees it.
struct ScriptedPeer: Sendable {
    let channel: any Channel

    func send(_ payload: HTTP2Frame.FramePayload, on stream: Int = 0) {
        channel.writeAndFlush(HTTP2Frame(streamID: HTTP2StreamID(stream), payload: payload), promise: nil)
    }

    /// Accepts a push. Responses to requests that were read together are written together.
    func accept(_ stream: Int) {
        let payload = HTTP2Frame.FramePayload.headers(.init(headers: [":status": "200"], endStream: true))
        channel.write(HTTP2Frame(streamID: HTTP2StreamID(stream), payload: payload), promise: nil)
        channel.eventLoop.execute { [channel] in channel.flush() }
    }

    func refuse(_ stream: Int, _ refusal: ProviderRefusal) {
        refuse(stream, status: refusal.status, body: refusal.body)
    }

    func refuse(_ stream: Int, status: Int, body: String) {
        send(.headers(.init(headers: [":status": "\(status)"])), on: stream)
        send(.data(.init(data: .byteBuffer(ByteBuffer(string: body)), endStream: true)), on: stream)
    }

    func reset(_ stream: Int, _ code: HTTP2ErrorCode) {
        send(.rstStream(code), on: stream)
    }

    func limit(_ streams: Int) {
        send(.settings(.settings([HTTP2Setting(parameter: .maxConcurrentStreams, value: streams)])))
    }

    func goAway(after stream: Int, _ reason: ProviderReason) {
        let text = ByteBuffer(string: #"{"reason":"\#(reason.rawValue)"}"#)
        send(.goAway(lastStreamID: HTTP2StreamID(stream), errorCode: .noError, opaqueData: text))
    }
}

private final class ScriptedHandler: ChannelInboundHandler {
    typealias InboundIn = HTTP2Frame

    private let server: ScriptedServer
    private let peer: ScriptedPeer
    private var headers: [Int: HPACKHeaders] = [:]
    private var bodies: [Int: ByteBuffer] = [:]
    private var consumed = 0

    init(server: ScriptedServer, peer: ScriptedPeer) {
        self.server = server
        self.peer = peer
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        let id = Int(frame.streamID)
        switch frame.payload {
        case .headers(let content):
            headers[id] = content.headers
        case .data(let content):
            guard case .byteBuffer(var bytes) = content.data else { return }
            consumed += bytes.readableBytes
            if consumed > 16_000 {
                peer.send(.windowUpdate(windowSizeIncrement: consumed))
                consumed = 0
            }
            bodies[id, default: ByteBuffer()].writeBuffer(&bytes)
            guard content.endStream, let headers = headers.removeValue(forKey: id) else { return }
            let body = bodies.removeValue(forKey: id) ?? ByteBuffer()
            server.received(.init(stream: id, headers: headers, body: String(buffer: body)), from: peer)
        case .ping(_, let isResponse) where !isResponse:
            server.record.withLock { $0.pings += 1 }
            server.changed()
        default:
            break
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // NIOHTTP2 itself rejects a stream beyond the limit that the client has acknowledged.
        if error is NIOHTTP2Errors.MaxStreamsViolation { server.record.withLock { $0.violations += 1 } }
    }
}

import NIOCore
import NIOHPACK
import NIOPosix
import NIOSSL
import NIOTLS
import Synchronization

@testable import HTTP2Wire

/// A push service on loopback that speaks raw HTTP/2, right or wrong, as its script says.
final class ScriptedService: Sendable {
    enum Heard {
        /// TLS is up.
        case connected
        /// The headers of a request have arrived.
        case opened(stream: Int, path: String)
        /// A request is complete.
        case request(stream: Int, path: String)
        case reset(stream: Int)
        case acknowledgedSettings
    }

    typealias Script = @Sendable (Peer, Heard) -> Void

    let port: Int
    private let channel: any Channel
    private let counts: Counts

    final class Counts: Sendable {
        private let connections = Atomic(0)
        private let paths = Mutex<[String]>([])

        var all: [String] { paths.withLock { $0 } }
        var connected: Int { connections.load(ordering: .relaxed) }
        fileprivate func connect() -> Int { connections.add(1, ordering: .relaxed).oldValue }
        fileprivate func request(_ path: String) { paths.withLock { $0.append(path) } }
    }

    /// One connection, on its event loop.
    final class Peer {
        /// The connection's number, from 0.
        let number: Int
        /// The streams without a response.
        private(set) var open: Set<Int> = []
        private(set) var answered = 0
        private(set) var isStopped = false
        private let context: ChannelHandlerContext

        var eventLoop: any EventLoop { context.eventLoop }

        fileprivate init(_ number: Int, _ context: ChannelHandlerContext) {
            self.number = number
            self.context = context
        }

        fileprivate func noteOpened(_ stream: Int) { open.insert(stream) }

        func send(
            _ type: FrameType, _ flags: FrameFlags = [], on stream: Int = 0, _ payload: [UInt8] = []
        ) {
            send(Self.frame(type, flags, on: stream, payload))
        }

        func send(_ bytes: ByteBuffer) { context.writeAndFlush(NIOAny(bytes), promise: nil) }

        static func frame(
            _ type: FrameType, _ flags: FrameFlags = [], on stream: Int = 0, _ payload: [UInt8] = []
        ) -> ByteBuffer {
            var bytes = ByteBuffer()
            bytes.writeFrameHeader(FrameHeader(length: payload.count, type: type, flags: flags, stream: stream))
            bytes.writeBytes(payload)
            return bytes
        }

        func settings(_ settings: [(id: Int, value: Int)] = []) {
            send(.settings, on: 0, settings.flatMap { Self.bytes($0.id, 2) + Self.bytes($0.value) })
        }

        /// Sends headers as literals.
        func headers(_ stream: Int, _ headers: [(String, String)], _ flags: FrameFlags = [.endHeaders]) {
            send(.headers, flags, on: stream, Self.block(headers))
        }

        func answer(_ stream: Int, _ status: Int = 201) {
            conclude(stream)
            headers(stream, [(":status", "\(status)")], [.endHeaders, .endStream])
        }

        func reset(_ stream: Int, _ code: HTTP2Code) {
            conclude(stream)
            send(.reset, on: stream, Self.bytes(Int(code.rawValue)))
        }

        func goAway(after last: Int) { send(.goAway, on: 0, Self.bytes(last) + Self.bytes(0)) }

        func conclude(_ stream: Int) {
            open.remove(stream)
            answered += 1
        }

        func close() { context.close(promise: nil) }

        func stopReading() {
            isStopped = true
            _ = context.channel.setOption(.autoRead, value: false)
        }

        static func bytes(_ value: Int, _ count: Int = 4) -> [UInt8] {
            (0..<count).reversed().map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
        }

        static func block(_ headers: [(String, String)]) -> [UInt8] {
            headers.flatMap { name, value in
                [0x00, UInt8(name.utf8.count)] + name.utf8 + [UInt8(value.utf8.count)] + value.utf8
            }
        }
    }

    static func start(_ tls: TLSConfiguration, script: @escaping Script) async throws -> ScriptedService {
        var tls = tls
        tls.applicationProtocols = ["h2"]
        let context = try NIOSSLContext(configuration: tls)
        let counts = Counts()
        let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers(
                        NIOSSLServerHandler(context: context), Handler(script, counts))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        return ScriptedService(channel, counts)
    }

    private init(_ channel: any Channel, _ counts: Counts) {
        self.channel = channel
        self.counts = counts
        port = channel.localAddress?.port ?? 0
    }

    /// The paths of complete requests.
    var paths: [String] { counts.all }
    var connections: Int { counts.connected }

    func stop() async { try? await channel.close() }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let script: Script
        private let counts: Counts
        private var peer: Peer?
        private var unread = ByteBuffer()
        private var hasPreface = false
        private var paths: [Int: String] = [:]
        private var decoder = HPACKDecoder(allocator: ByteBufferAllocator())

        init(_ script: @escaping Script, _ counts: Counts) {
            self.script = script
            self.counts = counts
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if case .handshakeCompleted = event as? TLSUserEvent {
                let peer = Peer(counts.connect(), context)
                self.peer = peer
                script(peer, .connected)
            }
            context.fireUserInboundEventTriggered(event)
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            guard let peer, !peer.isStopped else { return }
            unread.writeImmutableBuffer(unwrapInboundIn(data))
            if !hasPreface {
                guard unread.readableBytes >= 24 else { return }
                unread.moveReaderIndex(forwardBy: 24)
                hasPreface = true
            }
            while let header = FrameHeader(peekingAt: unread),
                unread.readableBytes >= FrameHeader.size + header.length
            {
                unread.moveReaderIndex(forwardBy: FrameHeader.size)
                guard let payload = unread.readSlice(length: header.length) else { return }
                received(header, payload, peer)
            }
            unread.discardReadBytes()
        }

        private func received(_ header: FrameHeader, _ payload: ByteBuffer, _ peer: Peer) {
            var payload = payload
            let stream = header.stream
            switch FrameType(rawValue: header.type) {
            case .headers:
                let headers = try? decoder.decodeHeaders(from: &payload)
                let path = headers?.first(name: ":path") ?? ""
                paths[stream] = path
                peer.noteOpened(stream)
                script(peer, .opened(stream: stream, path: path))
                if header.flags.contains(.endStream) { request(stream, peer) }
            case .data where header.flags.contains(.endStream): request(stream, peer)
            case .reset: script(peer, .reset(stream: stream))
            case .settings where header.flags.contains(.ack): script(peer, .acknowledgedSettings)
            default: break
            }
        }

        private func request(_ stream: Int, _ peer: Peer) {
            guard let path = paths.removeValue(forKey: stream) else { return }
            counts.request(path)
            script(peer, .request(stream: stream, path: path))
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) {
            context.close(promise: nil)
        }
    }
}

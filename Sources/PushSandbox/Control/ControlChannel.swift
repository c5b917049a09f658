import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import NIOWebSocket
import WebAssets

/// The connections of the control port: HTTP, and the WebSockets of browsers that speak Mozilla's push protocol.
struct ControlChannel: ServerChildChannel {
    /// The path of requests that become WebSockets.
    static let pushPath = "/push"
    private static let subprotocol = "push-notification"

    typealias HTTP = NIOAsyncChannel<HTTPRequestPart, HTTPResponsePart>

    struct Value: ServerChildChannelValue {
        let channel: any Channel
        /// The HTTP connection. `nil` if it has become a WebSocket, which its channel handlers serve.
        fileprivate let http: EventLoopFuture<HTTP?>
    }

    /// Serves the HTTP requests.
    let http: HTTP1Channel
    let hosts: ControlGuard
    let pushes: PushSocket

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Value> {
        channel.eventLoop.makeCompletedFuture {
            let upgrader = NIOTypedWebSocketServerUpgrader<HTTP?>(
                maxFrameSize: PushSocket.maxMessageSize,
                shouldUpgrade: { channel, request in
                    let offered = request.headers[canonicalForm: "Sec-WebSocket-Protocol"]
                    let chosen = offered.first { $0 == Self.subprotocol }
                    return channel.eventLoop.makeSucceededFuture(
                        HTTPHeaders(chosen.map { [("Sec-WebSocket-Protocol", String($0))] } ?? []))
                }
            ) { channel, _ in
                channel.eventLoop.makeCompletedFuture {
                    try pushes.addHandlers(to: channel.pipeline.syncOperations)
                    return nil
                }
            }
            let upgrade = NIOTypedHTTPServerUpgradeConfiguration<HTTP?>(upgraders: [upgrader]) { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    try pipeline.addHandler(HTTP1ToHTTPServerCodec(secure: false))
                    try pipeline.addHandler(HTTPConnectionStateHandler(logger: logger))
                    return try HTTP(
                        wrappingChannelSynchronously: channel,
                        configuration: .init(isOutboundHalfClosureEnabled: true))
                }
            }
            // Hummingbird handles pipelined requests.
            var configuration = NIOUpgradableHTTPServerPipelineConfiguration(upgradeConfiguration: upgrade)
            configuration.enablePipelining = false
            configuration.enableResponseHeaderValidation = false
            let pipeline = channel.pipeline.syncOperations
            try pipeline.addHandler(WriteGuard())
            let negotiated = try pipeline.configureUpgradableHTTPServerPipeline(configuration: configuration)
            let gate = UpgradeGate { isPush($0, at: channel.localAddress?.port) }
            try pipeline.addHandler(
                gate, position: .before(pipeline.handler(type: NIOTypedHTTPServerUpgradeHandler<HTTP?>.self)))
            return Value(channel: channel, http: negotiated)
        }
    }

    func handle(value: Value, logger: Logger) async {
        do {
            let http = try await withTaskCancellationHandler {
                try await value.http.get()
            } onCancel: {
                value.channel.close(promise: nil)
            }
            if let http { return await self.http.handle(value: http, logger: logger) }
            try await withTaskCancellationHandler {
                try await value.channel.closeFuture.get()
            } onCancel: {
                value.channel.close(promise: nil)
            }
        } catch {
            logger.trace("Connection failed", metadata: ["error": "\(error)"])
            value.channel.close(promise: nil)
        }
    }

    /// Whether the request becomes a WebSocket. Other requests are answered as if they had no `Upgrade` header.
    private func isPush(_ request: HTTPRequestHead, at port: Int?) -> Bool {
        let headers = request.headers
        // Firefox sends the whole URL of the push service, with its path, as the origin.
        let origins = headers["Origin"].map { origin in
            origin.split(separator: "/", omittingEmptySubsequences: false).prefix(3).joined(separator: "/")
        }
        guard request.method == .GET, request.uri == Self.pushPath, headers["Host"].count == 1,
            headers["Upgrade"].map({ $0.lowercased() }) == ["websocket"],
            headers["Sec-WebSocket-Version"] == ["13"], headers["Sec-WebSocket-Key"].count == 1
        else { return false }
        do {
            let schemes = ["http://", "https://", "ws://"]
            try hosts.check(host: headers["Host"][0], origins: origins, schemes: schemes, port: port)
            return true
        } catch {
            return false
        }
    }
}

/// Lets a connection become a WebSocket with its first request, if `mayUpgrade` allows it.
///
/// The gate removes `Upgrade` from all other requests. It stops reading after such a request or after `CONNECT`,
/// because the HTTP parser would treat the following bytes as those of another protocol.
private final class UpgradeGate: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart

    private enum State {
        /// Nothing has arrived.
        case unused
        case http
        /// The request that is being read is the last one.
        case lastRequest
        /// The bytes that arrive are no longer HTTP.
        case webSocket
    }

    private let mayUpgrade: (HTTPRequestHead) -> Bool
    private var state = State.unused

    init(mayUpgrade: @escaping (HTTPRequestHead) -> Bool) {
        self.mayUpgrade = mayUpgrade
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard state != .webSocket else { return context.fireChannelRead(data) }
        var part = unwrapInboundIn(data)
        switch part {
        case .head(var head):
            let wantsUpgrade = head.headers.contains(name: "Upgrade")
            if wantsUpgrade, state == .unused, mayUpgrade(head) {
                // From here on the gate passes everything on: first the end of this request, then bytes.
                state = .webSocket
            } else if wantsUpgrade || head.method == .CONNECT {
                state = .lastRequest
                head.headers.remove(name: "Upgrade")
                head.headers.replaceOrAdd(name: "Connection", value: "close")
                part = .head(head)
            } else {
                state = .http
            }
        case .end where state == .lastRequest:
            try? context.channel.syncOptions?.setOption(.autoRead, value: false)
        default: break
        }
        context.fireChannelRead(wrapInboundOut(part))
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // Other handlers close a connection that is in use, after a response or as a WebSocket.
        let isEnd = event is ChannelShouldQuiesceEvent || event as? ChannelEvent == .inputClosed
        if isEnd, state == .unused { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }
}

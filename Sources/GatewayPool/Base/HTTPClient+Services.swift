package import AsyncHTTPClient
import NIOCore
import NIOHTTP1
import NIOHTTP2

extension HTTPClient {
    /// Creates a client for requests to services. The relay creates no client in another way.
    ///
    /// AsyncHTTPClient 1.37 skips a status below 100 as if it were provisional. It then ends the process when the
    /// response ends, or when another response follows 101 over HTTP/2. So does a negative status over HTTP/2.
    package static func services(_ configuration: Configuration) -> HTTPClient {
        var configuration = configuration
        let initialize = configuration.http1_1ConnectionDebugInitializer
        configuration.http1_1ConnectionDebugInitializer = { channel in
            channel.eventLoop.submit {
                let pipeline = channel.pipeline.syncOperations
                let decoder = try pipeline.handler(type: ByteToMessageHandler<HTTPResponseDecoder>.self)
                try pipeline.addHandler(HTTP1StatusGuard(), position: .after(decoder))
            }.flatMap { initialize?(channel) ?? channel.eventLoop.makeSucceededVoidFuture() }
        }
        configuration.http2StreamChannelDebugInitializer = { channel in
            channel.eventLoop.submit {
                try channel.pipeline.syncOperations.addHandler(HTTP2StatusGuard(), position: .first)
            }
        }
        return HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
    }
}

/// Whether a response may have the status. The relay never asks for an upgrade, to which 101 would be the response.
private func isPossible(_ status: UInt) -> Bool {
    status >= 100 && status != 101
}

/// Closes a connection whose response has an impossible status.
final class HTTP1StatusGuard: ChannelInboundHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias InboundOut = HTTPClientResponsePart

    private var hasFailed = false

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !hasFailed else { return }
        if case .head(let head) = unwrapInboundIn(data), !isPossible(head.status.code) {
            hasFailed = true
            context.fireErrorCaught(HTTPParserError.invalidStatus)
            context.close(promise: nil)
        } else {
            context.fireChannelRead(data)
        }
    }
}

/// Closes a stream whose response has an impossible status, or ends with a provisional one.
final class HTTP2StatusGuard: ChannelInboundHandler {
    typealias InboundIn = HTTP2Frame.FramePayload
    typealias InboundOut = HTTP2Frame.FramePayload

    private var hasFailed = false
    /// Whether the final head has arrived. The next headers are trailers.
    private var hasHead = false

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !hasFailed else { return }
        if case .headers(let frame) = unwrapInboundIn(data), !hasHead {
            let status = frame.headers.first(name: ":status").flatMap { UInt($0) } ?? 0
            hasHead = status >= 200
            guard isPossible(status), hasHead || !frame.endStream else {
                hasFailed = true
                context.fireErrorCaught(HTTPParserError.invalidStatus)
                context.close(promise: nil)
                return
            }
        }
        context.fireChannelRead(data)
    }
}

import HTTPTypes
package import NIOCore
package import NIOHTTPTypes

/// Answers `CONNECT` and requests with `Upgrade` as any others, and closes the connection after that (RFC 9110 §7.8: a server may
/// ignore the wish).
///
/// Behind such a request the parser takes everything as the other protocol's and keeps it, however much it is; so nothing more is
/// read.
package final class UpgradeRefusal: ChannelInboundHandler, RemovableChannelHandler {
    package typealias InboundIn = HTTPRequestPart
    package typealias InboundOut = HTTPRequestPart

    private var isLast = false

    package init() {}

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(var head) where head.method == .connect || head.headerFields.contains(.upgrade):
            isLast = true
            head.headerFields[.upgrade] = nil
            head.headerFields[.connection] = "close"
            context.fireChannelRead(wrapInboundOut(.head(head)))
        case .end where isLast:
            try? context.channel.syncOptions?.setOption(.autoRead, value: false)
            context.fireChannelRead(data)
        default:
            context.fireChannelRead(data)
        }
    }
}

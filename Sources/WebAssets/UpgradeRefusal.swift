import HTTPTypes
package import NIOCore
package import NIOHTTPTypes

/// Handles `CONNECT` and requests with `Upgrade` like any other request, and closes the connection after the response
/// (RFC 9110 §7.8 lets a server ignore `Upgrade`).
///
/// After such a request, the parser treats everything as the other protocol's data and buffers it without limit.
/// Therefore nothing more is read.
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

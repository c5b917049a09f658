import Hummingbird
import Logging
import NIOCore

/// What belongs to one request.
struct ChatContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    /// The other end of the connection; a proxy's, if there is one.
    let peer: SocketAddress?
    let channel: any Channel
    /// In `X-Request-Id` and in every log line of the request.
    var requestID = ""

    init(source: ApplicationRequestContextSource) {
        coreContext = CoreRequestContextStorage(source: source)
        peer = source.channel.remoteAddress
        channel = source.channel
    }
}

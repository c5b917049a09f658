import ChatDomain
import Hummingbird
import NIOCore

/// The context of one request.
struct ChatContext: RequestContext {
    /// Responds to the requests of a route.
    typealias Handler = @Sendable (Request, ChatContext) async throws -> Response

    var coreContext: CoreRequestContextStorage
    /// The other end of the connection, which may be a proxy.
    let peer: SocketAddress?
    let channel: any Channel
    var ids = RequestIDs()
    /// The method of the request. ``ResponseMiddleware`` gives it back to the request, which the router got without it.
    var method = HTTPRequest.Method.get
    /// The time at which the request's head was read, in ``MonotonicTime``.
    var received = Duration.zero
    /// The caller. `nil` until ``AdminGuard`` has identified it.
    private var knownCaller: Caller?

    init(source: ApplicationRequestContextSource) {
        coreContext = CoreRequestContextStorage(source: source)
        peer = source.channel.remoteAddress
        channel = source.channel
    }

    /// Returns the caller. Only routes behind ``AdminGuard`` have one; other routes get an internal error.
    func caller() throws(ChatError) -> Caller {
        guard let knownCaller else { throw ChatError(.internalError, "the route has no guard") }
        return knownCaller
    }

    func called(by caller: Caller) -> ChatContext {
        var context = self
        context.knownCaller = caller
        return context
    }

    /// The address of ``peer``. `nil` for a Unix socket.
    var peerAddress: IPAddress? { peer.flatMap { IPAddress($0) } }
}

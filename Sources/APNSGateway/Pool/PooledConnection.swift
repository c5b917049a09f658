import ChatDomain
import NIOCore
import NIOPosix
import NIOSSL
import Synchronization

/// Where a pool's connections go, and with which credentials.
protocol PoolTarget: Sendable {
    var endpoint: GatewayEndpoint { get }
}

/// What a connection achieved.
enum ConnectionResult: Sendable {
    case nothing
    /// The gateway refused a push, and accepted none.
    case refusal
    case progress
}

/// One open connection, as its pool sees it. The properties are cheap and may be read on any thread.
protocol PooledConnection: AnyObject, Sendable {
    var id: ConnectionID { get }
    /// The slot that it offers, if it can take pushes now.
    var slot: ConnectionSlot? { get }
    /// Whether closing it gives a fresh connection sooner than waiting for it.
    var isReplaceable: Bool { get }
    /// It is busy up to its peer's limit: another beside it would help.
    var isSaturated: Bool { get }
    /// It probes a suspected push, waits for its first answer, or waits until silence has proven a lease: other pushes need not wait
    /// for that.
    var isBlocked: Bool { get }

    func write(_ lease: Lease, now: Timestamp)
    /// From now on takes no more pushes, waits for the answers, and closes. Bounded in time.
    func drain()
    /// Returns when it takes no more pushes for good, so that its successor may be opened.
    func retired() async
    /// Returns when it is closed.
    func closed() async
    /// What it achieved. To be asked after ``retired()``.
    func result() async -> ConnectionResult
}

/// The part of a connection that runs on its event loop.
protocol ConnectionHandler: ChannelInboundHandler {
    var result: ConnectionResult { get }
    func drain()
}

/// A connection whose work is done by a handler in a channel.
protocol ChannelConnection: PooledConnection {
    associatedtype Handler: ConnectionHandler
    var channel: any Channel { get }
    var handler: NIOLoopBound<Handler> { get }
}

extension ChannelConnection {
    func drain() {
        channel.eventLoop.execute { [handler] in handler.value.drain() }
    }

    func closed() async {
        try? await channel.closeFuture.get()
    }

    func result() async -> ConnectionResult {
        (try? await channel.eventLoop.submit { [handler] in handler.value.result }.get()) ?? .nothing
    }
}

/// Describes for operators why a connection failed; NIO's and BoringSSL's own texts are for developers.
enum ConnectionFailure {
    static func text(_ error: any Error) -> String {
        switch error {
        case let error as NIOConnectionError:
            if let failure = error.connectionErrors.first { return text(failure.error) }
            if error.dnsAError != nil || error.dnsAAAAError != nil { return "the name is not known" }
            return "no address answers"
        case let error as IOError:
            return String(cString: strerror(error.errnoCode))
        case ChannelError.connectTimeout:
            return "no answer in time"
        case ChannelError.eof, NIOSSLError.uncleanShutdown:
            return "it closed the connection before TLS was up"
        case NIOSSLError.handshakeFailed(let cause):
            let detail = String(describing: cause)
            if detail.contains("CERTIFICATE_VERIFY_FAILED") {
                return "its certificate is not trusted; if its authority is your own, name it in trust"
            }
            return "the TLS handshake failed: \(reasons(in: cause))"
        case is NIOSSLExtraError:
            return "its certificate is for another name"
        default:
            return String(describing: error)
        }
    }

    /// The words in capitals out of BoringSSL's text, without its source's paths; another error's text as it is.
    static func reasons(in error: any Error) -> String {
        guard error is BoringSSLError || error is NIOSSLError else { return String(describing: error) }
        let words = String(describing: error).split(whereSeparator: { !($0.isUppercase || $0.isNumber || $0 == "_") })
            .filter { $0.contains("_") && $0.count > 6 && $0.first?.isNumber == false }
        return words.isEmpty ? String(describing: error) : words.joined(separator: ", ")
    }
}

package import ChatDomain
package import NIOCore
import NIOPosix
import NIOSSL
import Synchronization

/// The gateway that a pool connects to, and its credentials.
package protocol PoolTarget: Sendable {
    var endpoint: GatewayEndpoint { get }
}

/// The result of a connection, which decides how soon its successor is opened.
package enum ConnectionResult: Sendable {
    case nothing
    /// The gateway rejected at least one push because of the push itself, and nothing happened that counts as
    /// ``progress``.
    case refusal
    /// The gateway accepted a push, reported a device as gone, asked for a retry, or responded to a sentinel.
    case progress
}

/// One open connection, as its pool sees it. The properties are cheap and may be read on any thread.
package protocol PooledConnection: AnyObject, Sendable {
    var id: ConnectionID { get }
    /// The slot that the connection offers. `nil` if it accepts no pushes now.
    var slot: ConnectionSlot? { get }
    /// Whether closing this connection provides a fresh one sooner than waiting until this connection is fresh again.
    var isReplaceable: Bool { get }
    /// Whether the connection carries as many pushes as its peer allows, so that another connection would help.
    var isSaturated: Bool { get }
    /// Whether other pushes should use another connection: this one probes a suspected push, waits for its first
    /// response, or waits until silence has proven a lease.
    var isBlocked: Bool { get }

    func write(_ lease: Lease, now: Timestamp)
    /// Stops accepting pushes, waits for the outcomes, and closes. The duration is bounded.
    func drain()
    /// Closes at once. Pushes without an outcome are in doubt.
    func close()
    /// Returns when the connection will never accept pushes again, so that its successor may be opened.
    func retired() async
    /// Returns when the connection is closed.
    func closed() async
    /// Returns the result. Call it after ``retired()``.
    func result() async -> ConnectionResult
}

/// The part of a connection that runs on its event loop.
package protocol ConnectionHandler: ChannelInboundHandler {
    var result: ConnectionResult { get }
    func drain()
}

/// A connection that works through a handler in a channel.
package protocol ChannelConnection: PooledConnection {
    associatedtype Handler: ConnectionHandler
    var channel: any Channel { get }
    var handler: NIOLoopBound<Handler> { get }
}

extension ChannelConnection {
    package func drain() {
        channel.eventLoop.execute { [handler] in handler.value.drain() }
    }

    package func close() { channel.close(promise: nil) }

    package func closed() async {
        try? await channel.closeFuture.get()
    }

    package func result() async -> ConnectionResult {
        (try? await channel.eventLoop.submit { [handler] in handler.value.result }.get()) ?? .nothing
    }
}

package import NIOCore

/// Closes a connection whose client has stopped reading while bytes wait to be sent.
///
/// This handler must be the first in its pipeline, before TLS, so that it counts the bytes that the socket accepts. A
/// slow client that keeps reading is never closed. A connection without waiting bytes needs no timer.
package final class WriteGuard: ChannelOutboundHandler, RemovableChannelHandler {
    package typealias OutboundIn = IOData
    package typealias OutboundOut = IOData

    private var progress = WriteProgress()
    private var nextCheck: Scheduled<Void>?
    private let onClose: () -> Void

    /// - Parameter onClose: Called before the handler closes the connection.
    package init(onClose: @escaping () -> Void = {}) {
        self.onClose = onClose
    }

    package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        progress.queued(unwrapOutboundIn(data).readableBytes)
        context.write(data, promise: promise)
    }

    package func flush(context: ChannelHandlerContext) {
        context.flush()
        guard nextCheck == nil, let waiting = Self.waitingBytes(context), waiting > 0 else { return }
        progress.began(waiting: waiting)
        scheduleCheck(context)
    }

    package func handlerRemoved(context: ChannelHandlerContext) {
        nextCheck?.cancel()
        nextCheck = nil
    }

    private func scheduleCheck(_ context: ChannelHandlerContext) {
        nextCheck = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(WriteProgress.interval)) {
            self.nextCheck = nil
            guard let waiting = Self.waitingBytes(context) else { return }
            switch self.progress.checked(waiting: waiting) {
            case .idle: break
            case .checkAgain: self.scheduleCheck(context)
            case .close:
                self.onClose()
                context.close(promise: nil)
            }
        }
    }

    /// Returns the number of waiting bytes. `nil` if the channel is closed.
    private static func waitingBytes(_ context: ChannelHandlerContext) -> Int? {
        try? context.channel.syncOptions?.getOption(.bufferedWritableBytes)
    }
}

/// Decides whether a connection's client has stopped reading. A pure value. Call ``checked(waiting:)`` once per
/// ``interval`` while bytes wait.
package struct WriteProgress {
    package enum Action: Equatable {
        /// No bytes wait.
        case idle
        case checkAgain
        case close
    }

    /// The time without progress after which a connection closes, at most ``interval`` late.
    package static let limit = Duration.seconds(30)
    package static let interval = Duration.seconds(5)

    /// The number of bytes written to the channel.
    private var queued = 0
    /// The number of bytes that the socket had accepted at the last check.
    private var taken = 0
    private var idleTime = Duration.zero

    package init() {}

    package mutating func queued(_ bytes: Int) {
        queued += bytes
    }

    /// Restarts the idle time, because bytes have begun to wait or the socket has accepted some.
    package mutating func began(waiting: Int) {
        taken = queued - waiting
        idleTime = .zero
    }

    /// Returns the action after one ``interval``.
    /// - Parameter waiting: The number of bytes that the socket has not accepted.
    package mutating func checked(waiting: Int) -> Action {
        guard waiting > 0 else { return .idle }
        if queued - waiting > taken {
            began(waiting: waiting)
            return .checkAgain
        }
        idleTime += Self.interval
        return idleTime < Self.limit ? .checkAgain : .close
    }
}

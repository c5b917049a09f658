package import NIOCore

/// Closes a connection whose client takes none of the bytes that wait for it.
///
/// This handler must be the first of its pipeline, before TLS: there it counts the bytes that the socket takes. A slow client
/// that keeps reading is never closed. A connection on which nothing waits costs no timer.
package final class WriteGuard: ChannelOutboundHandler, RemovableChannelHandler {
    package typealias OutboundIn = IOData
    package typealias OutboundOut = IOData

    private var progress = WriteProgress()
    private var nextLook: Scheduled<Void>?
    private let onClose: () -> Void

    /// - Parameter onClose: called before the handler closes the connection.
    package init(onClose: @escaping () -> Void = {}) {
        self.onClose = onClose
    }

    package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        progress.queued(unwrapOutboundIn(data).readableBytes)
        context.write(data, promise: promise)
    }

    package func flush(context: ChannelHandlerContext) {
        context.flush()
        guard nextLook == nil, let waiting = Self.waitingBytes(context), waiting > 0 else { return }
        progress.began(waiting: waiting)
        scheduleLook(context)
    }

    package func handlerRemoved(context: ChannelHandlerContext) {
        nextLook?.cancel()
        nextLook = nil
    }

    private func scheduleLook(_ context: ChannelHandlerContext) {
        nextLook = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(WriteProgress.interval)) {
            self.nextLook = nil
            guard let waiting = Self.waitingBytes(context) else { return }
            switch self.progress.looked(waiting: waiting) {
            case .rest: break
            case .lookAgain: self.scheduleLook(context)
            case .close:
                self.onClose()
                context.close(promise: nil)
            }
        }
    }

    /// `nil` if the channel is closed.
    private static func waitingBytes(_ context: ChannelHandlerContext) -> Int? {
        try? context.channel.syncOptions?.getOption(.bufferedWritableBytes)
    }
}

/// Whether a connection's client takes the bytes that wait for it. A pure value, asked at a steady interval.
package struct WriteProgress {
    package enum Action: Equatable {
        /// Nothing waits any more.
        case rest
        case lookAgain
        case close
    }

    /// A connection is closed after this time without progress, and at most ``interval`` later.
    package static let limit = Duration.seconds(30)
    package static let interval = Duration.seconds(5)

    /// Bytes that were written to the channel.
    private var queued = 0
    /// Bytes that the socket had taken at the last look.
    private var taken = 0
    private var idleTime = Duration.zero

    package init() {}

    package mutating func queued(_ bytes: Int) {
        queued += bytes
    }

    /// Starts the time anew: bytes wait that did not wait before.
    package mutating func began(waiting: Int) {
        taken = queued - waiting
        idleTime = .zero
    }

    /// - Parameter waiting: bytes that the socket has not taken yet.
    package mutating func looked(waiting: Int) -> Action {
        guard waiting > 0 else { return .rest }
        if queued - waiting > taken {
            began(waiting: waiting)
            return .lookAgain
        }
        idleTime += Self.interval
        return idleTime < Self.limit ? .lookAgain : .close
    }
}

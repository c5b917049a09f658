import ChatDomain
import Foundation
import HummingbirdCore
import Logging
import NIOCore

/// Pauses accepting while the process or the machine has no file descriptor for another connection. Releases the spare
/// descriptors to the rest of the relay during the pause.
///
/// SwiftNIO's own `AcceptBackoffHandler` (2.101) only delays the next read. The listener stays registered after a
/// failed accept, so that the event loop spins.
final class AcceptGuard: ChannelDuplexHandler {
    typealias InboundIn = any Channel
    typealias InboundOut = any Channel
    typealias OutboundIn = Never
    typealias OutboundOut = Never

    private static let shortages: Set<CInt> = [EMFILE, ENFILE, ENOBUFS, ENOMEM]

    private let shortage: ConnectionShortage
    private let spares: SpareFiles
    private var backoff = AcceptBackoff()
    /// The end of the pause. `nil` while the listener accepts connections.
    private var resumption: Scheduled<Void>?

    init(shortage: ConnectionShortage, spares: SpareFiles = SpareFiles()) {
        self.shortage = shortage
        self.spares = spares
    }

    func handlerAdded(context: ChannelHandlerContext) {
        _ = spares.take()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? IOError, Self.shortages.contains(error.errnoCode) else {
            return context.fireErrorCaught(error)
        }
        spares.release()
        shortage.failed("\(error)")
        guard resumption == nil else { return }
        // This deregisters the listener. Merely withholding reads does not.
        try? context.channel.syncOptions?.setOption(.autoRead, value: false)
        scheduleResumption(context)
    }

    private func scheduleResumption(_ context: ChannelHandlerContext) {
        resumption = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(backoff.next())) {
            guard self.spares.take() else { return self.scheduleResumption(context) }
            self.resumption = nil
            try? context.channel.syncOptions?.setOption(.autoRead, value: true)
            context.read()
        }
    }

    /// Drops reads during a pause. The read at the end of the pause replaces all of them.
    func read(context: ChannelHandlerContext) {
        if resumption == nil { context.read() }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        backoff = AcceptBackoff()
        context.fireChannelRead(data)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        resumption?.cancel()
        resumption = nil
        spares.release()
    }
}

/// Reserved file descriptors. They are released while accepting is paused, so that the rest of the process can open
/// files.
///
/// libdispatch opens a file in `/proc` every second, and terminates the process if it cannot.
final class SpareFiles {
    private static let maxReserved = 8
    /// The minimum number of free descriptors for accepting connections.
    static let minFree = 4

    private var descriptors: [CInt] = []
    private let free: () -> Int

    /// Creates the value without reserving any descriptor.
    ///
    /// - Parameter free: Returns the number of files that the process may still open.
    init(free: @escaping () -> Int = SpareFiles.free) {
        self.free = free
    }

    deinit { release() }

    /// Reserves half of the free descriptors, up to ``maxReserved``.
    ///
    /// - Returns: Whether enough descriptors are free to accept connections.
    func take() -> Bool {
        guard descriptors.isEmpty else { return true }
        let free = free()
        guard free >= Self.minFree else { return false }
        for _ in 0..<min(Self.maxReserved, free / 2) {
            let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
            guard descriptor >= 0 else {
                release()
                return false
            }
            descriptors.append(descriptor)
        }
        return true
    }

    func release() {
        for descriptor in descriptors { close(descriptor) }
        descriptors = []
    }

    static func free() -> Int {
        guard let limit = ProcessUsage.maxFiles, let used = ProcessUsage.openFiles else { return 0 }
        return limit - used
    }
}

/// The pauses between attempts to accept a connection: from 50 milliseconds, doubled each time, up to one second.
struct AcceptBackoff {
    static let first = Duration.milliseconds(50)
    static let longest = Duration.seconds(1)

    private var pause = Self.first

    mutating func next() -> Duration {
        defer { pause = min(pause * 2, Self.longest) }
        return pause
    }
}

/// Counts and logs when new connections have to wait.
final class ConnectionShortage: Sendable {
    private let metrics: LimitMetrics
    private let reports: RepeatedRejections
    private let logger: Logger

    init(metrics: LimitMetrics, clock: MonotonicTime, logger: Logger) {
        self.metrics = metrics
        self.logger = logger
        reports = RepeatedRejections(interval: HTTPLimits.readinessReports, clock: clock)
    }

    func failed(_ cause: String) {
        metrics.hit(.connections)
        guard let count = reports.count("accept") else { return }
        logger.error("cannot accept connections", metadata: [LogKeys.cause: "\(cause)", LogKeys.count: "\(count)"])
    }

    func reached(_ limit: Int) {
        metrics.hit(.connections)
        guard let count = reports.count("limit") else { return }
        logger.warning(
            "all connections are in use: new ones wait until one ends",
            metadata: ["connections": "\(limit)", LogKeys.count: "\(count)"])
    }
}

/// Counts open connections up to a limit. At the limit, the listener accepts no more, and new connections wait in the
/// kernel.
struct ConnectionSlots: AvailableConnectionsDelegate {
    let limit: Int
    let shortage: ConnectionShortage
    private var count = 0

    init(limit: Int, shortage: ConnectionShortage) {
        self.limit = limit
        self.shortage = shortage
    }

    mutating func connectionOpened() {
        count += 1
        if count == limit { shortage.reached(limit) }
    }

    mutating func connectionClosed() { count -= 1 }

    func isAcceptingNewConnections() -> Bool { count < limit }
}

import Synchronization

/// The durable queue, as a dispatcher uses it.
///
/// A lease gives a push to one caller until that settles or returns it. How a store remembers leases is not said here:
/// in memory where one relay serves a file, since after a crash every push that is not settled is sent again anyway; in
/// the database where several relays share one. docs/stores.md says what a store must do.
package protocol PushQueue: Sendable {
    /// Takes due pushes of an app, in the order of the lanes and of their ids. Nobody else gets them meanwhile.
    ///
    /// - Parameter lanes: which, and in which order.
    /// - Returns: at most `limit` pushes. None says that nothing is due.
    func lease(app: AppName, lanes: [PushLane], limit: Int) async throws(ChatError) -> LeasedPushes
    /// Gives back pushes to which nothing has happened: they are due again, in their lanes.
    func release(_ pushIDs: [ClosedRange<Int64>], lane: PushLane, app: AppName)
    /// Writes down what has happened to leased pushes, all in one transaction, and ends their leases.
    /// - Returns: for each settlement what it changed. Rows that another program deleted or settled are left out.
    @discardableResult
    func settle(_ settlements: [Settlement], app: AppName) async throws(ChatError) -> [SettledPushes]
    /// When the next push of the app that waits for its time is due, or, before that, when to ask again; nil if none
    /// waits.
    func nextDue(app: AppName) async throws(ChatError) -> Timestamp?
    /// Signals, as long as the continuation lives, whenever there may be due pushes of the app, or ``nextDue(app:)`` may have
    /// become earlier.
    func announceArrivals(of app: AppName, to signal: AsyncStream<Void>.Continuation)
}

extension PushQueue {
    /// An endless sequence that yields whenever there may be due pushes of the app. Yields are merged while nobody looks.
    package func arrivals(of app: AppName) -> AsyncStream<Void> {
        let (signals, signal) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        announceArrivals(of: app, to: signal)
        return signals
    }
}

/// Signals all who listen for an app; a listener leaves when its stream ends.
package final class Signals: Sendable {
    private struct State {
        var listeners: [Int: (app: AppName, signal: AsyncStream<Void>.Continuation)] = [:]
        var next = 0
    }

    private let state = Mutex(State())

    package init() {}

    package func add(_ signal: AsyncStream<Void>.Continuation, of app: AppName) {
        let number = state.withLock { state in
            state.next += 1
            state.listeners[state.next] = (app, signal)
            return state.next
        }
        signal.onTermination = { [weak self] _ in
            self?.state.withLock { $0.listeners[number] = nil }
        }
    }

    /// - Parameter apps: nil: all.
    package func send(_ apps: Set<AppName>? = nil) {
        for listener in state.withLock({ Array($0.listeners.values) }) where apps?.contains(listener.app) ?? true {
            listener.signal.yield()
        }
    }
}

/// What a lease gave.
package struct LeasedPushes: Sendable, Hashable {
    package let pushes: [QueuedPush]
    /// Lanes in which more may be due.
    package let lanes: Set<PushLane>

    package init(_ pushes: [QueuedPush], lanes: Set<PushLane> = []) {
        self.pushes = pushes
        self.lanes = lanes
    }
}

/// What happened to leased pushes with consecutive ids.
package struct Settlement: Sendable, Hashable {
    package let pushIDs: ClosedRange<Int64>
    package let transition: Transition
    /// Of which they are pushes; nil for the chat's and other programs'.
    package let notification: NotificationID?
    /// They were `sent` because of silence, and an answer of the gateway came after all.
    package let overrulesSilence: Bool

    package init(
        _ pushIDs: ClosedRange<Int64>, _ transition: Transition, notification: NotificationID? = nil,
        overrulesSilence: Bool = false
    ) {
        self.pushIDs = pushIDs
        self.transition = transition
        self.notification = notification
        self.overrulesSilence = overrulesSilence
    }

    package var count: Int { pushIDs.count }
}

/// What a settlement changed.
package struct SettledPushes: Sendable, Hashable {
    package let count: Int
    /// Of a single push that was not sent; for the log.
    package let address: String?

    package init(count: Int, address: String? = nil) {
        self.count = count
        self.address = address
    }
}

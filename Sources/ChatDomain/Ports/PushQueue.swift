import Synchronization

/// The durable queue, as a dispatcher uses it.
///
/// A lease gives a push to one caller until that caller settles or releases it. Each store decides how to remember
/// leases. A store that serves one relay can keep its leases in memory, since after a crash every unsettled push is
/// sent again anyway. A store that several relays share keeps them in the database. `docs/stores.md` lists a store's
/// obligations.
package protocol PushQueue: Sendable {
    /// Leases due pushes of an app, in the order of the lanes and then of the push ids. No other caller gets these
    /// pushes until they are settled or released.
    ///
    /// - Parameter lanes: The lanes to lease from, in this order.
    /// - Returns: At most `limit` pushes. An empty result means that no push is due in these lanes.
    func lease(app: AppName, lanes: [PushLane], limit: Int) async throws(ChatError) -> LeasedPushes
    /// Leases as ``lease(app:lanes:limit:)``, but may pass over the pushes of some devices. They stay unleased.
    func lease(
        app: AppName, lanes: [PushLane], limit: Int, passing devices: Set<Address>
    ) async throws(ChatError) -> LeasedPushes
    /// Releases pushes to which nothing has happened. The pushes are due again, in `lane`.
    func release(_ pushIDs: [ClosedRange<Int64>], lane: PushLane, app: AppName)
    /// Records the outcomes of leased pushes in one transaction, and ends their leases.
    ///
    /// - Returns: The result of each settlement. It does not count rows that another program has deleted or settled.
    @discardableResult
    func settle(_ settlements: [Settlement], app: AppName) async throws(ChatError) -> [SettledPushes]
    /// Returns the time at which the app's next waiting push is due, or an earlier time at which to call this again.
    /// `nil` if no push waits.
    func nextDue(app: AppName) async throws(ChatError) -> Timestamp?
    /// Signals the continuation whenever there may be due pushes of the app, or ``nextDue(app:)`` may have become
    /// earlier. Stops when the continuation's stream ends.
    func announceArrivals(of app: AppName, to signal: AsyncStream<Void>.Continuation)
}

extension PushQueue {
    /// Passes over no device, for queues whose leases cost no writes.
    package func lease(
        app: AppName, lanes: [PushLane], limit: Int, passing devices: Set<Address>
    ) async throws(ChatError) -> LeasedPushes {
        try await lease(app: app, lanes: lanes, limit: limit)
    }

    /// Returns an endless sequence that yields whenever there may be due pushes of the app. Signals that no one has
    /// consumed are merged into one.
    package func arrivals(of app: AppName) -> AsyncStream<Void> {
        let (signals, signal) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        announceArrivals(of: app, to: signal)
        return signals
    }
}

/// Signals all listeners of an app. A listener is removed when its stream ends.
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

    /// Signals the listeners of some apps.
    ///
    /// - Parameter apps: The apps whose listeners to signal. `nil` for all.
    package func send(_ apps: Set<AppName>? = nil) {
        for listener in state.withLock({ Array($0.listeners.values) }) where apps?.contains(listener.app) ?? true {
            listener.signal.yield()
        }
    }
}

/// The pushes of one lease.
package struct LeasedPushes: Sendable, Hashable {
    package let pushes: [QueuedPush]
    /// The lanes in which more pushes may be due.
    package let lanes: Set<PushLane>

    package init(_ pushes: [QueuedPush], lanes: Set<PushLane> = []) {
        self.pushes = pushes
        self.lanes = lanes
    }
}

/// The outcome of leased pushes with consecutive ids.
package struct Settlement: Sendable, Hashable {
    package let pushIDs: ClosedRange<Int64>
    package let transition: Transition
    /// The notification of the pushes. `nil` for pushes of the chat and of other programs.
    package let notification: NotificationID?
    /// Whether the pushes were `sent` because of silence, and the gateway responded after all.
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

/// The result of one settlement: the number of rows that it changed.
package struct SettledPushes: Sendable, Hashable {
    package let count: Int
    /// The address for the log, if the settlement is about a single push that was not sent.
    package let address: String?

    package init(count: Int, address: String? = nil) {
        self.count = count
        self.address = address
    }
}

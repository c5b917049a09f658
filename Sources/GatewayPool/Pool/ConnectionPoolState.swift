import ChatDomain
package import NIOCore

/// The maximum numbers of a pool's connections, by purpose, and the pace at which the pool grows.
package struct PoolSize: Sendable {
    /// The number of connections that are kept open at all times.
    var permanent: Int
    /// The maximum number of additional connections. The pool opens one while a push waits for a slot and all
    /// connections are saturated.
    var additional: Int
    /// The maximum number of connections beyond the permanent and the additional ones. The pool opens a spare
    /// connection so that a suspected push does not delay other pushes.
    var spare: Int
    /// The minimum time between two additional connections.
    var growthInterval: TimeAmount
    /// Whether the pool may open a connection immediately for a waiter that needs a fresh one. If `false`, it does so
    /// only while a connection is blocked and every other connection is blocked or saturated.
    var growsForFresh: Bool

    package init(
        permanent: Int, additional: Int = 0, spare: Int = 0, growthInterval: TimeAmount = .seconds(1),
        growsForFresh: Bool = true
    ) {
        self.permanent = permanent
        self.additional = additional
        self.spare = spare
        self.growthInterval = growthInterval
        self.growsForFresh = growsForFresh
    }

    var total: Int { permanent + additional + spare }
}

/// An attempt to open a connection.
package struct ConnectionAttempt<Target: Sendable>: Sendable {
    package let target: Target
    package let isPermanent: Bool
    /// Whether an earlier connection with the same target has made progress or had a push rejected, so that the
    /// credentials are known to be accepted.
    package let isConfirmed: Bool
    fileprivate let connector: Int
    fileprivate let generation: Int
    fileprivate let startedAt: NIODeadline
}

/// Decides which connections an app has to its gateway, when they are opened, and which of them gets the next pushes.
///
/// A pure value without sockets, tasks and clocks. Each event returns actions, which must be performed in their order.
/// A waiter stays here until an action hands out a slot to it. Each event that may make a slot available checks all
/// waiters again, so no wake-up is lost between a check and a wait.
struct ConnectionPoolState<Target: Sendable, Connection: PooledConnection, Waiter: Sendable>: Sendable {
    enum Action: Sendable {
        /// Open a connection. Then call ``opened(_:_:now:)`` or ``failed(_:random:now:)``.
        case connect(ConnectionAttempt<Target>)
        /// Call ``timePassed(now:)`` at this time.
        case wakeUp(at: NIODeadline)
        case drain(Connection)
        /// Resume the waiter with this slot.
        /// - Parameter slot: `nil` if the pool is stopping or the waiter was cancelled.
        case handOut(ConnectionSlot?, to: Waiter)
    }

    /// A connection that stayed open longer than this counts as progress, even if nothing was sent on it.
    private static var longLife: TimeAmount { .seconds(10) }
    /// The maximum number of retired connections that may wait for outcomes while their successors are opened.
    private static var retiredLimit: Int { 8 }

    /// Opens one connection after another. It opens the next connection when the current one accepts no more pushes.
    private struct Connector {
        enum Phase: Equatable {
            case idle, busy
            case backingOff(until: NIODeadline)
        }

        var phase = Phase.idle
        var backoff = ReconnectBackoff()
        var generation = 0
    }

    private struct Entry {
        let connection: Connection
        let isPermanent: Bool
        /// Whether too many connections were open when this one was opened. Its successor must then wait until this one
        /// is closed.
        let isBeyondLimit: Bool
        var isDraining: Bool
    }

    private struct Waiting {
        let id: UInt64
        let waiter: Waiter
        let fresh: Bool
        /// Whether a connection was already drained for this waiter.
        var hasReplaced = false
    }

    private let size: PoolSize
    /// `nil` if the gateway's responses do not distinguish its own failures from others.
    private let breaker: CircuitBreaker?
    private var target: Target?
    /// Increases with each change of the target.
    private var generation = 0
    private var isStopping = false
    /// Whether a connection with the current target has made progress or had a push rejected.
    private var isConfirmed = false
    /// The connectors, permanent ones first.
    private var connectors: [Connector]
    /// Open connections, permanent ones first.
    private var entries: [Entry] = []
    private var waiting: [Waiting] = []
    /// The number of requested additional connections that no connector has started to open yet.
    private var pendingAdditional = 0
    private var lastGrowth = NIODeadline.distantPast
    /// The earliest time for which a wake-up was requested.
    private var nextWakeUp: NIODeadline?

    init(target: Target?, size: PoolSize, breaker: CircuitBreaker? = nil) {
        self.target = target
        self.size = size
        self.breaker = breaker
        connectors = Array(repeating: Connector(), count: size.total)
    }

    /// The number of open connections, including those that only wait for their last outcomes.
    var openConnections: Int { entries.count }

    func connection(_ connectionID: ConnectionID) -> Connection? {
        entries.first { $0.connection.id == connectionID }?.connection
    }

    // MARK: Connections

    mutating func start(now: NIODeadline) -> [Action] { connect(now: now) }

    mutating func opened(
        _ connection: Connection, _ attempt: ConnectionAttempt<Target>, now: NIODeadline
    ) -> [Action] {
        let isCurrent = !isStopping && attempt.generation == generation
        let entry = Entry(
            connection: connection, isPermanent: attempt.isPermanent,
            isBeyondLimit: entries.count + 1 > size.total + Self.retiredLimit, isDraining: !isCurrent)
        let index = attempt.isPermanent ? entries.firstIndex { !$0.isPermanent } : nil
        entries.insert(entry, at: index ?? entries.endIndex)
        return isCurrent ? serveWaiters(now: now) : [.drain(connection)]
    }

    /// Records that no connection could be opened, and delays the next attempt.
    /// - Parameter random: A number from 0 to 1.
    mutating func failed(_ attempt: ConnectionAttempt<Target>, random: Double, now: NIODeadline) -> [Action] {
        backOff(attempt.connector, after: .nothing, hasSucceededRecently: false, random: random, now: now)
    }

    /// Whether the caller must wait until the connection is closed before it calls ``retired(_:result:random:now:)``.
    func mustBeClosed(_ connection: Connection) -> Bool {
        entries.contains { $0.connection === connection && $0.isBeyondLimit }
    }

    /// Records that the connection of an attempt accepts no more pushes.
    mutating func retired(
        _ attempt: ConnectionAttempt<Target>, result: ConnectionResult, random: Double, now: NIODeadline
    ) -> [Action] {
        if result != .nothing, attempt.generation == generation { isConfirmed = true }
        let hasLived = now - attempt.startedAt > Self.longLife
        return backOff(
            attempt.connector, after: result == .nothing && hasLived ? .progress : result,
            hasSucceededRecently: breaker?.hasSucceededRecently(now: now) ?? false, random: random, now: now)
    }

    mutating func closed(_ connection: Connection, now: NIODeadline) -> [Action] {
        entries.removeAll { $0.connection === connection }
        // From now on, the pool reports a write to this connection immediately as not processed.
        return serveWaiters(now: now)
    }

    mutating func timePassed(now: NIODeadline) -> [Action] {
        if let time = nextWakeUp, time <= now { nextWakeUp = nil }
        var actions = connect(now: now) + serveWaiters(now: now)
        for connector in connectors {
            // A connector that has not connected after its delay waits for a target and needs no wake-up.
            if case .backingOff(let until) = connector.phase, until > now { actions += requestWakeUp(at: until) }
        }
        return actions
    }

    /// Uses another target for new connections. The open ones are drained and replaced.
    mutating func reconfigure(target: Target?, now: NIODeadline) -> [Action] {
        self.target = target
        generation += 1
        isConfirmed = false
        pendingAdditional = 0
        return drainEntries() + connect(now: now) + serveWaiters(now: now)
    }

    /// Stops opening connections and handing out slots.
    /// - Returns: The open connections, and the actions to perform.
    mutating func stop(now: NIODeadline) -> ([Connection], [Action]) {
        isStopping = true
        return (entries.map(\.connection), drainEntries() + serveWaiters(now: now))
    }

    private mutating func drainEntries() -> [Action] {
        for index in entries.indices { entries[index].isDraining = true }
        return entries.map { .drain($0.connection) }
    }

    private mutating func backOff(
        _ index: Int, after result: ConnectionResult, hasSucceededRecently: Bool, random: Double, now: NIODeadline
    ) -> [Action] {
        let delay = connectors[index].backoff.delay(
            after: result, hasSucceededRecently: hasSucceededRecently, random: random)
        connectors[index].phase = delay > .zero ? .backingOff(until: now + delay) : .idle
        let actions = connect(now: now)
        guard case .backingOff(let until) = connectors[index].phase else { return actions }
        return actions + requestWakeUp(at: until)
    }

    /// Starts all connectors that may connect.
    private mutating func connect(now: NIODeadline) -> [Action] {
        guard let target, !isStopping else { return [] }
        var actions: [Action] = []
        for index in connectors.indices {
            let isOutdated = connectors[index].generation != generation
            switch connectors[index].phase {
            case .busy: continue
            case .backingOff(let until) where now < until && !isOutdated: continue
            case .backingOff, .idle: connectors[index].phase = .idle
            }
            let isPermanent = index < size.permanent
            if !isPermanent {
                guard pendingAdditional > 0 else { continue }
                pendingAdditional -= 1
            }
            if isOutdated { connectors[index].backoff = ReconnectBackoff() }
            connectors[index].generation = generation
            connectors[index].phase = .busy
            actions.append(
                .connect(
                    ConnectionAttempt(
                        target: target, isPermanent: isPermanent, isConfirmed: isConfirmed, connector: index,
                        generation: generation, startedAt: now)))
        }
        return actions
    }

    private mutating func requestWakeUp(at time: NIODeadline) -> [Action] {
        if let nextWakeUp, nextWakeUp <= time { return [] }
        nextWakeUp = time
        return [.wakeUp(at: time)]
    }

    // MARK: Waiters

    /// Adds a waiter for a slot.
    /// - Parameter fresh: Whether the waiter needs a connection without pushes in doubt.
    mutating func request(_ waiter: Waiter, id: UInt64, fresh: Bool, now: NIODeadline) -> [Action] {
        waiting.append(Waiting(id: id, waiter: waiter, fresh: fresh))
        return serveWaiters(now: now)
    }

    mutating func cancel(_ id: UInt64) -> [Action] {
        guard let index = waiting.firstIndex(where: { $0.id == id }) else { return [] }
        return [.handOut(nil, to: waiting.remove(at: index).waiter)]
    }

    /// Serves waiters again, because a connection or the circuit breaker may allow more pushes than before.
    mutating func changed(now: NIODeadline) -> [Action] { serveWaiters(now: now) }

    private mutating func serveWaiters(now: NIODeadline) -> [Action] {
        guard !waiting.isEmpty else { return [] }
        guard !isStopping else {
            defer { waiting = [] }
            return waiting.map { .handOut(nil, to: $0.waiter) }
        }
        let permission = breaker?.permission(now: now) ?? .all
        var actions: [Action] = []
        var unserved: [Waiting] = []
        for var waiting in waiting {
            if let slot = slot(fresh: waiting.fresh, permission) {
                actions.append(.handOut(slot, to: waiting.waiter))
                continue
            }
            if case .all = permission { actions += grow(fresh: waiting.fresh, now: now) }
            if waiting.fresh, !waiting.hasReplaced,
                let index = entries.lastIndex(where: { !$0.isDraining && $0.connection.isReplaceable })
            {
                // The successor will be fresh. It is opened after the pushes in flight on this connection have their
                // outcomes.
                waiting.hasReplaced = true
                entries[index].isDraining = true
                actions.append(.drain(entries[index].connection))
            }
            unserved.append(waiting)
        }
        waiting = unserved
        if case .none(let until) = permission { actions += requestWakeUp(at: until) }
        return actions
    }

    /// Returns the slot of the first connection that offers a suitable one. This keeps pushes in order as long as
    /// nothing fails.
    private func slot(fresh: Bool, _ permission: CircuitBreaker.Permission) -> ConnectionSlot? {
        if case .none = permission { return nil }
        for entry in entries where !entry.isDraining {
            guard let slot = entry.connection.slot, slot.isFresh || !fresh else { continue }
            if case .test(let limit, let test) = permission { return slot.narrowed(to: limit, test) }
            return slot
        }
        return nil
    }

    /// Requests another connection if it would help a waiter. A waiter for a fresh connection is served sooner by a new
    /// connection than by an open one that still waits for responses.
    private mutating func grow(fresh: Bool, now: NIODeadline) -> [Action] {
        let isBlocked =
            entries.contains { $0.connection.isBlocked }
            && entries.allSatisfy { $0.connection.isBlocked || $0.connection.isSaturated }
        let limit: Int
        if (fresh && size.growsForFresh) || isBlocked {
            limit = size.additional + size.spare
        } else if entries.allSatisfy({ $0.connection.isSaturated }) {
            limit = size.additional
        } else {
            return []
        }
        guard pendingAdditional == 0, !entries.isEmpty, entries.count(where: { !$0.isPermanent }) < limit else {
            return []
        }
        let earliest = lastGrowth + size.growthInterval
        guard now > earliest else { return requestWakeUp(at: earliest + .nanoseconds(1)) }
        pendingAdditional = 1
        lastGrowth = now
        return connect(now: now)
    }
}

extension ConnectionSlot {
    /// Returns this slot for a test, with a capacity of at most `limit` pushes.
    fileprivate func narrowed(to limit: Int, _ test: ServiceTest) -> ConnectionSlot {
        ConnectionSlot(
            connection: connection, firstIdentifier: firstIdentifier, capacity: min(capacity, limit), isFresh: isFresh,
            answersEach: answersEach, isProvenBySilence: isProvenBySilence, test: test)
    }
}

import ChatDomain
import NIOCore

/// How many connections a pool has.
struct PoolSize: Sendable {
    /// Always kept.
    var permanent: Int
    /// Opened in addition while a waiter waits and all are saturated.
    var additional = 0
    /// Opened in addition to all of these for pushes that a suspected push must not hold up.
    var spare = 0
    /// The shortest time between two that are opened in addition.
    var growthInterval = TimeAmount.seconds(1)
    /// Whether a waiter for a fresh connection gets one in addition. If not, it only gets one while all others are blocked.
    var growsForFresh = true

    var total: Int { permanent + additional + spare }
}

/// An attempt to open a connection.
struct ConnectionAttempt<Target: Sendable>: Sendable {
    let target: Target
    let isPermanent: Bool
    /// A connection with the same target has achieved something before.
    let isConfirmed: Bool
    fileprivate let connector: Int
    fileprivate let generation: Int
    fileprivate let startedAt: NIODeadline
}

/// Decides which connections an app has to its gateway, when they are opened, and which of them takes pushes.
///
/// A value without sockets, tasks and clocks. Each event returns the actions that follow from it, to be performed in their
/// order. A waiter is kept here until an action hands something out to it, and each event that may help it looks at it
/// again, so that no wake-up can be lost between a look and a wait.
struct ConnectionPoolState<Target: Sendable, Connection: PooledConnection, Waiter: Sendable>: Sendable {
    enum Action: Sendable {
        /// Report ``opened(_:_:now:)`` or ``failed(_:random:now:)`` for it.
        case connect(ConnectionAttempt<Target>)
        /// Report ``timePassed(now:)`` then.
        case wakeUp(at: NIODeadline)
        case drain(Connection)
        /// - Parameter slot: nil when the pool is being stopped or the waiter was cancelled.
        case handOut(ConnectionSlot?, to: Waiter)
    }

    /// A connection that was open for so long was wanted, even if nothing was sent on it.
    private static var longLife: TimeAmount { .seconds(10) }
    /// Retired connections that may still wait for answers while their successors are opened.
    private static var retiredLimit: Int { 8 }

    /// Opens one connection after another, the next when the last one takes no more pushes.
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
        /// There are so many that its successor waits until it is closed.
        let isBeyondLimit: Bool
        var isDraining: Bool
    }

    private struct Waiting {
        let id: UInt64
        let waiter: Waiter
        let fresh: Bool
        /// A connection was closed for it.
        var hasReplaced = false
    }

    private let size: PoolSize
    /// Nil where the gateway's answers do not tell its failures from others.
    private let breaker: CircuitBreaker?
    private var target: Target?
    /// Grows with each change of the target.
    private var generation = 0
    private var isStopping = false
    /// A connection with the present target has achieved something.
    private var isConfirmed = false
    /// The permanent ones come first.
    private var connectors: [Connector]
    /// Open connections, the permanent ones first.
    private var entries: [Entry] = []
    private var waiting: [Waiting] = []
    /// Connections in addition to the permanent ones that no connector has begun to open yet.
    private var wanted = 0
    private var lastGrowth = NIODeadline.distantPast
    /// The earliest time for which a wake-up was requested.
    private var nextWakeUp: NIODeadline?

    init(target: Target?, size: PoolSize, breaker: CircuitBreaker? = nil) {
        self.target = target
        self.size = size
        self.breaker = breaker
        connectors = Array(repeating: Connector(), count: size.total)
    }

    /// Connections that are open, those that only wait for their last answers included.
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

    /// - Parameter random: from 0 to 1.
    mutating func failed(_ attempt: ConnectionAttempt<Target>, random: Double, now: NIODeadline) -> [Action] {
        backOff(attempt.connector, after: .nothing, isAmidProgress: false, random: random, now: now)
    }

    /// Whether ``retired(_:result:random:now:)`` is to be reported only when the connection is closed.
    func mustBeClosed(_ connection: Connection) -> Bool {
        entries.contains { $0.connection === connection && $0.isBeyondLimit }
    }

    /// The connection of an attempt takes no more pushes.
    mutating func retired(
        _ attempt: ConnectionAttempt<Target>, result: ConnectionResult, random: Double, now: NIODeadline
    ) -> [Action] {
        if result != .nothing, attempt.generation == generation { isConfirmed = true }
        let hasLived = now - attempt.startedAt > Self.longLife
        return backOff(
            attempt.connector, after: result == .nothing && hasLived ? .progress : result,
            isAmidProgress: breaker?.hasSucceededRecently(now: now) ?? false, random: random, now: now)
    }

    mutating func closed(_ connection: Connection, now: NIODeadline) -> [Action] {
        entries.removeAll { $0.connection === connection }
        // What is written for it from now on has its outcome at once.
        return serveWaiters(now: now)
    }

    mutating func timePassed(now: NIODeadline) -> [Action] {
        if let time = nextWakeUp, time <= now { nextWakeUp = nil }
        var actions = connect(now: now) + serveWaiters(now: now)
        for connector in connectors {
            // One whose time has come and that did not connect waits for a target.
            if case .backingOff(let until) = connector.phase, until > now { actions += requestWakeUp(at: until) }
        }
        return actions
    }

    /// Connections from now on have another target; the open ones are drained and replaced.
    mutating func reconfigure(target: Target?, now: NIODeadline) -> [Action] {
        self.target = target
        generation += 1
        isConfirmed = false
        wanted = 0
        return drainEntries() + connect(now: now) + serveWaiters(now: now)
    }

    /// Opens nothing and gives out no slots any more.
    /// - Returns: the open connections, and what else follows.
    mutating func stop(now: NIODeadline) -> ([Connection], [Action]) {
        isStopping = true
        return (entries.map(\.connection), drainEntries() + serveWaiters(now: now))
    }

    private mutating func drainEntries() -> [Action] {
        for index in entries.indices { entries[index].isDraining = true }
        return entries.map { .drain($0.connection) }
    }

    private mutating func backOff(
        _ index: Int, after result: ConnectionResult, isAmidProgress: Bool, random: Double, now: NIODeadline
    ) -> [Action] {
        let delay = connectors[index].backoff.delay(after: result, isAmidProgress: isAmidProgress, random: random)
        connectors[index].phase = delay > .zero ? .backingOff(until: now + delay) : .idle
        let actions = connect(now: now)
        guard case .backingOff(let until) = connectors[index].phase else { return actions }
        return actions + requestWakeUp(at: until)
    }

    /// Lets all connectors that may connect do so.
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
                guard wanted > 0 else { continue }
                wanted -= 1
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

    /// - Parameter fresh: it wants a connection on which nothing is in doubt.
    mutating func request(_ waiter: Waiter, id: UInt64, fresh: Bool, now: NIODeadline) -> [Action] {
        waiting.append(Waiting(id: id, waiter: waiter, fresh: fresh))
        return serveWaiters(now: now)
    }

    mutating func cancel(_ id: UInt64) -> [Action] {
        guard let index = waiting.firstIndex(where: { $0.id == id }) else { return [] }
        return [.handOut(nil, to: waiting.remove(at: index).waiter)]
    }

    /// A connection or the circuit breaker may allow more than before.
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
                // Its successor will be fresh. What is in flight on it gets its outcome first.
                waiting.hasReplaced = true
                entries[index].isDraining = true
                actions.append(.drain(entries[index].connection))
            }
            unserved.append(waiting)
        }
        waiting = unserved
        if case .none(let until?) = permission { actions += requestWakeUp(at: until) }
        return actions
    }

    /// The slot of the first connection that has one, so that order is kept while all is well.
    private func slot(fresh: Bool, _ permission: CircuitBreaker.Permission) -> ConnectionSlot? {
        let isProbe: Bool
        switch permission {
        case .none: return nil
        case .one: isProbe = true
        case .all: isProbe = false
        }
        for entry in entries where !entry.isDraining {
            guard let slot = entry.connection.slot, slot.isFresh || !(fresh || isProbe) else { continue }
            return isProbe ? slot.narrowed : slot
        }
        return nil
    }

    /// Asks for another connection where it would help a waiter. A fresh one comes sooner so than from one on which answers
    /// are due.
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
        guard wanted == 0, !entries.isEmpty, entries.count(where: { !$0.isPermanent }) < limit else { return [] }
        let earliest = lastGrowth + size.growthInterval
        guard now > earliest else { return requestWakeUp(at: earliest + .nanoseconds(1)) }
        wanted = 1
        lastGrowth = now
        return connect(now: now)
    }
}

extension ConnectionSlot {
    /// For one push.
    fileprivate var narrowed: ConnectionSlot {
        ConnectionSlot(
            connection: connection, firstIdentifier: firstIdentifier, capacity: min(capacity, 1), isFresh: isFresh,
            answersEach: answersEach, isProvenBySilence: isProvenBySilence)
    }
}

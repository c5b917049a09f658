import ChatDomain
import NIOCore

/// Wakes those who wait for a change; a change between their look and their wait is not missed, because they say which
/// they have seen.
struct Bell {
    private(set) var rings = 0
    var waiting: [CheckedContinuation<Void, Never>] = []

    /// - Returns: those to resume, once no lock is held.
    mutating func ring() -> [CheckedContinuation<Void, Never>] {
        rings += 1
        defer { waiting = [] }
        return waiting
    }
}

extension ConnectionPool {
    /// Connections that are open, those that only wait for their last answers included.
    var openConnections: Int { state.withLock { $0.members.count } }

    struct Member {
        let connection: Connection
        let isPermanent: Bool
    }

    struct State {
        var target: Target?
        /// Grows with each change of the target.
        var generation = 0
        /// The permanent ones first.
        private(set) var members: [Member] = []
        /// Rings when a slot may have come free.
        var slots = Bell()
        /// Rings when the target has changed, the pool stops, or another connection is wanted.
        var seats = Bell()
        var isStopping = false
        /// A connection with the present target has done some good.
        var isProved = false
        /// Connections beyond the permanent ones that somebody asked for and nobody has opened yet.
        var wanted = 0
        var lastGrowth = NIODeadline.distantPast

        init(target: Target?) {
            self.target = target
        }

        var connections: [Connection] { members.map(\.connection) }

        mutating func add(_ connection: Connection, isPermanent: Bool) {
            let member = Member(connection: connection, isPermanent: isPermanent)
            members.insert(
                member,
                at: isPermanent
                    ? members.firstIndex { !$0.isPermanent } ?? members.endIndex
                    : members.endIndex)
        }

        mutating func remove(_ connection: Connection) {
            members.removeAll { $0.connection === connection }
        }

        /// All there are do what they can.
        var isSaturated: Bool { !members.isEmpty && members.allSatisfy { $0.connection.isSaturated } }
        /// The same, but for what a push holds up.
        var isHeld: Bool {
            members.contains { $0.connection.isHeld }
                && members.allSatisfy { $0.connection.isHeld || $0.connection.isSaturated }
        }
    }
}

import ChatDomain
import NIOCore

/// Finds room for pushes.
extension ConnectionPool {
    /// Whether slots are given out.
    enum Gate: Sendable {
        case open, closed
        /// One push at a time, to see how it fares.
        case ajar
    }

    /// - Parameter gate: asked each time something has changed.
    func slot(fresh: Bool, gate: @Sendable () -> Gate = { .open }) async -> ConnectionSlot? {
        var hasAsked = false
        while true {
            let gate = gate()
            var spare: Connection?
            var keepers: [CheckedContinuation<Void, Never>] = []
            let (slot, isStopping, rings) = state.withLock { state in
                let slot = gate == .closed ? nil : Self.slot(of: state, fresh: fresh || gate == .ajar)
                if slot == nil, fresh { spare = state.members.last { $0.connection.canBeSpared }?.connection }
                if slot == nil, gate == .open {
                    // For a probe, another connection is fresh sooner than one on which answers are due.
                    if fresh || state.isHeld {
                        keepers = grow(&state, to: size.further + size.spare)
                    } else if state.isSaturated {
                        keepers = grow(&state, to: size.further)
                    }
                }
                return (slot, state.isStopping || Task.isCancelled, state.slots.rings)
            }
            for keeper in keepers { keeper.resume() }
            if isStopping { return nil }
            if let slot { return gate == .ajar ? slot.narrowed : slot }
            if fresh, !hasAsked, let spare {
                // Its successor will be fresh. What is in flight on it gets its verdict first.
                hasAsked = true
                Task { await spare.drain() }
            }
            await change(since: rings, of: \.slots)
        }
    }

    private static func slot(of state: State, fresh: Bool) -> ConnectionSlot? {
        for member in state.members {
            if let slot = member.connection.slot, !fresh || slot.isFresh { return slot }
        }
        return nil
    }

    /// Asks for another connection, unless there are so many beside the permanent ones.
    private func grow(_ state: inout State, to limit: Int) -> [CheckedContinuation<Void, Never>] {
        let now = NIODeadline.now()
        guard state.wanted == 0, !state.members.isEmpty, state.members.count(where: { !$0.isPermanent }) < limit,
            now - state.lastGrowth > size.growthInterval
        else { return [] }
        state.wanted = 1
        state.lastGrowth = now
        return state.seats.ring()
    }
}

extension ConnectionSlot {
    /// For one push.
    fileprivate var narrowed: ConnectionSlot {
        ConnectionSlot(
            connection: connection, firstIdentifier: firstIdentifier, room: min(room, 1), isFresh: isFresh,
            answersEach: answersEach)
    }
}

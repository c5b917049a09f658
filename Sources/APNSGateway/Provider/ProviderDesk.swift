import ChatDomain
import Synchronization

/// Where a connection of the provider API, on its event loop, and those who lease for it agree on what it can take.
final class ProviderDesk: Sendable {
    private struct State {
        /// Pushes that were leased for the connection.
        var leased: UInt32 = 0
        /// Those of them that have their verdict.
        var settled: UInt32 = 0
        var capacity = 0
        var canBeSaturated = false
        /// The first push has been without an answer for some time.
        var hesitates = false
        /// What was leased last has to be proved alone.
        var isProbing = false

        var outstanding: Int { Int(leased) - Int(settled) }

        /// What may be leased now; nil while that would be too little for a transaction of its own.
        var room: Int? {
            guard !isProbing else { return nil }
            let room = min(capacity - outstanding, ProviderLimits.leaseLimit)
            return room >= max(1, min(capacity, ProviderLimits.leaseLimit) / 4) ? room : nil
        }
    }

    private let state = Mutex(State())

    func slot(on epoch: ConnectionEpoch) -> ConnectionSlot? {
        let (leased, outstanding, room) = state.withLock { ($0.leased, $0.outstanding, $0.room) }
        guard let room else { return nil }
        return ConnectionSlot(
            connection: epoch, firstIdentifier: leased + 1, room: room, isFresh: outstanding <= 0, answersEach: true)
    }

    var isSaturated: Bool { state.withLock { $0.canBeSaturated && !$0.isProbing && $0.room == nil } }
    var isHeld: Bool { state.withLock { $0.isProbing || $0.hesitates } }

    func noteLeased(through identifier: UInt32, isProbe: Bool) {
        state.withLock { state in
            state.leased = identifier
            state.isProbing = isProbe
        }
    }

    /// - Parameters:
    ///   - settled: how many more pushes have their verdict.
    ///   - capacity: how many may be here at once.
    /// - Returns: whether those who wait should look again: there is room, or another connection would help.
    func publish(settled: Int, capacity: Int, canBeSaturated: Bool, hesitates: Bool) -> Bool {
        state.withLock { state in
            state.settled += UInt32(settled)
            state.capacity = capacity
            let isNews = hesitates && !state.hesitates
            state.canBeSaturated = canBeSaturated
            state.hesitates = hesitates
            if state.outstanding <= 0 { state.isProbing = false }
            return state.room != nil || isNews
        }
    }
}

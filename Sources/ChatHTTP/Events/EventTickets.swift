import ChatDomain
import NIOCore
import Synchronization

/// Tickets that stand for a member's udid in the address of one event stream: each for one use, within
/// ``HTTPLimits/ticketTime``. Kept in memory, ``HTTPLimits/tickets`` at the most: above that the oldest ends.
final class EventTickets: Sendable {
    /// The holder of a ticket.
    struct Holder: Sendable, Hashable {
        let member: MemberID
        /// The end of the session that the ticket was made with; `nil` without a session.
        var sessionEnd: Timestamp?
    }

    private struct State {
        var holders: [UInt128: (holder: Holder, end: Duration)] = [:]
        /// All that are not too old, also those that were used, oldest first.
        var made = CircularBuffer<(number: UInt128, end: Duration)>()
    }

    private let state = Mutex(State())
    private let capacity: Int
    private let clock: MonotonicTime

    init(capacity: Int = HTTPLimits.tickets, clock: MonotonicTime) {
        self.capacity = capacity
        self.clock = clock
    }

    /// Tickets that are held in memory.
    var count: Int { state.withLock { max($0.holders.count, $0.made.count) } }

    func make(for holder: Holder) -> String {
        // The system's generator: it cannot be predicted.
        let number = UInt128.random(in: 0...UInt128.max)
        let now = clock.now()
        state.withLock { state in
            while let oldest = state.made.first, oldest.end <= now || state.made.count >= capacity {
                state.made.removeFirst()
                state.holders[oldest.number] = nil
            }
            state.made.append((number, now + HTTPLimits.ticketTime))
            state.holders[number] = (holder, now + HTTPLimits.ticketTime)
        }
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: Self.digits - digits.count) + digits
    }

    /// Uses a ticket. Returns its holder; `nil` if the ticket was used, is too old, or never was one.
    func take(_ ticket: Substring) -> Holder? {
        guard ticket.utf8.count == Self.digits, ticket.utf8.allSatisfy(Hex.isDigit),
            let number = UInt128(ticket, radix: 16)
        else { return nil }
        let now = clock.now()
        guard let (holder, end) = state.withLock({ $0.holders.removeValue(forKey: number) }), now < end else {
            return nil
        }
        return holder
    }

    private static let digits = 32
}

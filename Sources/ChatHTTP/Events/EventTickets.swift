import ChatDomain
import NIOCore
import Synchronization

/// Tickets that replace a member's udid in the address of an event stream. Each is valid once, within
/// ``HTTPLimits/ticketTime``. Tickets are kept in memory, up to ``HTTPLimits/tickets``. Above that the oldest is
/// dropped.
final class EventTickets: Sendable {
    /// The holder of a ticket.
    struct Holder: Sendable, Hashable {
        let member: MemberID
        /// The end of the session with which the ticket was created. `nil` without a session.
        var sessionEnd: Timestamp?
    }

    private struct State {
        var holders: [UInt128: (holder: Holder, end: Duration)] = [:]
        /// All recent tickets, including used ones, oldest first.
        var made = CircularBuffer<(number: UInt128, end: Duration)>()
    }

    private let state = Mutex(State())
    private let capacity: Int
    private let clock: MonotonicTime

    init(capacity: Int = HTTPLimits.tickets, clock: MonotonicTime) {
        self.capacity = capacity
        self.clock = clock
    }

    /// The number of tickets in memory.
    var count: Int { state.withLock { max($0.holders.count, $0.made.count) } }

    func make(for holder: Holder) -> String {
        // The system's random generator is unpredictable.
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

    /// Uses a ticket and returns its holder. `nil` if the ticket is unknown, used, or expired.
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

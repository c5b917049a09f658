import ChatDomain
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("Tickets for event streams")
struct EventTicketsTests {
    private let clock = TestClock()

    private func tickets(_ capacity: Int) -> EventTickets {
        EventTickets(capacity: capacity, clock: MonotonicTime(clock))
    }

    @Test("A ticket yields its member once")
    func once() throws {
        let tickets = tickets(10)
        let (first, second) = (MemberID(stored: "1"), MemberID(stored: "2"))
        let made = [first, second].map { tickets.make(for: .init(member: $0)) }
        #expect(tickets.take(made[1][...])?.member == second)
        #expect(tickets.take(made[1][...]) == nil)
        #expect(tickets.take(made[0][...])?.member == first)
    }

    @Test("A ticket is valid for its time and no longer")
    func time() throws {
        let tickets = tickets(10)
        let made = (1...2).map { _ in tickets.make(for: .init(member: MemberID(stored: "1"))) }
        clock.advance(by: HTTPLimits.ticketTime - .milliseconds(1))
        #expect(tickets.take(made[0][...]) != nil)
        clock.advance(by: .milliseconds(1))
        #expect(tickets.take(made[1][...]) == nil)
    }

    @Test("The memory is bounded even if tickets are used; expired and oldest tickets make room")
    func bounded() throws {
        let tickets = tickets(100)
        let made = (0..<1000).map { _ in
            #expect(tickets.count <= 100)
            return tickets.make(for: .init(member: MemberID(stored: "1")))
        }
        #expect(tickets.count == 100)
        #expect(tickets.take(made[899][...]) == nil)
        #expect(tickets.take(made[900][...]) != nil && tickets.take(made[999][...]) != nil)
        for _ in 0..<1000 { #expect(tickets.take(tickets.make(for: .init(member: MemberID(stored: "2")))[...]) != nil) }
        #expect(tickets.count <= 100)
        clock.advance(by: HTTPLimits.ticketTime)
        _ = tickets.make(for: .init(member: MemberID(stored: "3")))
        #expect(tickets.count == 1)
    }
}

import ChatDomain
import Testing

@testable import ChatHTTP

@Suite("The schedule of reading receipts") struct ReceiptScheduleTests {
    private static func rooms(_ numbers: Range<Int>) throws -> [SecretCode] {
        try numbers.map { try SecretCode(parsing: "room\($0)") }
    }

    @Test("Each room is read before any is read again, and a message is followed for a minute")
    func turns() throws {
        var schedule = ReceiptSchedule()
        let count = 1000
        let rooms = try Self.rooms(0..<count)
        for room in rooms { schedule.posted(in: room, at: .zero) }
        for start in [0, 10, 20] {
            var seen: Set<SecretCode> = []
            for run in 0..<count / ReceiptSchedule.roomsPerRun {
                let some = schedule.take(now: .seconds(start + run)) { _ in true }
                #expect(some.count == ReceiptSchedule.roomsPerRun && seen.isDisjoint(with: some))
                seen.formUnion(some)
            }
            #expect(seen == Set(rooms))
        }
        #expect(schedule.take(now: .seconds(60)) { _ in true } == [])
    }

    @Test("Receipts are not read without a stream or before the interval, except at once after a change")
    func interval() throws {
        var schedule = ReceiptSchedule()
        let rooms = try Self.rooms(0..<2)
        for room in rooms { schedule.posted(in: room, at: .zero) }
        #expect(Set(schedule.take(now: .zero) { _ in true }) == Set(rooms))
        #expect(schedule.take(now: .seconds(1)) { $0 == rooms[0] } == [rooms[0]])
        #expect(schedule.take(now: .seconds(5)) { _ in true } == [])
        schedule.changed(in: [rooms[1]])
        #expect(schedule.take(now: .seconds(5)) { _ in true } == [rooms[1]])
        #expect(schedule.take(now: .seconds(6)) { _ in true } == [rooms[0]])
    }
}

import ChatDomain
import Testing

@testable import ChatStorePostgres

@Suite("The leases that a relay remembers")
struct QueueLeasesTests {
    private var leases = QueueLeases()
    private let start = ContinuousClock.now

    private func row(_ id: Int64, until time: Int64 = .min) -> LeasedRow {
        LeasedRow(
            push: QueuedPush(id: id, address: nil, payload: nil, apnsID: ""),
            floor: QueueLeases.Floor(time: time, id: id))
    }

    private mutating func lease(_ rows: [LeasedRow], at seconds: Int) {
        let plan = leases.begin(.default)
        leases.finish(plan, rows, app: .default, at: start + .seconds(seconds))
    }

    /// Returns the floors of the first lane.
    private mutating func floors() -> [QueueLeases.Floor] {
        let plan = leases.begin(.default)
        leases.finish(plan, [], app: .default, at: start)
        return [plan.due[0], plan.waiting[0]]
    }

    @Test("A lane is read from its floor, which rises late and falls at once")
    mutating func floorsMove() {
        lease([row(10), row(11), row(3, until: 7)], at: 0)
        lease([row(20)], at: 1)
        var moved = floors()
        #expect(moved == [QueueLeases.Floor(), QueueLeases.Floor()])
        lease([row(30), row(4, until: 8)], at: 3)
        moved = floors()
        #expect(moved == [QueueLeases.Floor(id: 10), QueueLeases.Floor(time: 7, id: 3)])
        leases.found(.default, lane: 0, due: QueueLeases.Floor(id: 99), at: start + .seconds(6))
        moved = floors()
        #expect(moved[0] == QueueLeases.Floor(id: 30))
        leases.release([25...26], app: .default)
        moved = floors()
        #expect(moved == [QueueLeases.Floor(id: 25), QueueLeases.Floor()])
        leases.found(.default, lane: 0, due: QueueLeases.Floor(id: -2), at: start + .seconds(9))
        moved = floors()
        #expect(moved[0] == QueueLeases.Floor(id: -2))
    }

    @Test("Returned leases are released once, and again after a failed call")
    mutating func returned() {
        lease([row(1), row(2)], at: 0)
        leases.release([1...2], app: .default)
        let failed = leases.begin(.default)
        let left = leases.takeReturned()
        #expect(failed.returned == [1...2] && left.isEmpty)
        leases.fail(failed, app: .default, at: start)
        let (again, after) = (leases.begin(.default), leases.begin(.default))
        #expect(again.returned == [1...2] && after.returned.isEmpty)
    }

    @Test("After a new start, a failed call of the earlier one returns none of its releases")
    mutating func failsLate() {
        leases.belong(to: 1)
        lease([row(1)], at: 0)
        leases.release([1...1], app: .default)
        let plan = leases.begin(.default)
        leases.belong(to: 2)
        leases.fail(plan, app: .default, at: start)
        let returned = leases.takeReturned()
        #expect(plan.returned == [1...1] && returned.isEmpty)
    }

    @Test("A new start knows all of its own leases, and none of the previous start's")
    mutating func starts() {
        leases.belong(to: 1)
        lease([row(1)], at: 0)
        leases.belong(to: 2)
        lease([row(2)], at: 1)
        leases.belong(to: 2)
        leases.fail(leases.begin(.default), app: .default, at: start)
        let search = leases.beginSearch(at: start)
        let orphans = leases.orphans(among: [1, 2])
        #expect(search && orphans == [1])
    }

    @Test("After a commit in doubt, only leases that no known or running call accounts for are released")
    mutating func orphans() throws {
        lease([row(1), row(4), row(5), row(6)], at: 0)
        let none = leases.beginSearch(at: start)
        let failed = leases.begin(.default)
        leases.fail(failed, app: .default, at: start)
        let running = leases.begin(.default)
        let settlement = Settlement(4...4, Transition(.due(.normal, reason: nil)))
        let settling = leases.beginSettling([settlement])
        leases.release([5...5], app: .default)
        let search = leases.beginSearch(at: start + .seconds(1))
        #expect(!none && search)
        leases.settled(settling, [settlement], app: .default)
        // This lease begins after the search, and commits before the table is read.
        let later = leases.begin(.default)
        let underWay = leases.underWay
        leases.finish(running, [row(2)], app: .default, at: start)
        let early = leases.underWay.isDisjoint(with: underWay)
        leases.finish(later, [row(5), row(7)], app: .default, at: start)
        let ended = leases.underWay.isDisjoint(with: underWay)
        #expect(!early && ended)
        let orphans = leases.orphans(among: [1, 2, 3, 4, 5, 7])
        #expect(orphans == [3])
        leases.endSearch()
        // A search that did not end begins again, however late.
        let (late, last) = (
            leases.beginSearch(at: start + .seconds(121)), leases.beginSearch(at: start + .seconds(122))
        )
        leases.endSearch()
        let over = leases.beginSearch(at: start + .seconds(123))
        #expect(late && last && !over)
    }
}

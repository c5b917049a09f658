import ChatDomain
import Foundation
import Testing

@testable import ChatStore

@Suite("The index of the queue in memory")
struct QueueIndexTests {
    private func index(settledTo: Int64 = 0, highest: Int64 = 0) -> QueueIndex {
        QueueIndex(settledTo: settledTo, highest: highest)
    }

    private func inserted(
        _ range: ClosedRange<Int64>, lane: PushLane = .normal, content: Bool = false
    ) -> DuePushes {
        DuePushes(
            range: range, lane: lane, app: .default, pushes: content ? range.map { Self.push($0) } : [])
    }

    private static func push(_ id: Int64) -> QueuedPush {
        QueuedPush(id: id, address: nil, payload: [], apnsID: "")
    }

    @Test("The number of runs is bounded for any rows, and the runs cover all of them")
    func runs() {
        var runs = DueRuns()
        for id in stride(from: Int64(0), to: 20_000, by: 2) { runs.add(id...id, count: 1) }
        #expect(runs.runs.count <= DueRuns.most)
        #expect(runs.count == 10_000)
        #expect(runs.runs.allSatisfy { $0.range.lowerBound <= $0.range.upperBound })
        var last: Int64 = -1
        for run in runs.runs {
            #expect(run.range.lowerBound > last)
            last = run.range.upperBound
        }
        for id in stride(from: Int64(0), to: 20_000, by: 2) { #expect(!runs.overlapping(id...id).isEmpty) }
    }

    @Test("Adjacent ranges form one run, and a range between two runs joins them")
    func joined() {
        var runs = DueRuns()
        runs.add(1...3, count: 3)
        runs.add(4...5, count: 2)
        runs.add(10...12, count: 3)
        #expect(runs.runs == [.init(range: 1...5, count: 5), .init(range: 10...12, count: 3)])
        runs.add(4...11, count: 4)
        #expect(runs.runs == [.init(range: 1...12, count: 12)])
    }

    @Test("A claim of adjacent pushes does not read a leased push again")
    func exclusion() throws {
        var index = index()
        index.inserted(inserted(1...10), at: .now)
        let firstFound = index.claim(.default, .normal, limit: 4, at: .now)
        let first = try #require(firstFound)
        #expect(first.runs.map(\.range) == [1...10])
        index.finish(first, [((1...4).map { Self.push($0) }, 4)])
        #expect(index.inFlightCount(.default) == 4)
        #expect(index.dueCount(.default) == 6)
        // A sweep finds all of them. Known pushes do not count twice.
        index.found(DuePushes(range: 1...10, lane: .normal, app: .default))
        #expect(index.dueCount(.default) == 6)
        index.release(2...3, to: .retry, app: .default)
        let againFound = index.claim(.default, .retry, limit: 9, at: .now)
        let again = try #require(againFound)
        #expect(again.runs.map(\.range) == [2...3] && again.excluded == [[]])
        index.finish(again, [])
        #expect(index.lanes(.default) == [.normal, .retry])
    }

    @Test("The store's own inserts are leased without a read, for a moment and in order")
    func content() throws {
        var index = index()
        let now = ContinuousClock.now
        index.inserted(inserted(1...2, content: true), at: now)
        index.inserted(inserted(3...3, content: true), at: now)
        let claimFound = index.claim(.default, .normal, limit: 2, at: now)
        let claim = try #require(claimFound)
        #expect(claim.runs.isEmpty && claim.pushes.map(\.id) == [1, 2])
        #expect(index.inFlightCount(.default) == 2)
        let lateFound = index.claim(.default, .normal, limit: 2, at: now + .seconds(5))
        let late = try #require(lateFound)
        #expect(late.pushes.isEmpty && late.runs.map(\.range) == [3...3])
    }

    @Test("A read during which content was withdrawn leases nothing, and its runs are due again")
    func withdrawnDuringRead() throws {
        var index = index()
        index.inserted(inserted(1...10), at: .now)
        let staleFound = index.claim(.default, .normal, limit: 4, at: .now)
        let stale = try #require(staleFound)
        index.forgetContent()
        let isStaleLeased = index.finish(stale, [((1...4).map { Self.push($0) }, 4)])
        #expect(!isStaleLeased)
        #expect(index.inFlightCount(.default) == 0 && index.dueCount(.default) == 10 && index.settledTo == 0)
        let currentFound = index.claim(.default, .normal, limit: 4, at: .now)
        let current = try #require(currentFound)
        #expect(current.runs.map(\.range) == [1...10])
        let isCurrentLeased = index.finish(current, [((1...4).map { Self.push($0) }, 4)])
        #expect(isCurrentLeased && index.inFlightCount(.default) == 4)
    }

    @Test("Content of rows that a scan has already met is not used, because they may have been sent since")
    func metBefore() throws {
        var index = index()
        index.reaches(5)
        index.inserted(inserted(4...5, content: true), at: .now)
        let claimFound = index.claim(.default, .normal, limit: 2, at: .now)
        let claim = try #require(claimFound)
        #expect(claim.pushes.isEmpty && claim.runs.map(\.range) == [4...5])
    }

    @Test("Content is kept for few pushes only")
    func boundedContent() throws {
        var index = index()
        let now = ContinuousClock.now
        index.inserted(inserted(1...3000, content: true), at: now)
        let claimFound = index.claim(.default, .normal, limit: 9, at: now)
        let claim = try #require(claimFound)
        #expect(claim.pushes.isEmpty && claim.runs.map(\.range) == [1...3000])
    }

    @Test("No row that may be due lies below the position at which the next process begins")
    func settledTo() throws {
        var index = index(settledTo: 10, highest: 20)
        #expect(index.settledTo == 10)
        index.scanned(11...20)
        #expect(index.settledTo == 20)
        // Another program's rows lie in between.
        index.inserted(inserted(31...40), at: .now)
        #expect(index.settledTo == 20 && index.unscanned.ranges == [21...30])
        index.scanned(21...30)
        #expect(index.settledTo == 30)
        let claimFound = index.claim(.default, .normal, limit: 5, at: .now)
        let claim = try #require(claimFound)
        #expect(index.settledTo == 30)
        index.finish(claim, [((31...35).map { Self.push($0) }, 35)])
        #expect(index.settledTo == 30)
        index.release(31...33, to: nil, app: .default)
        #expect(index.settledTo == 33)
        index.release(34...34, to: .retry, app: .default)
        index.release(35...35, to: nil, app: .default)
        #expect(index.settledTo == 33)
    }

    @Test("Ids near the limits of 64 bits are ignored")
    func ends() {
        var index = index(settledTo: QueueIndex.ids.lowerBound, highest: 5)
        index.inserted(inserted(Int64.max...Int64.max), at: .now)
        index.found(DuePushes(range: Int64.min...Int64.min, lane: .normal, app: .default))
        index.reaches(Int64.max)
        #expect(index.highest == 5 && index.apps.isEmpty && index.hasNumbersOutOfRange)
    }

    @Test("Waiting pushes are scanned when one is due, after a change, and when the clock was set back")
    func waiting() {
        var index = index()
        let now = Timestamp(seconds: 1_800_000_000)
        #expect(index.beginScanOfWaiting(.default, at: now) == .min)
        #expect(index.beginScanOfWaiting(.default, at: now) == nil)
        index.waits(until: now + .seconds(60), app: .default)
        index.waits(until: now + .seconds(90), app: .default)
        #expect(index.nextWaiting(.default) == now + .seconds(60))
        #expect(index.beginScanOfWaiting(.default, at: now + .seconds(59)) == nil)
        // From two seconds before the last scan.
        #expect(index.beginScanOfWaiting(.default, at: now + .seconds(60)) == (now - .seconds(2)).milliseconds)
        #expect(index.nextWaiting(.default) == nil)
        index.requestScanOfWaiting()
        #expect(index.beginScanOfWaiting(.default, at: now + .seconds(69)) == (now + .seconds(58)).milliseconds)
        // After a failure, or with a sweep, the scan covers all of them.
        index.requestScanOfWaiting(atAll: true)
        #expect(index.beginScanOfWaiting(.default, at: now + .seconds(70)) == .min)
        // The clock was set back.
        index.waits(until: now + .seconds(90), app: .default)
        #expect(index.beginScanOfWaiting(.default, at: now - .seconds(4000)) == .min)
    }
}

@Suite("The APNs ids of pushes")
struct APNSIDsTests {
    @Test("Each push id has its own APNs id, always the same one, and another key gives others")
    func ids() {
        let ids = APNSIDs(key: Array(0..<16))
        let numbers = Array(-2000...2000) + (0..<60).map { Int64(1) << Int64($0) + 2000 }
        let all = numbers.map { ids.id(of: Int64($0)) }
        #expect(Set(all).count == Set(numbers).count)
        #expect(all == numbers.map { ids.id(of: Int64($0)) })
        for id in all {
            let parsed = UUID(uuidString: id)
            #expect(parsed?.uuidString.lowercased() == id)
            // RFC 9562: version 4, and the variant.
            #expect(id.dropFirst(14).first == "4" && "89ab".contains(id.dropFirst(19).first ?? " "))
        }
        #expect(APNSIDs(key: Array(1..<17)).id(of: 1) != ids.id(of: 1))
    }
}

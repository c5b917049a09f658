import ChatDomain
import Testing

@Suite("The retention walk")
struct RetentionWalkTests {
    /// A table from which a walk deletes the rows whose time is below a limit.
    private final class Table {
        var rows: [(id: Int64, time: Int)]
        let walk = RetentionWalk()
        private(set) var looks = 0

        init(_ times: [Int]) {
            rows = times.enumerated().map { (Int64($0.offset), $0.element) }
        }

        func run(before limit: Int, window: Int = 10) async throws(ChatError) -> Int {
            looks = 0
            return try await walk.run { after throws(ChatError) in
                looks += 1
                let looked = rows.filter { $0.id > after }.prefix(window)
                let old = Set(looked.filter { $0.time < limit }.map(\.id))
                rows.removeAll { old.contains($0.id) }
                return RetentionWalk.Window(
                    deleted: old.count, hasOld: !old.isEmpty, last: looked.count < window ? nil : looked.last?.id)
            }
        }
    }

    @Test("One run deletes all old rows if the oldest come first")
    func ordered() async throws {
        let table = Table(Array(0..<10_000))
        #expect(try await table.run(before: 5000, window: 100) == 5000)
        #expect(table.looks < 50 + 2 + RetentionWalk.windowsPerRun)
    }

    @Test("Rows with future times delay the deletion of old rows behind them by a few runs at most")
    func future() async throws {
        let table = Table(Array(repeating: 9999, count: 1000) + Array(0..<1000))
        var (deleted, runs) = (0, 0)
        while deleted < 500 {
            deleted += try await table.run(before: 500)
            runs += 1
            try #require(runs < 20)
            #expect(table.looks <= 2 + 100 + RetentionWalk.windowsPerRun)
        }
        #expect(table.rows.count == 1500)
        #expect(try await table.run(before: 500) == 0)
    }

    @Test("The newest time up to a limit is found in few lookups, even if the times do not ascend")
    func newest() {
        func newest(_ times: [Int64?], from first: Int64 = 1, step: Int64 = 3, upTo limit: Int64) -> Int64? {
            let rows = times.enumerated().map { (id: first + Int64($0.offset) * step, time: $0.element) }
            var looks = 0
            let found = ClockEvidence.newest(upTo: Timestamp(seconds: limit)) { id in
                looks += 1
                return rows.last { $0.id <= id }.map { ($0.id, $0.time.map { Timestamp(seconds: $0) }) }
            }
            #expect(looks <= 66)
            return found?.seconds
        }
        let growing = (1...1000).map { Optional(Int64($0)) }
        #expect(newest(growing, upTo: 5000) == 1000)
        #expect(newest(growing, upTo: 777) == 777)
        #expect(newest(growing, upTo: 0) == nil)
        #expect(newest([], upTo: 5) == nil)
        #expect(newest([7], upTo: 7) == 7)
        #expect(newest(growing, from: -(1 << 62), step: 1 << 53, upTo: 500) == 500)
        // A wrong clock has written the last times. The result is as if nothing had been stored after 1000.
        #expect(newest(growing + [100_000, 100_001], upTo: 99_000) == 1000)
        // A row without a valid time, and times that a wrong clock wrote before it was corrected.
        #expect(newest([1, 2, nil, 9000], upTo: 500) == 2)
        #expect([2, 4].contains(newest([1, 2, 9000, 9001, 3, 4, 501, 502], upTo: 500)))
    }
}

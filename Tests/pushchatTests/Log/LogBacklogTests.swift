import Testing

@testable import pushchat

@Suite struct LogBacklogTests {
    /// Returns the numbers of lines, and for gaps the negated counts of lost lines.
    private static func numbers(_ entries: [LogBacklog.Entry]) -> [Int] {
        entries.map { entry in
            switch entry.content {
            case .line(let line): Int(line[0])
            case .record: 0
            case .gap(let lost): -lost
            }
        }
    }

    private static func add(_ number: UInt8, to backlog: inout LogBacklog) -> Bool {
        let isAdded = backlog.add(.line([number]), bytes: 100 - LogBacklog.overhead)
        if !isAdded { backlog.countLost() }
        return isAdded
    }

    private static func take(_ backlog: inout LogBacklog) -> [Int] {
        var entries: [LogBacklog.Entry] = []
        backlog.take(&entries)
        return numbers(entries)
    }

    @Test("Entries in progress count until they finish; a gap ends when half of the space is free, and is one entry")
    func gap() {
        var backlog = LogBacklog(limit: 400)
        for number: UInt8 in 1...4 { #expect(Self.add(number, to: &backlog)) }
        #expect(backlog.size == 400)
        #expect(!Self.add(5, to: &backlog))
        #expect(Self.take(&backlog) == [1, 2, 3, 4])
        #expect(!Self.add(6, to: &backlog))
        backlog.finish(1, bytes: 100)
        #expect(backlog.isFull)
        #expect(!Self.add(7, to: &backlog))
        #expect(Self.take(&backlog).isEmpty)
        backlog.finish(1, bytes: 100)
        #expect(!backlog.isFull)
        #expect(Self.add(8, to: &backlog))
        #expect(Self.take(&backlog) == [-3, 8])
        backlog.finish(4, bytes: 300)
        #expect(backlog.size == 0 && backlog.finished == backlog.accepted)
    }

    @Test("A gap becomes an entry even if no line follows")
    func lastGap() {
        var backlog = LogBacklog(limit: 100)
        #expect(Self.add(1, to: &backlog))
        #expect(!Self.add(2, to: &backlog))
        #expect(Self.take(&backlog) == [1])
        backlog.finish(1, bytes: 100)
        #expect(Self.take(&backlog) == [-1])
        #expect(Self.take(&backlog).isEmpty)
    }
}

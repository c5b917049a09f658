import ChatDomain
import Foundation
import Logging
import Testing

@testable import pushchat

/// A log that writes into a pipe. Both are closed with this object.
final class LogPipe {
    struct NothingToRead: Error {}

    /// The time in milliseconds after which a read from an empty pipe fails the test.
    private static let readLimit: Int32 = 60_000

    private(set) var reader: Int32
    private let end: Int32
    let writer: LogWriter

    init(limit: Int = LogWriter.limit, waitLimit: DispatchTimeInterval = LogWriter.waitLimit) throws {
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        (reader, end) = (ends[0], ends[1])
        writer = LogWriter(end, limit: limit, waitLimit: waitLimit)
    }

    /// Close the reader first: without a reader the writer does not wait.
    deinit {
        closeReader()
        writer.close(within: .seconds(60))
        close(end)
    }

    func closeReader() {
        if reader >= 0 { close(reader) }
        reader = -1
    }

    var isReady: Bool { wait(0) }

    private func wait(_ milliseconds: Int32) -> Bool {
        var state = pollfd(fd: reader, events: Int16(POLLIN), revents: 0)
        return poll(&state, 1, milliseconds) == 1
    }

    func read(_ limit: Int = 1 << 16) throws -> [UInt8] {
        guard wait(Self.readLimit) else { throw NothingToRead() }
        var bytes = [UInt8](repeating: 0, count: limit)
        let count = Foundation.read(reader, &bytes, limit)
        return Array(bytes.prefix(max(0, count)))
    }

    /// Reads the available lines, at least one, up to the end of the last.
    func lines() throws -> [String] {
        var bytes = try read()
        while let last = bytes.last, last != 10 { bytes += try read() }
        return bytes.split(separator: 10).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Returns all text that was logged and not read yet, with its line feeds. The text must be shorter than the pipe's
    /// capacity (64 KiB).
    func text() throws -> String {
        try #require(writer.flush(within: .seconds(60)))
        return isReady ? String(decoding: try read(), as: UTF8.self) : ""
    }
}

@Suite(.timeLimit(.minutes(2))) struct LogWriterTests {
    /// Returns a line of the maximum length that starts with its number.
    private static func longLine(_ number: Int) -> [UInt8] {
        let text = Array("\(number) ".utf8)
        return text + Array(repeating: UInt8(ascii: "x"), count: LogRecord.maxLine - text.count - 1) + [10]
    }

    private static func record(_ thread: Int, _ number: Int) -> LogRecord {
        LogRecord(
            time: LogRecordTests.time, level: .info, label: "relay", message: "\(thread)",
            metadata: ["number": "\(number)"])
    }

    @Test("Waiting lines are written when the log is closed")
    func closed() throws {
        let log = try LogPipe()
        log.writer.write(Array("a line\n".utf8))
        log.writer.close(within: .seconds(60))
        #expect(log.isReady)
        #expect(try log.read() == Array("a line\n".utf8))
    }

    @Test("Lines arrive without a flush, the first and the next")
    func quiet() throws {
        let log = try LogPipe()
        for number in 0..<5 {
            log.writer.write(Array("\(number)\n".utf8))
            #expect(try log.read() == Array("\(number)\n".utf8))
        }
    }

    @Test("Lines of several threads never mix")
    func threads() async throws {
        let log = try LogPipe()
        let writer = log.writer
        // Less in total than the pipe holds without a reader (64 KiB).
        await withTaskGroup { group in
            for letter in UInt8(ascii: "a")...UInt8(ascii: "h") {
                group.addTask {
                    for _ in 0..<50 { writer.write(Array(repeating: letter, count: 99) + [10]) }
                }
            }
        }
        #expect(log.writer.flush(within: .seconds(60)))
        var counts: [UInt8: Int] = [:]
        for line in try log.read().split(separator: 10) {
            #expect(line.count == 99 && Set(line).count == 1)
            counts[line[line.startIndex], default: 0] += 1
        }
        #expect(counts.count == 8 && counts.values.allSatisfy { $0 == 50 })
    }

    @Test("A flood from several threads arrives complete and in each thread's order, although it exceeds the buffer")
    func flood() throws {
        // The writer waits for the reader, however busy this machine is.
        let log = try LogPipe(limit: 100_000, waitLimit: .seconds(60))
        let writer = log.writer
        for thread in 0..<4 {
            Thread.detachNewThread {
                for number in 0..<5000 { writer.write(Self.record(thread, number), number % 2 == 0 ? .text : .json) }
            }
        }
        var (bytes, count) = ([UInt8](), 0)
        while count < 20_000 {
            let piece = try log.read()
            count += piece.count { $0 == 10 }
            bytes += piece
        }
        var next = [0, 0, 0, 0]
        for line in bytes.split(separator: 10) {
            let thread = next.indices.first { thread in
                let number = next[thread]
                let expected = Self.record(thread, number).line(number % 2 == 0 ? .text : .json)
                return line.elementsEqual(expected.dropLast())
            }
            guard let thread else {
                Issue.record("not the next line of any thread: \(String(decoding: line, as: UTF8.self))")
                break
            }
            next[thread] += 1
        }
        #expect(next == [5000, 5000, 5000, 5000])
    }

    @Test(
        "A stalled reader does not block logging; once it reads again, the number of lost lines is in their place"
    )
    func stalledReader() throws {
        // The limit holds less than half of the lines. The pipe itself holds 16.
        let log = try LogPipe(
            limit: 40 * (LogRecord.maxLine + LogBacklog.overhead), waitLimit: .milliseconds(1))
        let started = ContinuousClock.now
        for number in 0..<100 { log.writer.write(Self.longLine(number)) }
        #expect(ContinuousClock.now - started < .seconds(60))
        // The waiting lines are kept for the reader, whole and in order. The others are counted, also if no line
        // follows.
        var lines: [String] = []
        while lines.last?.hasSuffix("could not be written") != true { lines += try log.lines() }
        log.writer.write(Array("again\n".utf8))
        #expect(try log.lines() == ["again"])
        let kept = lines.count - 1
        try #require(kept >= 40 && kept < 100)
        #expect(lines.prefix(kept).enumerated().allSatisfy { Self.longLine($0) == Array("\($1)\n".utf8) })
        #expect(lines.last == "pushchat: \(100 - kept) log lines were lost, because they could not be written")
    }

    @Test("A flush ends even without a reader, and returns whether everything is written")
    func flush() throws {
        let log = try LogPipe()
        #expect(log.writer.flush(within: .seconds(60)))
        for number in 0..<100 { log.writer.write(Self.longLine(number)) }
        let started = ContinuousClock.now
        #expect(!log.writer.flush(within: .milliseconds(1)))
        #expect(ContinuousClock.now - started < .seconds(60))
        var count = 0
        while count < 100 { count += try log.read().count { $0 == 10 } }
        #expect(log.writer.flush(within: .seconds(60)))
    }

    @Test("An error and all earlier lines are written when the call returns")
    func error() throws {
        let log = try LogPipe(waitLimit: .seconds(60))
        for level in [Logger.Level.info, .warning, .error] {
            log.writer.write(
                LogRecord(time: LogRecordTests.time, level: level, label: "relay", message: "m", metadata: [:]), .text)
        }
        #expect(log.isReady)
        let lines = [Logger.Level.info, .warning, .error].map { LogRecordTests.line("m", level: $0) }
        #expect(try String(decoding: log.read(), as: UTF8.self) == lines.joined())
    }

    @Test("A closed reader neither ends the process nor delays the flush")
    func closedReader() throws {
        let log = try LogPipe()
        log.closeReader()
        for number in 0..<2000 { log.writer.write(Self.longLine(number)) }
        #expect(log.writer.flush(within: .seconds(60)))
    }

    @Test("A reader that closes while lines wait neither ends the process nor delays the flush")
    func leavingReader() throws {
        let log = try LogPipe()
        for number in 0..<100 { log.writer.write(Self.longLine(number)) }
        #expect(try log.read(100).count == 100)
        log.closeReader()
        #expect(log.writer.flush(within: .seconds(60)))
    }

    @Test("A full disk does not delay the log", .enabled(if: access("/dev/full", W_OK) == 0))
    func fullDisk() throws {
        let descriptor = open("/dev/full", O_WRONLY)
        defer { close(descriptor) }
        let writer = LogWriter(descriptor)
        for number in 0..<100 { writer.write(Self.longLine(number)) }
        #expect(writer.flush(within: .seconds(60)))
        writer.close()
    }

    @Test("Nothing is lost when the process calls exit")
    func exit() async {
        let result = await #expect(processExitsWith: .exitCode(7), observing: [\.standardErrorContent]) {
            // Less in total than the pipe holds without a reader, because the reader in this process may be late.
            for number in 0..<4000 { LogWriter.standardError.write(Array("line \(number)\n".utf8)) }
            Foundation.exit(7)
        }
        let text = String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
        let all = text.split(separator: "\n")
        let other = all.filter { !$0.hasPrefix("line ") || Int($0.dropFirst(5)) == nil }
        let numbers = all.filter { $0.hasPrefix("line ") }.compactMap { Int($0.dropFirst(5)) }
        let missing = Set(0..<4000).subtracting(numbers).sorted()
        let isWhole = missing.isEmpty && numbers == numbers.sorted()
        #expect(isWhole, "\(missing.prefix(10)), beside \(other.prefix(10))")
    }
}

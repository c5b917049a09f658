import ChatDomain
import Foundation
import Logging
import Testing

@testable import pushchat

/// Both ends of a pipe that is closed with the value's last owner.
final class Pipe {
    private(set) var reader: Int32
    let writer: Int32

    init() throws {
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        (reader, writer) = (ends[0], ends[1])
    }

    deinit {
        closeReader()
        close(writer)
    }

    func closeReader() {
        if reader >= 0 { close(reader) }
        reader = -1
    }

    func read(_ limit: Int = 1 << 20) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: limit)
        let count = Foundation.read(reader, &bytes, limit)
        return Array(bytes.prefix(max(0, count)))
    }

    /// Reads what there is, at least a line, and to the end of the last.
    func lines() -> [String] {
        var bytes = read()
        while let last = bytes.last, last != 10 { bytes += read() }
        return bytes.split(separator: 10).map { String(decoding: $0, as: UTF8.self) }
    }
}

@Suite(.timeLimit(.minutes(2))) struct DescriptorLogOutputTests {
    /// A line as long as a line may be, with its number.
    private static func longLine(_ number: Int) -> [UInt8] {
        let text = Array("\(number) ".utf8)
        return text + Array(repeating: UInt8(ascii: "x"), count: LogRecord.longestLine - text.count - 1) + [10]
    }

    private static func record(_ thread: Int, _ number: Int) -> LogRecord {
        LogRecord(
            time: LogRecordTests.time, level: .info, label: "relay", message: "\(thread)",
            metadata: ["number": "\(number)"])
    }

    @Test("A line arrives as it is, with one write")
    func oneLine() throws {
        let pipe = try Pipe()
        DescriptorLogOutput(pipe.writer).write(Array("a line\n".utf8))
        #expect(pipe.read() == Array("a line\n".utf8))
    }

    @Test("Lines arrive without a flush, the first and the next")
    func quiet() throws {
        let pipe = try Pipe()
        let output = DescriptorLogOutput(pipe.writer)
        for number in 0..<5 {
            output.write(Array("\(number)\n".utf8))
            #expect(pipe.read() == Array("\(number)\n".utf8))
        }
        withExtendedLifetime(output) {}
    }

    @Test("Lines of several threads never mix")
    func threads() async throws {
        let pipe = try Pipe()
        let output = DescriptorLogOutput(pipe.writer)
        // Less in all than a pipe takes without a reader (64 KiB).
        await withTaskGroup { group in
            for letter in UInt8(ascii: "a")...UInt8(ascii: "h") {
                group.addTask {
                    for _ in 0..<50 { output.write(Array(repeating: letter, count: 99) + [10]) }
                }
            }
        }
        #expect(output.flush())
        var counts: [UInt8: Int] = [:]
        for line in pipe.read().split(separator: 10) {
            #expect(line.count == 99 && Set(line).count == 1)
            counts[line[line.startIndex], default: 0] += 1
        }
        #expect(counts.count == 8 && counts.values.allSatisfy { $0 == 50 })
    }

    @Test("A flood of several threads arrives whole, each thread's lines in their order, though it does not fit")
    func flood() throws {
        let pipe = try Pipe()
        // A reader that is alive, however busy this machine is, is to be waited for.
        let output = DescriptorLogOutput(pipe.writer, limit: 100_000, patience: .seconds(60))
        for thread in 0..<4 {
            Thread.detachNewThread {
                for number in 0..<5000 { output.write(Self.record(thread, number), number % 2 == 0 ? .text : .json) }
            }
        }
        var bytes: [UInt8] = []
        while bytes.count(where: { $0 == 10 }) < 20_000 { bytes += pipe.read() }
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

    @Test("A reader that stalls costs lines, not the relay; how many is said at their place once it reads again")
    func stalledReader() throws {
        let pipe = try Pipe()
        // Less than half of the lines; the pipe itself takes 16.
        let output = DescriptorLogOutput(
            pipe.writer, limit: 40 * (LogRecord.longestLine + LogBacklog.overhead), patience: .milliseconds(1))
        let started = ContinuousClock.now
        for number in 0..<100 { output.write(Self.longLine(number)) }
        #expect(ContinuousClock.now - started < .seconds(5))
        // What waits is kept for the reader, whole and in order; the rest is named, also if no line follows.
        var lines: [String] = []
        while lines.last?.hasSuffix("nobody read them") != true { lines += pipe.lines() }
        output.write(Array("again\n".utf8))
        #expect(pipe.lines() == ["again"])
        let kept = lines.count - 1
        try #require(kept >= 40 && kept < 100)
        #expect(lines.prefix(kept).enumerated().allSatisfy { Self.longLine($0) == Array("\($1)\n".utf8) })
        #expect(lines.last == "pushchat: \(100 - kept) lines of the log were lost, because nobody read them")
    }

    @Test("A flush has an end, also when nobody reads; and says whether all is written")
    func flush() throws {
        let pipe = try Pipe()
        let output = DescriptorLogOutput(pipe.writer)
        #expect(output.flush())
        for number in 0..<100 { output.write(Self.longLine(number)) }
        let started = ContinuousClock.now
        #expect(!output.flush(within: .milliseconds(1)))
        #expect(ContinuousClock.now - started < .seconds(5))
        var count = 0
        while count < 100 { count += pipe.read().count { $0 == 10 } }
        #expect(output.flush())
    }

    @Test("What was logged below error may wait; an error stands in the log when the call returns")
    func error() throws {
        let pipe = try Pipe()
        let output = DescriptorLogOutput(pipe.writer, patience: .seconds(60))
        for level in [Logger.Level.info, .warning, .error] {
            output.write(
                LogRecord(time: LogRecordTests.time, level: level, label: "relay", message: "m", metadata: [:]), .text)
        }
        var state = pollfd(fd: pipe.reader, events: Int16(POLLIN), revents: 0)
        #expect(poll(&state, 1, 0) == 1)
        let lines = [Logger.Level.info, .warning, .error].map { LogRecordTests.line("m", level: $0) }
        #expect(String(decoding: pipe.read(), as: UTF8.self) == lines.joined())
    }

    @Test("A reader that has gone does not end the process, and costs no time")
    func closedReader() throws {
        let pipe = try Pipe()
        pipe.closeReader()
        let output = DescriptorLogOutput(pipe.writer)
        for number in 0..<2000 { output.write(Self.longLine(number)) }
        #expect(output.flush(within: .seconds(60)))
    }

    @Test("A reader that goes while lines wait for it does not end the process, nor keep the flush waiting")
    func leavingReader() throws {
        let pipe = try Pipe()
        let output = DescriptorLogOutput(pipe.writer)
        for number in 0..<100 { output.write(Self.longLine(number)) }
        #expect(pipe.read(100).count == 100)
        pipe.closeReader()
        #expect(output.flush(within: .seconds(60)))
    }

    @Test("A full disk does not keep the log waiting", .enabled(if: access("/dev/full", W_OK) == 0))
    func fullDisk() throws {
        let descriptor = open("/dev/full", O_WRONLY)
        defer { close(descriptor) }
        let output = DescriptorLogOutput(descriptor)
        for number in 0..<100 { output.write(Self.longLine(number)) }
        #expect(output.flush(within: .seconds(60)))
    }

    @Test("Nothing is lost when the process ends in the ordinary way")
    func exit() async {
        let result = await #expect(processExitsWith: .exitCode(7), observing: [\.standardErrorContent]) {
            // Less in all than a pipe takes without a reader, because the one in this process may be late.
            for number in 0..<4000 { DescriptorLogOutput.standardError.write(Array("line \(number)\n".utf8)) }
            Foundation.exit(7)
        }
        let text = String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
        let all = text.split(separator: "\n")
        let strange = all.filter { !$0.hasPrefix("line ") || Int($0.dropFirst(5)) == nil }
        let numbers = all.filter { $0.hasPrefix("line ") }.compactMap { Int($0.dropFirst(5)) }
        let missing = Set(0..<4000).subtracting(numbers).sorted()
        let isWhole = missing.isEmpty && numbers == numbers.sorted()
        #expect(isWhole, "\(missing.prefix(10)), beside \(strange.prefix(10))")
    }
}

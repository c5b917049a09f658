import ChatDomain
import Foundation
import Logging
import Synchronization
import Testing

@testable import pushchat

/// Keeps the lines that are written.
final class CollectedLog: LogOutput {
    private let collected = Mutex<[String]>([])

    var lines: [String] { collected.withLock { $0 } }

    func write(_ line: [UInt8]) {
        collected.withLock { $0.append(String(decoding: line, as: UTF8.self)) }
    }
}

@Suite struct LineLogHandlerTests {
    let output = CollectedLog()
    let settings = LogSettings()

    private func logger(provider: Logger.MetadataProvider? = nil) -> Logger {
        Logger(label: "relay") { label in
            LineLogHandler(
                label: label, settings: settings, output: output, metadataProvider: provider,
                now: { LogRecordTests.time })
        }
    }

    @Test("The level and the format can be changed for all loggers that exist")
    func dynamicSettings() {
        let logger = logger()
        logger.debug("unseen")
        settings.set(level: .debug, format: .json)
        logger.debug("seen")
        settings.set(level: .error, format: .text)
        logger.info("unseen")
        #expect(
            output.lines == [
                #"{"time":"2026-11-20T23:55:00.123Z","level":"debug","label":"relay","message":"seen"}"# + "\n"
            ])
    }

    @Test("A logger's own level is its alone")
    func ownLevel() {
        let logger = logger()
        var other = logger
        other.logLevel = .trace
        other.trace("other")
        logger.trace("unseen")
        #expect(logger.logLevel == .info)
        #expect(output.lines == ["2026-11-20T23:55:00.123Z trace other\n"])
    }

    @Test("The call's metadata overrides the provider's, and that the logger's; an error has its key")
    func metadata() {
        struct Broken: Error, CustomStringConvertible { var description: String { "is broken" } }
        var logger = logger(provider: .init { ["b": "provider", "c": "provider"] })
        logger[metadataKey: "a"] = "logger"
        logger[metadataKey: "b"] = "logger"
        logger.info("m", error: Broken(), metadata: ["c": "call"])
        #expect(output.lines == ["2026-11-20T23:55:00.123Z info  m a=logger b=provider c=call error=\"is broken\"\n"])
    }

    @Test("The last warnings and errors are kept as the log has them in JSON, so many and no more")
    func recent() {
        let logger = logger()
        logger.info("not this")
        logger.error("first", metadata: ["a": "b\"c"])
        #expect(
            settings.recentWarnings.records.map(\.description) == [
                #"{"time":"2026-11-20T23:55:00.123Z","level":"error","label":"relay","message":"first","a":"b\"c"}"#
            ])
        for number in 1...100 { logger.warning("\(number)") }
        let messages = settings.recentWarnings.records.map { $0.object?["message"]?.text }
        #expect(messages == (1...100).map(String.init))
    }
}

@Suite struct DescriptorLogOutputTests {
    /// Both ends of a pipe that is closed with the value's last owner.
    private final class Pipe {
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
    }

    @Test("A line arrives as it is, with one write")
    func oneLine() throws {
        let pipe = try Pipe()
        DescriptorLogOutput(pipe.writer).write(Array("a line\n".utf8))
        #expect(pipe.read() == Array("a line\n".utf8))
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
        var counts: [UInt8: Int] = [:]
        for line in pipe.read().split(separator: 10) {
            #expect(line.count == 99 && Set(line).count == 1)
            counts[line[line.startIndex], default: 0] += 1
        }
        #expect(counts.count == 8 && counts.values.allSatisfy { $0 == 50 })
    }

    @Test("A reader that stalls costs lines, not the relay; how many is said once it reads again")
    func stalledReader() throws {
        let pipe = try Pipe()
        let output = DescriptorLogOutput(pipe.writer, patience: 1)
        let line = Array(repeating: UInt8(ascii: "x"), count: LogRecord.longestLine - 1) + [10]
        let started = ContinuousClock.now
        for _ in 0..<100 { output.write(line) }
        #expect(ContinuousClock.now - started < .seconds(5))
        let before = pipe.read().split(separator: 10)
        #expect(before.allSatisfy { $0.count == line.count - 1 })
        output.write(Array("again\n".utf8))
        #expect(
            String(decoding: pipe.read(), as: UTF8.self)
                == "pushchat: \(100 - before.count) lines of the log were lost, because nobody read them\nagain\n")
        #expect(before.count < 100)
    }

    @Test("A reader that has gone does not end the process")
    func closedReader() throws {
        let pipe = try Pipe()
        pipe.closeReader()
        DescriptorLogOutput(pipe.writer).write(Array("a line\n".utf8))
    }
}

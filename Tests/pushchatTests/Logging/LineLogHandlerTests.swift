import ChatDomain
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

    @Test("A value is described when it is logged, not when the line is made")
    func descriptionInTime() throws {
        final class Door: CustomStringConvertible, Sendable {
            let isOpen = Mutex(true)
            var description: String { isOpen.withLock { $0 } ? "open" : "shut" }
        }
        let (door, pipe) = (Door(), try Pipe())
        let output = DescriptorLogOutput(pipe.writer)
        let logger = Logger(label: "relay") { label in
            LineLogHandler(label: label, settings: settings, output: output, now: { LogRecordTests.time })
        }
        logger.info("m", metadata: ["door": .stringConvertible(door)])
        door.isOpen.withLock { $0 = false }
        #expect(output.flush())
        #expect(String(decoding: pipe.read(), as: UTF8.self) == "2026-11-20T23:55:00.123Z info  m door=open\n")
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

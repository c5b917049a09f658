import ChatDomain
import Logging
import Synchronization
import Testing

@testable import pushchat

@Suite(.timeLimit(.minutes(2))) struct LineLogHandlerTests {
    let log: LogPipe
    let settings = LogSettings()

    init() throws { log = try LogPipe() }

    private func logger(provider: Logger.MetadataProvider? = nil) -> Logger {
        Logger(label: "relay") { label in
            LineLogHandler(
                label: label, settings: settings, output: log.writer, metadataProvider: provider,
                now: { LogRecordTests.time })
        }
    }

    @Test("The level and the format can be changed for all loggers that exist")
    func dynamicSettings() throws {
        let logger = logger()
        logger.debug("unseen")
        settings.set(level: .debug, format: .json)
        logger.debug("seen")
        settings.set(level: .error, format: .text)
        logger.info("unseen")
        #expect(
            try log.text()
                == #"{"time":"2026-11-20T23:55:00.123Z","level":"debug","label":"relay","message":"seen"}"# + "\n")
    }

    @Test("A logger's own level applies only to it")
    func ownLevel() throws {
        let logger = logger()
        var other = logger
        other.logLevel = .trace
        other.trace("other")
        logger.trace("unseen")
        #expect(logger.logLevel == .info)
        #expect(try log.text() == "2026-11-20T23:55:00.123Z trace other\n")
    }

    @Test("The call's metadata overrides the provider's, and that the logger's; an error has its key")
    func metadata() throws {
        struct Broken: Error, CustomStringConvertible { var description: String { "is broken" } }
        var logger = logger(provider: .init { ["b": "provider", "c": "provider"] })
        logger[metadataKey: "a"] = "logger"
        logger[metadataKey: "b"] = "logger"
        logger.info("m", error: Broken(), metadata: ["c": "call"])
        #expect(try log.text() == "2026-11-20T23:55:00.123Z info  m a=logger b=provider c=call error=\"is broken\"\n")
    }

    @Test("A value is converted to text when it is logged, not when the line is written")
    func descriptionInTime() throws {
        final class Door: CustomStringConvertible, Sendable {
            let isOpen = Mutex(true)
            var description: String { isOpen.withLock { $0 } ? "open" : "shut" }
        }
        let door = Door()
        let logger = logger()
        logger.info("m", metadata: ["door": .stringConvertible(door)])
        door.isOpen.withLock { $0 = false }
        #expect(try log.text() == "2026-11-20T23:55:00.123Z info  m door=open\n")
    }

    @Test("A limited number of the last warnings and errors is kept in the log's JSON form")
    func recent() {
        let logger = logger()
        logger.info("not this")
        logger.error("first", metadata: ["a": "b\"c"])
        #expect(
            settings.recentWarnings.map(\.description) == [
                #"{"time":"2026-11-20T23:55:00.123Z","level":"error","label":"relay","message":"first","a":"b\"c"}"#
            ])
        for number in 1...100 { logger.warning("\(number)") }
        let messages = settings.recentWarnings.map { $0.object?["message"]?.text }
        #expect(messages == (1...100).map(String.init))
    }
}

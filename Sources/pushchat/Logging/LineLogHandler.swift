import ChatDomain
import Logging
import Synchronization

/// What all loggers share: the level and the format, which SIGHUP may change while they are in use, and what was wrong last.
final class LogSettings: Sendable {
    struct Values: Sendable, Equatable {
        var level: Logger.Level
        var format: LogFormat
    }

    private static let levels = Logger.Level.allCases
    /// A number for the pair, because each call that logs asks, also one whose level is off.
    private let values: Atomic<Int>
    let recentWarnings = RecentWarnings()

    init(level: Logger.Level = .info, format: LogFormat = .text) {
        values = Atomic(Self.number(level, format))
    }

    var current: Values {
        let number = values.load(ordering: .relaxed)
        return Values(level: Self.levels[number >> 1], format: number & 1 == 0 ? .text : .json)
    }

    func set(level: Logger.Level, format: LogFormat) {
        values.store(Self.number(level, format), ordering: .relaxed)
    }

    private static func number(_ level: Logger.Level, _ format: LogFormat) -> Int {
        (levels.firstIndex(of: level) ?? 0) << 1 | (format == .text ? 0 : 1)
    }
}

/// Writes one line per record.
struct LineLogHandler: LogHandler {
    var metadata: Logger.Metadata = [:]
    var metadataProvider: Logger.MetadataProvider?

    private let label: String
    private let settings: LogSettings
    private let output: any LogOutput
    private let now: TimeSource
    /// A level that was set on this logger alone.
    private var ownLevel: Logger.Level?

    init(
        label: String, settings: LogSettings, output: any LogOutput = DescriptorLogOutput.standardError,
        metadataProvider: Logger.MetadataProvider? = nil, now: @escaping TimeSource = Timestamp.now
    ) {
        self.label = label
        self.settings = settings
        self.output = output
        self.metadataProvider = metadataProvider
        self.now = now
    }

    var logLevel: Logger.Level {
        get { ownLevel ?? settings.current.level }
        set { ownLevel = newValue }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// The call's own metadata overrides the provider's, and that the logger's.
    func log(event: LogEvent) {
        var all = metadata
        if let provided = metadataProvider?.get() { Self.override(&all, with: provided) }
        if let own = event.metadata { Self.override(&all, with: own) }
        if let error = event.error, all["error"] == nil { all["error"] = "\(error)" }
        let record = LogRecord(
            time: now(), level: event.level, label: label, message: event.message.description, metadata: all)
        output.write(record, settings.current.format)
        if event.level >= .warning { settings.recentWarnings.add(record) }
    }

    /// Most loggers have no metadata of their own, so that there is nothing to copy.
    private static func override(_ metadata: inout Logger.Metadata, with new: Logger.Metadata) {
        if metadata.isEmpty {
            metadata = new
        } else {
            metadata.merge(new) { $1 }
        }
    }
}

extension LogSettings {
    /// Makes these the handlers of all loggers of the process. Once in a process.
    func bootstrap() {
        LoggingSystem.bootstrap(
            { label, provider in LineLogHandler(label: label, settings: self, metadataProvider: provider) },
            metadataProvider: nil)
    }
}

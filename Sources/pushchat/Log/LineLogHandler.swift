import ChatDomain
import Logging
import Synchronization

/// The state that all loggers share: the level and the format, which SIGHUP may change at any time, and the last
/// warnings.
final class LogSettings: Sendable {
    /// The maximum number of warnings to keep. Each has at most ``LogRecord/maxLine`` bytes.
    private static let maxWarnings = 100
    private static let levels = Logger.Level.allCases

    /// Level and format in one number, because every log call reads them, even for a level that is off.
    private let values: Atomic<Int>
    private let warnings = Mutex<[[UInt8]]>([])

    init(level: Logger.Level = .info, format: LogFormat = .text) {
        values = Atomic(Self.number(level, format))
    }

    var level: Logger.Level { Self.levels[values.load(ordering: .relaxed) >> 1] }
    var format: LogFormat { values.load(ordering: .relaxed) & 1 == 0 ? .text : .json }

    func set(level: Logger.Level, format: LogFormat) {
        values.store(Self.number(level, format), ordering: .relaxed)
    }

    private static func number(_ level: Logger.Level, _ format: LogFormat) -> Int {
        (levels.firstIndex(of: level) ?? 0) << 1 | (format == .text ? 0 : 1)
    }

    /// Uses these settings for all loggers in the process. Call it once per process.
    func bootstrap() {
        LoggingSystem.bootstrap(
            { label, provider in LineLogHandler(label: label, settings: self, metadataProvider: provider) },
            metadataProvider: nil)
    }

    fileprivate func addWarning(_ record: LogRecord) {
        let line = record.line(.json)
        warnings.withLock { lines in
            if lines.count == Self.maxWarnings { lines.removeFirst() }
            lines.append(line)
        }
    }

    /// The last warnings and errors in the JSON form of the log, oldest first, for the operator's page. They are in
    /// memory only and are lost when the process ends.
    var recentWarnings: [JSONValue] {
        warnings.withLock { $0 }.compactMap { try? JSONValue(parsing: $0) }
    }
}

/// Writes one line per record.
struct LineLogHandler: LogHandler {
    var metadata: Logger.Metadata = [:]
    var metadataProvider: Logger.MetadataProvider?

    private let label: String
    private let settings: LogSettings
    private let output: LogWriter
    private let now: TimeSource
    /// The level that was set on this logger. `nil` for the level of ``settings``.
    private var ownLevel: Logger.Level?

    init(
        label: String, settings: LogSettings, output: LogWriter = .standardError,
        metadataProvider: Logger.MetadataProvider? = nil, now: @escaping TimeSource = Timestamp.now
    ) {
        self.label = label
        self.settings = settings
        self.output = output
        self.metadataProvider = metadataProvider
        self.now = now
    }

    var logLevel: Logger.Level {
        get { ownLevel ?? settings.level }
        set { ownLevel = newValue }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// Writes an event. The event's own metadata override those of the provider, which override those of the logger.
    func log(event: LogEvent) {
        var all = metadata
        for new in [metadataProvider?.get(), event.metadata] {
            guard let new else { continue }
            // Avoid a copy, because most loggers have no metadata of their own.
            if all.isEmpty { all = new } else { all.merge(new) { $1 } }
        }
        if let error = event.error, all["error"] == nil { all["error"] = "\(error)" }
        let record = LogRecord(
            time: now(), level: event.level, label: label, message: event.message.description, metadata: all)
        output.write(record, settings.format)
        if event.level >= .warning { settings.addWarning(record) }
    }
}

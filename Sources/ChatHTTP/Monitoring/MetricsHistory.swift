import ChatDomain
import Foundation
import Logging
import Synchronization

/// The metrics of the last day, minute by minute, for the operator's charts. They survive a restart.
///
/// The history is a separate file next to the database, with one JSON object per line. It therefore needs no schema and
/// no space in the database's log, and a damaged file never keeps the relay from starting. Nothing else depends on the
/// history. The relay skips a line that it cannot read. If it cannot write a line, that minute is in memory only.
final class MetricsHistory: Sendable {
    /// The number of minutes of a day.
    static let day = 1440
    /// The maximum size of a file that is read, in bytes. A regular file is about a third of that size.
    private static let maxFileSize = 1 << 20

    /// The numbers from which a minute is computed. `sent`, `failed` and `messages` count from the start of the
    /// process. The others are current values.
    struct Totals: Sendable, Hashable {
        var queue = 0
        /// The age of the oldest push, in seconds.
        var oldest = 0.0
        var sent = 0
        var failed = 0
        var messages = 0
        var streams = 0
    }

    /// The metrics of one minute: the queue and the streams at its end, and the other counts within it.
    struct Minute: Sendable, Hashable {
        /// The end of the minute.
        let at: Timestamp
        let metrics: Totals

        var json: JSONObject {
            [
                "at": .time(at), "queue": .number(metrics.queue),
                "oldest_age_seconds": .number(String(metrics.oldest)), "sent": .number(metrics.sent),
                "failed": .number(metrics.failed), "messages": .number(metrics.messages),
                "streams": .number(metrics.streams),
            ]
        }

        init(at: Timestamp, _ metrics: Totals) {
            self.at = at
            self.metrics = metrics
        }

        /// Reads the form that ``json`` writes. `nil` for anything else.
        init?(_ line: some Collection<UInt8>) {
            guard let object = try? JSONValue(parsing: line).object,
                let at = object["at"]?.text.flatMap(Timestamp.init(rfc3339:)),
                case .number(let oldest)? = object["oldest_age_seconds"], let oldest = Double(oldest), oldest.isFinite
            else { return nil }
            func count(_ name: String) -> Int { object[name]?.integer.map { Int(max(0, $0)) } ?? 0 }
            self.init(
                at: at,
                Totals(
                    queue: count("queue"), oldest: oldest, sent: count("sent"), failed: count("failed"),
                    messages: count("messages"), streams: count("streams")))
        }
    }

    private struct State {
        let kept: Int
        var minutes: [Minute] = []
        var last = Totals()

        /// Adds a minute, and drops those that are too old.
        ///
        /// - Returns: Whether later minutes existed. They are dropped as well, because the clock was set back.
        @discardableResult
        mutating func add(_ minute: Minute) -> Bool {
            let begin = minute.at - .seconds(60 * kept)
            let count = minutes.count
            minutes.removeAll { $0.at >= minute.at }
            defer {
                minutes.removeAll { $0.at <= begin }
                minutes.append(minute)
                minutes.removeFirst(max(0, minutes.count - kept))
            }
            return minutes.count < count
        }
    }

    private let file: String?
    private let now: TimeSource
    private let logger: Logger
    /// The number of minutes to keep in memory. The file holds up to twice as many before it is rewritten.
    private let kept: Int
    private let state: Mutex<State>
    /// The number of lines in the file. `nil` if the file must be rewritten. Locked during a write; readers do not wait
    /// for it.
    private let lines = Mutex<Int?>(nil)

    /// Creates the history and reads its file.
    ///
    /// - Parameter file: The file of the history. `nil` to keep it in memory only.
    init(file: String?, kept: Int = day, now: @escaping TimeSource, logger: Logger) {
        self.file = file
        self.kept = kept
        state = Mutex(State(kept: kept))
        self.now = now
        self.logger = logger
        if let file { load(file) }
    }

    /// Returns the last minutes, oldest first.
    func latest(_ count: Int) -> ArraySlice<Minute> { state.withLock { $0.minutes.suffix(count) } }

    /// Adds the minute that has just ended.
    func add(_ totals: Totals) {
        let now = self.now()
        let (minute, all) = state.withLock { state -> (Minute, isAnew: [Minute]?) in
            var metrics = totals
            metrics.sent -= state.last.sent
            metrics.failed -= state.last.failed
            metrics.messages -= state.last.messages
            state.last = totals
            let minute = Minute(at: now, metrics)
            let isAnew = state.add(minute)
            return (minute, isAnew ? state.minutes : nil)
        }
        guard let file else { return }
        lines.withLock { lines in
            do {
                if let count = lines, count < 2 * kept, all == nil {
                    // If the write fails, the file may end in part of a line and must be rewritten.
                    lines = nil
                    try Self.append(minute, to: file)
                    lines = count + 1
                } else {
                    lines = nil
                    lines = try Self.write(all ?? Array(latest(kept)), to: file)
                }
            } catch {
                logger.debug("the metrics of this minute are in memory only", metadata: ["error": "\(error)"])
            }
        }
    }

    // MARK: - The file

    private func load(_ file: String) {
        var status = stat()
        guard stat(file, &status) == 0, status.st_size <= Self.maxFileSize,
            let bytes = FileManager.default.contents(atPath: file)
        else { return }
        let found = bytes.split(separator: UInt8(ascii: "\n"))
        let now = self.now()
        state.withLock { state in
            for minute in found.suffix(2 * kept).compactMap({ Minute($0) }) where minute.at <= now {
                state.add(minute)
            }
            let begin = now - .seconds(60 * kept)
            state.minutes.removeAll { $0.at <= begin }
        }
        // If the last line was cut off, the next one must not be appended to it.
        lines.withLock { $0 = bytes.last == UInt8(ascii: "\n") ? found.count : nil }
    }

    private static func append(_ minute: Minute, to file: String) throws {
        let handle = open(file, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC)
        guard handle >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        defer { close(handle) }
        let line = Array("\(JSONValue.object(minute.json))\n".utf8)
        guard Glibc.write(handle, line, line.count) == line.count else { throw POSIXError(.ENOSPC) }
    }

    /// Replaces the file once the new one is complete. The process's umask protects the new file from other users.
    ///
    /// - Returns: The number of lines.
    private static func write(_ minutes: [Minute], to file: String) throws -> Int {
        let text = minutes.map { "\(JSONValue.object($0.json))\n" }.joined()
        try text.write(toFile: file, atomically: true, encoding: .utf8)
        return minutes.count
    }
}

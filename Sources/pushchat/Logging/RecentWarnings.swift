import ChatDomain
import Synchronization

/// The last warnings and errors of the log, for the operator's page. In memory: gone with the process.
final class RecentWarnings: Sendable {
    /// Of at most ``LogRecord/longestLine`` bytes each.
    private static let most = 100

    private let lines = Mutex<[[UInt8]]>([])

    func add(_ record: LogRecord) {
        let line = record.line(.json)
        lines.withLock { lines in
            if lines.count == Self.most { lines.removeFirst() }
            lines.append(line)
        }
    }

    /// As the log has them in JSON, oldest first.
    var records: [JSONValue] {
        lines.withLock { $0 }.compactMap { try? JSONValue(parsing: $0) }
    }
}

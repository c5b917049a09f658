package import Logging
import Synchronization

/// Keeps log lines of every level as text.
package final class LogRecorder: Sendable {
    private let kept = Mutex<[String]>([])

    package init() {}

    package var lines: [String] { kept.withLock { $0 } }

    package var logger: Logger {
        Logger(label: "test") { _ in Handler(recorder: self) }
    }

    private struct Handler: LogHandler {
        let recorder: LogRecorder
        var metadata: Logger.Metadata = [:]
        var metadataProvider: Logger.MetadataProvider?
        var logLevel = Logger.Level.trace

        init(recorder: LogRecorder) {
            self.recorder = recorder
        }

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let all = metadata.merging(event.metadata ?? [:]) { $1 }
            let pairs = all.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " ")
            recorder.kept.withLock { $0.append("\(event.level) \(event.message) \(pairs)") }
        }
    }
}

extension Logger {
    /// A logger that keeps nothing.
    package static var silent: Logger { Logger(label: "test") { _ in SwiftLogNoOpLogHandler() } }
}

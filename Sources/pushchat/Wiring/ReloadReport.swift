import ChatStore
import Foundation

/// The results of a relay's reloads, in a file next to its database (`….reload`). The sender of SIGHUP reads it.
struct ReloadReport: Codable, Sendable, Equatable {
    /// The relay's process id.
    let process: Int32
    /// The number of reloads begun since the process started. A reload that began after a change has read that change.
    var begun = 0
    var ended = 0
    /// The reason why the last reload changed nothing. `nil` if it succeeded.
    var error: String?
    /// The settings that the last reload found changed.
    var changes: [String] = []
    /// The changed settings that take effect only after a restart.
    var needsRestart: [String] = []

    init(process: Int32) {
        self.process = process
    }

    static func file(of database: String) -> String { DatabaseFile.resolved(database) + ".reload" }

    /// Reads the file. `nil` if no relay has written one.
    init?(of database: String) {
        guard let data = FileManager.default.contents(atPath: Self.file(of: database)),
            let report = try? JSONDecoder().decode(Self.self, from: data)
        else { return nil }
        self = report
    }

    /// Replaces the file in one step.
    func write(for database: String) throws {
        try JSONEncoder().encode(self).write(to: URL(filePath: Self.file(of: database)), options: .atomic)
    }
}

import ChatStore
import Foundation

/// What has become of a relay's reloads, in a file beside its database (`….reload`), for whoever sent SIGHUP.
struct ReloadReport: Codable, Sendable, Equatable {
    /// The relay's.
    let process: Int32
    /// Reloads since the process began. One that began after a change was made has read that change.
    var begun = 0
    var ended = 0
    /// Why the last one changed nothing; nil where it worked.
    var error: String?
    /// Settings that the last one found changed.
    var changes: [String] = []
    /// Those of them that count only after a restart.
    var needsRestart: [String] = []

    init(process: Int32) {
        self.process = process
    }

    static func file(of database: String) -> String { DatabaseFile.resolved(database) + ".reload" }

    /// Nil where no relay reports.
    init?(of database: String) {
        guard let data = FileManager.default.contents(atPath: Self.file(of: database)),
            let report = try? JSONDecoder().decode(Self.self, from: data)
        else { return nil }
        self = report
    }

    /// Replaces the file at once.
    func write(for database: String) throws {
        try JSONEncoder().encode(self).write(to: URL(filePath: Self.file(of: database)), options: .atomic)
    }
}

import Foundation

/// The database's files as they were when it was opened.
///
/// Deleted, moved away or replaced, they are still open in this process, and what it writes is gone when it ends. So before
/// each use their names are looked at; that costs some microseconds.
struct FileIdentityCheck: Sendable {
    private struct Identity: Sendable, Equatable {
        let device: dev_t
        let file: ino_t

        init?(_ path: String) {
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            (device, file) = (status.st_dev, status.st_ino)
        }
    }

    private let files: [(path: String, identity: Identity)]

    /// To be called while the database is open.
    init(of path: String) {
        let real = DatabaseFile.resolved(path)
        files = [path, real + "-wal", real + "-shm"].compactMap { path in Identity(path).map { (path, $0) } }
    }

    /// The first that is not where it was; nil while all are.
    var missing: String? { files.first { Identity($0.path) != $0.identity }?.path }
}

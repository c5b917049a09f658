import Foundation

/// The identities of the database's files at the time when the database was opened.
///
/// If the files are deleted, moved away or replaced, they stay open in this process, and later writes are lost when it
/// ends. The check before each use therefore compares the files behind the names. It costs a few microseconds.
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

    /// Must be called while the database is open.
    init(of path: String) {
        let real = DatabaseFile.resolved(path)
        files = [path, real + "-wal", real + "-shm"].compactMap { path in Identity(path).map { (path, $0) } }
    }

    /// The first file that was deleted, moved or replaced. `nil` if there is none.
    var missing: String? { files.first { Identity($0.path) != $0.identity }?.path }
}

import Foundation

/// Sees to it that one relay at a time serves a database: two would send everything twice.
///
/// A lock on a file beside the database (`….lock`), held while this value lives and released by the kernel however
/// the process ends. Not on the database itself: closing any descriptor of it would drop SQLite's own locks.
package struct DatabaseLock: ~Copyable {
    private let descriptor: Int32

    package init(path: String) throws(DatabaseFile.Unusable) {
        let file = path + ".lock"
        let descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw DatabaseFile.unusable("\(file) cannot be opened") }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            var holder = [UInt8](repeating: 0, count: 20)
            let count = max(0, pread(descriptor, &holder, holder.count, 0))
            close(descriptor)
            let process = String(decoding: holder[..<count], as: UTF8.self)
            throw DatabaseFile.Unusable(
                description: "\(path) is being served by another pushchat (process \(process)); stop that one first")
        }
        let process = Array(String(getpid()).utf8)
        ftruncate(descriptor, 0)
        _ = pwrite(descriptor, process, process.count, 0)
        self.descriptor = descriptor
    }

    deinit {
        close(descriptor)
    }
}

import Foundation

/// Ensures that only one relay serves a database at a time. Two relays would send every push twice.
///
/// There are two locks, held as long as this value exists. The kernel releases them however the process ends. One is on
/// the database itself, whichever link leads to it. The other is on a file beside it (`….lock`), which contains the
/// process id. It also keeps out older versions of the relay, which know only this lock.
package struct DatabaseLock: ~Copyable {
    /// The offset of the locked byte in the database, far behind the bytes that SQLite locks.
    private static let position: off_t = 1 << 62
    /// `F_OFD_SETLK` of `fcntl.h`.
    private static let setLock: Int32 = 37

    private let database: Int32
    private let named: Int32

    /// Takes both locks and creates the lock file if it is missing. Must be called before this process opens the
    /// database.
    package init(path: String) throws(DatabaseFile.Unusable) {
        try DatabaseFile(path: path).requireNotForeign()
        let database = FileRights.openOrCreate(path)
        guard database >= 0 else { throw DatabaseFile.unusable("\(path) cannot be opened") }
        // A lock of the open file description, not of the process: SQLite closes other descriptors of the same file,
        // which would drop a process's lock.
        var range = flock()
        (range.l_type, range.l_whence, range.l_start, range.l_len) = (Int16(F_WRLCK), Int16(SEEK_SET), Self.position, 1)
        // A system without such locks still has the lock file.
        let isFirst = fcntl(database, Self.setLock, &range) == 0 || ![EAGAIN, EACCES].contains(errno)
        let file = DatabaseFile.resolved(path) + ".lock"
        // `O_NOFOLLOW`: through a symbolic link, the relay would write to another file.
        let name =
            isFirst ? FileRights.openOrCreate(file, O_NOFOLLOW) : open(file, O_RDWR | O_NOFOLLOW | O_CLOEXEC)
        guard name >= 0 || !isFirst else {
            defer { close(database) }
            throw DatabaseFile.unusable("\(file) cannot be opened")
        }
        do {
            // The relay writes to the file, and `give(to:_:)` may change its owner.
            if name >= 0 { try DatabaseFile.requirePlain(name, file) }
        } catch {
            close(name)
            close(database)
            throw error
        }
        guard isFirst, flock(name, LOCK_EX | LOCK_NB) == 0 else {
            var holder = [UInt8](repeating: 0, count: 20)
            let count = max(0, pread(name, &holder, holder.count, 0))
            close(name)
            close(database)
            let process = count == 0 ? "" : " (process \(String(decoding: holder[..<count], as: UTF8.self)))"
            throw DatabaseFile.Unusable(
                description: "\(path) is being served by another pushchat\(process); stop that one first")
        }
        let process = Array(String(getpid()).utf8)
        ftruncate(name, 0)
        _ = pwrite(name, process, process.count, 0)
        (self.database, self.named) = (database, name)
    }

    /// The id of the process that serves a database. `nil` if there is none that this process can see. Takes no lock,
    /// so it does not prevent a relay from starting.
    package static func holder(of path: String) throws(DatabaseFile.Unusable) -> Int32? {
        let file = DatabaseFile.resolved(path) + ".lock"
        let name = open(file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        guard name >= 0 else {
            if errno == ENOENT { return nil }
            throw DatabaseFile.unusable("\(file) cannot be read")
        }
        defer { close(name) }
        var text = [UInt8](repeating: 0, count: 20)
        let count = max(0, pread(name, &text, text.count, 0))
        var lock = stat()
        guard let process = pid_t(String(decoding: text[..<count], as: UTF8.self)), fstat(name, &lock) == 0 else {
            return nil
        }
        // The process id stays in the file after the process ends, and another process may have the same id now. Check
        // that the process holds the file open.
        let folder = "/proc/\(process)/fd"
        guard let descriptors = opendir(folder) else {
            guard errno == EACCES else { return nil }
            throw DatabaseFile.Unusable(
                description:
                    "process \(process), which may serve \(path), belongs to another user: become that user, or root"
            )
        }
        defer { closedir(descriptors) }
        while let entry = readdir(descriptors) {
            let number = withUnsafePointer(to: &entry.pointee.d_name) { name in
                name.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            var status = stat()
            if stat("\(folder)/\(number)", &status) == 0, status.st_dev == lock.st_dev, status.st_ino == lock.st_ino {
                return process
            }
        }
        return nil
    }

    /// Changes the owner of the lock file.
    func give(to user: uid_t, _ group: gid_t) -> Bool { fchown(named, user, group) == 0 }

    /// Must run after the database was closed, because closing the descriptor also drops SQLite's locks.
    deinit {
        close(named)
        close(database)
    }
}

import CLinux
import Foundation

/// The user whose rights a thread uses for files. It makes root safe in a folder that belongs to another user.
///
/// The owner of a folder can replace any name in it with a symbolic link at any moment, even between two calls of
/// SQLite. With root's rights such a link leads to any file of the system. With the owner's rights it leads only to
/// files that the owner could change anyway.
struct FileRights: Equatable, Sendable {
    /// Debian's `nogroup`. A user's folder may belong to root's group, whose rights are not the user's.
    private static let nobody: gid_t = 65_534

    let user: uid_t
    let group: gid_t

    /// The rights of the process.
    static var own: FileRights { FileRights(user: geteuid(), group: getegid()) }

    private init(user: uid_t, group: gid_t) {
        (self.user, self.group) = (user, group)
    }

    /// The rights for creating, replacing and deleting `path` and files beside it: those of the folder's owner. In a
    /// folder that belongs to root but that others can write to, those of the file's owner.
    init(changing path: String) {
        let (file, folder) = Self.owners(of: path)
        let rights = folder.map { $0.user == 0 ? file ?? .own : $0 } ?? .own
        self.init(user: rights.user, group: rights.group)
    }

    /// The rights for reading `path`: those of its owner.
    init(reading path: String) {
        let (file, folder) = Self.owners(of: path)
        let rights = folder == nil ? .own : file ?? .own
        self.init(user: rights.user, group: rights.group)
    }

    /// - Returns: No folder if only root can change names in it, or if this process does not run as root. If a user's
    ///   symbolic link leads to the file, that user for both.
    private static func owners(of path: String) -> (file: FileRights?, folder: FileRights?) {
        guard geteuid() == 0 else { return (nil, nil) }
        if let owner = ownerOfLink(in: path) { return (owner, owner) }
        let file = DatabaseFile.resolved(path)
        var status = stat()
        guard stat(DatabaseFile.folder(of: file), &status) == 0 else { return (nil, nil) }
        guard status.st_uid != 0 || status.st_mode & (S_IWGRP | S_IWOTH) != 0 else { return (nil, nil) }
        let folder = FileRights(ownerOf: status)
        return (lstat(file, &status) == 0 ? FileRights(ownerOf: status) : nil, folder)
    }

    /// The maximum number of symbolic links to follow, the same as the kernel's.
    private static let mostLinks = 40

    /// Returns the owner of the first symbolic link in the path that does not belong to root. Such a link can lead to a
    /// database in a folder of root's, where the relay would otherwise use root's rights.
    private static func ownerOfLink(in path: String) -> FileRights? {
        var (place, names, links) = (path.hasPrefix("/") ? "/" : "./", path.split(separator: "/").map(String.init), 0)
        names.reverse()
        while let name = names.popLast() {
            var status = stat()
            guard lstat(place + name, &status) == 0 else { return nil }
            guard status.st_mode & S_IFMT == S_IFLNK else {
                place += name + "/"
                continue
            }
            if status.st_uid != 0 { return FileRights(ownerOf: status) }
            links += 1
            guard links <= mostLinks,
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: place + name)
            else { return nil }
            if target.hasPrefix("/") { place = "/" }
            names += target.split(separator: "/").map(String.init).reversed()
        }
        return nil
    }

    private init(ownerOf status: stat) {
        user = status.st_uid
        group = status.st_gid == 0 && status.st_uid != 0 ? Self.nobody : status.st_gid
    }

    /// Opens a file for reading and writing. Creates it if it is missing, so that only its owner can read it. In a folder
    /// of another user, root creates it with that user's rights: a file of root's would lock out the user that runs the
    /// relay.
    /// - Returns: The descriptor. Negative after an error, with the reason in `errno`.
    static func openOrCreate(_ path: String, _ flags: Int32 = 0) -> Int32 {
        let flags = flags | O_RDWR | O_CREAT | O_CLOEXEC
        let created = try? FileRights(changing: path).perform { open(path, flags | O_EXCL, 0o600) }
        if let created, created >= 0 { return created }
        return open(path, flags, 0o600)
    }

    /// Runs `body` with these rights. They apply to the calling thread only, so `body` must not use other threads.
    /// GRDB's `DatabaseQueue` does not: its calls run on the caller's thread.
    /// - Throws: ``DatabaseFile/Unusable`` if the process cannot get the rights, and the errors of `body`.
    func perform<Result>(_ body: () throws -> Result) throws -> Result {
        let before = Self.current
        guard before != self else { return try body() }
        // Without this the thread keeps root's supplementary groups.
        if user != 0 { setgroups(0, nil) }
        set()
        defer { before.set() }
        guard Self.current == self else {
            throw DatabaseFile.Unusable(
                description: "the rights of user \(user), group \(group) cannot be used; run this as that user")
        }
        return try body()
    }

    /// The thread's current rights. `setfsuid` and `setfsgid` report no errors. An id that no user has changes nothing,
    /// and they return the current one.
    static var current: FileRights {
        FileRights(user: uid_t(bitPattern: setfsuid(.max)), group: gid_t(bitPattern: setfsgid(.max)))
    }

    private func set() {
        _ = setfsgid(group)
        _ = setfsuid(user)
    }
}

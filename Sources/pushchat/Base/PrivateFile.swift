import Foundation

/// Creates files and folders that only their owner can use, and that survive a power cut. Paths are absolute.
enum PrivateFile {
    /// The system's reason why a file cannot be created.
    struct Obstacle: Error, CustomStringConvertible {
        let number: Int32
        var description: String { String(cString: strerror(number)) }
    }

    /// Creates a file. It gets its name when its content is on disk, so after a power cut it is whole or missing.
    ///
    /// - Throws: ``Obstacle``, with `EEXIST` if there is a file of that name. It does not change then.
    static func create(_ path: String, _ content: String) throws(Obstacle) {
        let folder = FilePath.folder(of: path)
        // mkstemp(3) creates the file with mode 0600, so no other user can ever open it.
        var draft = Array("\(folder)/.\((path as NSString).lastPathComponent)-XXXXXX".utf8CString)
        let descriptor = mkstemp(&draft)
        guard descriptor >= 0 else { throw Obstacle(number: errno) }
        defer {
            close(descriptor)
            unlink(draft)
        }
        let bytes = Array(content.utf8)
        let written = write(descriptor, bytes, bytes.count)
        guard written == bytes.count else { throw Obstacle(number: written < 0 ? errno : ENOSPC) }
        guard fsync(descriptor) == 0, name(draft, path) else { throw Obstacle(number: errno) }
        do throws(Obstacle) {
            try sync(folder)
        } catch {
            unlink(path)
            throw error
        }
    }

    /// Gives a draft a name that no other file has.
    private static func name(_ draft: [CChar], _ path: String) -> Bool {
        if link(draft, path) == 0 { return true }
        // A file system without hard links.
        guard [EPERM, ENOTSUP, ENOSYS].contains(errno) else { return false }
        guard access(path, F_OK) != 0 else {
            errno = EEXIST
            return false
        }
        return rename(draft, path) == 0
    }

    /// Creates a folder, and the folders above it that are missing. A folder that exists keeps its mode.
    static func createFolder(_ path: String) throws {
        var changed: [String] = []
        var folder = path
        while access(folder, F_OK) != 0, folder != "/" {
            folder = FilePath.folder(of: folder)
            changed.append(folder)
        }
        try FileManager.default.createDirectory(
            atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        for folder in changed { try sync(folder) }
    }

    /// Waits until the names in a folder are on disk, if its file system can do that.
    private static func sync(_ folder: String) throws(Obstacle) {
        let descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Obstacle(number: errno) }
        defer { close(descriptor) }
        guard fsync(descriptor) == 0 || [EINVAL, ENOTSUP].contains(errno) else { throw Obstacle(number: errno) }
    }
}

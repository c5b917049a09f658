package import Foundation

/// A new folder, which is deleted together with this object.
package final class TemporaryFolder: Sendable {
    package let url: URL

    package var path: String { url.path }

    package init() throws {
        url = Self.parent.appending(path: "pushchat-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(at: url) }

    /// The parent of the tests' folders: in memory if `/dev/shm` has more than 4 GiB free. Tests write much, and none of
    /// them depends on a disk. A database of PostgreSQL has 300 files, and ext4 is slow at creating files where many were
    /// just deleted.
    package static let parent: URL = {
        let memory = "/dev/shm"
        var space = statvfs()
        guard access(memory, W_OK) == 0, statvfs(memory, &space) == 0,
            UInt64(space.f_bavail) * UInt64(space.f_frsize) > 4 << 30
        else { return FileManager.default.temporaryDirectory }
        return URL(filePath: memory)
    }()
}

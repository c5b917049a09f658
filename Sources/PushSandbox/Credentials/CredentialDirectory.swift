import Foundation

/// The directory of the sandbox's credentials. It is locked while the credentials are created, and each file is
/// replaced as a whole.
struct CredentialDirectory: Sendable {
    /// The maximum time to wait for another process's lock. Creating all credentials takes well under a second.
    private static let lockTimeout = Duration.seconds(10)
    private static let lockInterval = Duration.milliseconds(20)
    /// The size in bytes from which a file is not read. A certificate with its key is a few kilobytes.
    private static let fileLimit = 1 << 20

    let path: String

    /// Runs `body` while this process holds the directory's lock.
    /// - Throws: ``SandboxError/directoryBusy(path:)`` if another process holds the lock for all of ``lockTimeout``.
    func locked<Result: Sendable>(
        clock: some Clock<Duration> = ContinuousClock(), _ body: @Sendable () throws -> Result
    ) async throws -> Result {
        try make()
        let lock = open(file(".lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard lock >= 0 else { throw failure(".lock") }
        // Closing the descriptor releases the lock, as does the end of the process.
        defer { close(lock) }
        let deadline = clock.now.advanced(by: Self.lockTimeout)
        while flock(lock, LOCK_EX | LOCK_NB) != 0 {
            guard errno == EWOULDBLOCK || errno == EINTR else { throw failure(".lock") }
            guard clock.now < deadline else { throw SandboxError.directoryBusy(path: path) }
            try await clock.sleep(for: Self.lockInterval)
        }
        return try body()
    }

    func file(_ name: String) -> String {
        path + "/" + name
    }

    /// Returns a file's bytes. `nil` if the file is missing, unreadable or too long (``fileLimit``).
    func read(_ name: String) -> [UInt8]? {
        guard let handle = FileHandle(forReadingAtPath: file(name)) else { return nil }
        defer { try? handle.close() }
        guard let data = try? handle.read(upToCount: Self.fileLimit), data.count < Self.fileLimit else { return nil }
        return Array(data)
    }

    /// Replaces files, each atomically and with mode 0600. All files are on disk under other names before the first is
    /// renamed.
    ///
    /// A crash between two renames leaves old and new files together. Readers check that the files belong together.
    func replace(_ files: [(name: String, bytes: [UInt8])]) throws {
        var written: [(temporary: String, name: String)] = []
        defer { for file in written { unlink(self.file(file.temporary)) } }
        for file in files {
            let temporary = ".\(file.name).\(UInt64.random(in: 0 ... .max))"
            let descriptor = open(
                self.file(temporary), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
            guard descriptor >= 0 else { throw failure(temporary) }
            written.append((temporary, file.name))
            let handle = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
            do {
                try handle.write(contentsOf: Data(file.bytes))
                try handle.synchronize()
                try handle.close()
            } catch {
                throw SandboxError.directory(path: self.file(file.name), reason: "\(error)")
            }
        }
        for file in written {
            guard rename(self.file(file.temporary), self.file(file.name)) == 0 else { throw failure(file.name) }
        }
        try sync(path)
    }

    /// Makes the names in a folder durable.
    private func sync(_ folder: String) throws {
        let descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else {
            // A folder that can only be written.
            if errno == EACCES { return }
            throw failure("")
        }
        defer { close(descriptor) }
        // Some shared folders of virtual machines cannot sync a folder.
        guard fsync(descriptor) == 0 || [EINVAL, ENOTSUP].contains(errno) else { throw failure("") }
    }

    /// Creates the directory with mode 0700. An existing directory keeps its mode, because the files are private in any
    /// case.
    private func make() throws {
        let parents = sequence(first: URL(filePath: path)) { $0.deletingLastPathComponent() }
        let missing = Array(parents.prefix { access($0.path, F_OK) != 0 })
        do {
            try FileManager.default.createDirectory(
                atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw SandboxError.directory(path: path, reason: error.localizedDescription)
        }
        for folder in missing { try sync(folder.deletingLastPathComponent().path) }
    }

    private func failure(_ name: String) -> SandboxError {
        SandboxError.directory(path: file(name), reason: String(cString: strerror(errno)))
    }
}

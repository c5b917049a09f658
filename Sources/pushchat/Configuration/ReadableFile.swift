import Foundation

/// Paths as text.
enum FilePath {
    /// The path from the root, without `.` and empty parts; `..` stays, because what it means depends on links.
    static func absolute(_ path: String, in folder: String = FileManager.default.currentDirectoryPath) -> String {
        let whole = path.hasPrefix("/") ? path : folder + "/" + path
        return "/" + whole.split(separator: "/").filter { $0 != "." }.joined(separator: "/")
    }

    /// The folder that holds an absolute path.
    static func folder(of path: String) -> String {
        "/" + path.split(separator: "/").dropLast().joined(separator: "/")
    }
}

/// A regular file that is read whole, up to a limit.
enum ReadableFile {
    /// What is wrong with a file, in words that follow its path: "which does not exist".
    struct Problem: Error, Sendable, CustomStringConvertible {
        let description: String
        /// There is no such file, as opposed to one that cannot be read.
        let isMissing: Bool

        init(_ description: String, isMissing: Bool = false) {
            self.description = description
            self.isMissing = isMissing
        }
    }

    /// Opens and closes it: throws unless it is a regular file that this process may read and that is not empty.
    static func check(_ path: String) throws(Problem) {
        let (descriptor, size) = try open(path)
        close(descriptor)
        guard size > 0 else { throw Problem("which is empty") }
    }

    /// Whether users who neither own it nor are of its group may read it.
    static func isReadableByAll(_ path: String) -> Bool {
        var facts = stat()
        return stat(path, &facts) == 0 && facts.st_mode & S_IROTH != 0
    }

    /// - Parameter limit: bytes.
    static func read(_ path: String, limit: Int) throws(Problem) -> [UInt8] {
        let (descriptor, _) = try open(path)
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 16_384)
        while true {
            let count = Foundation.read(descriptor, &piece, piece.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw Problem("which cannot be read: \(reason(errno))") }
            if count == 0 { return bytes }
            bytes += piece[..<count]
            guard bytes.count <= limit else { throw Problem("which has more than \(limit) bytes") }
        }
    }

    static func text(_ path: String, limit: Int) throws(Problem) -> String {
        guard let text = String(validating: try read(path, limit: limit), as: UTF8.self) else {
            throw Problem("which is not UTF-8")
        }
        return text
    }

    /// Never waits: a pipe without a writer is opened and refused.
    private static func open(_ path: String) throws(Problem) -> (descriptor: Int32, size: Int) {
        guard !path.utf8.contains(0) else { throw Problem("which is not a path: it contains a zero byte") }
        let descriptor = Foundation.open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else {
            if errno == ENOENT || errno == ENOTDIR { throw Problem("which does not exist", isMissing: true) }
            if errno == EACCES { throw Problem("which this user may not read") }
            throw Problem("which cannot be opened: \(reason(errno))")
        }
        var facts = stat()
        guard fstat(descriptor, &facts) == 0, facts.st_mode & S_IFMT == S_IFREG else {
            close(descriptor)
            throw Problem("which is not a regular file")
        }
        return (descriptor, Int(facts.st_size))
    }

    private static func reason(_ code: Int32) -> String { String(cString: strerror(code)) }
}

import Foundation

/// Paths as text.
enum FilePath {
    /// The path from the root, without `.` and empty parts. Keeps `..`, because its meaning depends on links.
    static func absolute(_ path: String, in folder: String = FileManager.default.currentDirectoryPath) -> String {
        let whole = path.hasPrefix("/") ? path : folder + "/" + path
        return "/" + whole.split(separator: "/").filter { $0 != "." }.joined(separator: "/")
    }

    /// The folder that holds an absolute path.
    static func folder(of path: String) -> String {
        "/" + path.split(separator: "/").dropLast().joined(separator: "/")
    }
}

/// Reads whole regular files, up to a limit.
enum ReadableFile {
    /// A problem with a file, in words that follow its path: "which does not exist".
    struct Problem: Error, Sendable, CustomStringConvertible {
        enum Kind: Sendable {
            /// The file does not exist.
            case missing
            /// The file could be read, but other users can write it.
            case doubtful
            /// The file exists, and this user has no right to read it.
            case forbidden
            case other
        }

        let description: String
        let kind: Kind

        init(_ description: String, _ kind: Kind = .other) {
            self.description = description
            self.kind = kind
        }
    }

    /// Opens and closes the file. Throws unless it is a regular file that this process may read and that is not empty.
    static func check(_ path: String) throws(Problem) {
        let (descriptor, size) = try open(path)
        close(descriptor)
        guard size > 0 else { throw Problem("which is empty") }
    }

    /// The objection of ``FileTrust`` to the file, as a continuation of its path. `nil` if there is no objection, or if
    /// the file cannot be opened.
    static func objection(to path: String, _ trust: FileTrust) -> String? {
        guard let (descriptor, _) = try? open(path) else { return nil }
        defer { close(descriptor) }
        return FileTrust.Facts(descriptor: descriptor).flatMap { trust.objection(to: $0) }
    }

    /// Whether users that neither own the file nor belong to its group may read it.
    static func isReadableByAll(_ path: String) -> Bool {
        var facts = stat()
        return stat(path, &facts) == 0 && facts.st_mode & S_IROTH != 0
    }

    /// Reads a whole file.
    /// - Parameters:
    ///   - limit: The maximum number of bytes.
    ///   - trust: Refuses a file that it does not trust. `nil` to read any file.
    static func read(_ path: String, limit: Int, trust: FileTrust? = nil) throws(Problem) -> [UInt8] {
        let descriptor = if let trust { try open(path, trust).descriptor } else { try open(path).descriptor }
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

    static func text(_ path: String, limit: Int, trust: FileTrust? = nil) throws(Problem) -> String {
        guard let text = String(validating: try read(path, limit: limit, trust: trust), as: UTF8.self) else {
            throw Problem("which is not UTF-8")
        }
        return text
    }

    /// Opens a file without waiting. A pipe without a writer is opened and then refused.
    private static func open(_ path: String) throws(Problem) -> (descriptor: Int32, size: Int) {
        guard !path.utf8.contains(0) else { throw Problem("which is not a path: it contains a zero byte") }
        return try opened(Foundation.open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC))
    }

    /// Opens a file that must be trusted.
    ///
    /// Checks open descriptors instead of paths, so that no other user can exchange the file between the check and the
    /// reading.
    private static func open(_ path: String, _ trust: FileTrust) throws(Problem) -> (descriptor: Int32, size: Int) {
        let target = try resolved(path)
        let entry = try resolved(FilePath.folder(of: path)) + "/" + (path.split(separator: "/").last ?? "")
        let place = try opened(folder: FilePath.folder(of: target))
        defer { close(place) }
        let name = String(target.split(separator: "/").last ?? "")
        let (descriptor, size) = try opened(openat(place, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW))
        do throws(Problem) {
            guard let file = FileTrust.Facts(descriptor: descriptor), let folder = FileTrust.Facts(descriptor: place)
            else { throw Problem("which cannot be opened: \(reason(errno))") }
            if let objection = trust.objection(to: file) { throw Problem("which \(objection)", .doubtful) }
            try refuse(trust.objection(toFolder: folder, entry: file))
            // The path is a link. A user that can replace the link chooses the file, so check the link's folder as
            // well.
            if entry != target {
                let linking = try opened(folder: FilePath.folder(of: entry))
                defer { close(linking) }
                guard let folder = FileTrust.Facts(descriptor: linking) else {
                    throw Problem("which cannot be opened: \(reason(errno))")
                }
                try refuse(trust.objection(toFolder: folder, entry: nil))
            }
        } catch {
            close(descriptor)
            throw error
        }
        return (descriptor, size)
    }

    private static func refuse(_ objection: String?) throws(Problem) {
        if let objection { throw Problem("which is in a folder that \(objection)", .doubtful) }
    }

    /// The path with all links resolved.
    private static func resolved(_ path: String) throws(Problem) -> String {
        guard let text = realpath(path, nil) else { throw failure(errno) }
        defer { free(text) }
        return String(cString: text)
    }

    private static func opened(folder: String) throws(Problem) -> Int32 {
        let descriptor = Foundation.open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { throw Problem("whose folder cannot be opened: \(reason(errno))") }
        return descriptor
    }

    /// Checks that an open file is regular, and returns its size. Closes any other file and throws.
    private static func opened(_ descriptor: Int32) throws(Problem) -> (descriptor: Int32, size: Int) {
        guard descriptor >= 0 else { throw failure(errno) }
        var facts = stat()
        guard fstat(descriptor, &facts) == 0, facts.st_mode & S_IFMT == S_IFREG else {
            close(descriptor)
            throw Problem("which is not a regular file")
        }
        return (descriptor, Int(facts.st_size))
    }

    private static func failure(_ code: Int32) -> Problem {
        switch code {
        case ENOENT, ENOTDIR: Problem("which does not exist", .missing)
        case EACCES: Problem("which this user may not read", .forbidden)
        default: Problem("which cannot be opened: \(reason(code))")
        }
    }

    private static func reason(_ code: Int32) -> String { String(cString: strerror(code)) }
}

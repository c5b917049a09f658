/// Paths as text.
enum FilePath {
    /// The path from the root, without `.` and empty parts; `..` stays, because what it means depends on links.
    static func absolute(_ path: String, in folder: String) -> String {
        let whole = path.hasPrefix("/") ? path : folder + "/" + path
        return "/" + whole.split(separator: "/").filter { $0 != "." }.joined(separator: "/")
    }

    /// The folder that holds an absolute path.
    static func folder(of path: String) -> String {
        let parts = path.split(separator: "/")
        return "/" + parts.dropLast().joined(separator: "/")
    }
}

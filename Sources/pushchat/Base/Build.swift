import BuildInfo

/// The version of this executable.
enum Build {
    static let version = "0.5.0"
    /// The commit of the build; empty if the build did not record one.
    static let commit = String(cString: pushchat_commit())
    /// The version, followed by the commit if it is known: `0.5.0 (1a2b3c4)`.
    static let description = commit.isEmpty ? version : "\(version) (\(commit))"
}

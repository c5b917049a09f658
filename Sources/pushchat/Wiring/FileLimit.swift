import Foundation

/// How many files and connections the process may have open.
enum FileLimit {
    /// Raises the soft limit, often 1,024, to the hard one: each connection is a descriptor.
    static func raise() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}

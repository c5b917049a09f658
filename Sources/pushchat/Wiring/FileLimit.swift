import Foundation

/// How many files and connections the process may have open.
enum FileLimit {
    /// Connections that are served at once, whatever the limit: each open event stream takes tens of kilobytes.
    private static let mostConnections = 16_384

    /// Raises the soft limit, often 1,024, to the hard one: each connection is a descriptor.
    static func raise() {
        guard var limit = current else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }

    /// How many clients may be connected: a quarter of the limit is left for the database and the gateways.
    static var connections: Int { min(mostConnections, Int(clamping: current?.rlim_cur ?? 1024) / 4 * 3) }

    private static var current: rlimit? {
        var limit = rlimit()
        return getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 ? limit : nil
    }
}

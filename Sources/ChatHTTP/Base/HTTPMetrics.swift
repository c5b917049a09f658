import ChatDomain
import HTTPTypes
import Synchronization

/// Counts HTTP requests since the server was created.
final class HTTPMetrics: Sendable {
    /// A group of requests with one counter.
    struct Kind: Sendable, Hashable {
        /// The route's pattern, never the path, so the number of kinds is limited by ``Routes``.
        let route: String
        let method: String
        let status: Int
    }

    private static let methods: Set = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

    /// The monotonic clock, which starts at an arbitrary moment.
    let clock: MonotonicTime
    let limits = LimitMetrics()
    /// The seconds from a message's request to its response.
    let posts = Histogram(Histogram.moments)
    private let counts = Mutex<[Kind: Int]>([:])

    init(clock: MonotonicTime) {
        self.clock = clock
    }

    func record(_ route: String?, _ method: HTTPRequest.Method, _ status: Int) {
        let method = Self.methods.contains(method.rawValue) ? method.rawValue : "other"
        let kind = Kind(route: route ?? "", method: method, status: status)
        counts.withLock { $0[kind, default: 0] += 1 }
    }

    /// The counters, ordered by route, method and status.
    var requests: [(kind: Kind, count: Int)] {
        counts.withLock { $0.map { (kind: $0.key, count: $0.value) } }
            .sorted {
                ($0.kind.route, $0.kind.method, $0.kind.status) < ($1.kind.route, $1.kind.method, $1.kind.status)
            }
    }
}

/// A limit that a client can hit.
enum Limit: String, Sendable, CaseIterable {
    case ratePerAddress = "rate_per_address"
    case ratePerMember = "rate_per_member"
    case joinsPerAddress = "joins_per_address"
    case wrongTokens = "wrong_tokens"
    case missingTokens = "missing_tokens"
    case connectionsPerAddress = "connections_per_address"
    /// All connections are in use, or no file descriptor is left for another.
    case connections = "connections"
    /// The time from a request's head to the end of its body.
    case requestTime = "request_time"
    /// The time in which the client has read no byte of its responses.
    case writeTime = "write_time"
    case pipelinedRequests = "pipelined_requests"
    case body = "body"
    case streams = "streams"
    case streamsPerMember = "streams_per_member"
    case streamsPerAddress = "streams_per_address"
}

/// Counts the hits of each limit.
final class LimitMetrics: Sendable {
    private let counts = Mutex<[Limit: Int]>([:])

    func hit(_ limit: Limit) { counts.withLock { $0[limit, default: 0] += 1 } }

    func count(_ limit: Limit) -> Int { counts.withLock { $0[limit] ?? 0 } }
}

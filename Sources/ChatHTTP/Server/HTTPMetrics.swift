import ChatDomain
import HTTPTypes
import Synchronization

/// What the HTTP side counts of its requests, since it was made.
final class HTTPMetrics: Sendable {
    /// Requests that are counted together.
    struct Kind: Sendable, Hashable {
        /// The route's pattern, never the path: there are as many as addresses in ``Routes``.
        let route: String
        let method: String
        /// 0 where the connection ended before there was an answer.
        let status: Int
    }

    private static let methods: Set = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

    /// The time, from any fixed moment on.
    let clock: MonotonicTime
    let limits = LimitMetrics()
    /// Seconds from a message's request to its answer.
    let posts = Histogram(Histogram.moments)
    private let counts = Mutex<[Kind: Int]>([:])

    init(clock: MonotonicTime) {
        self.clock = clock
    }

    func answered(_ route: String?, _ method: HTTPRequest.Method, _ status: Int) {
        let method = Self.methods.contains(method.rawValue) ? method.rawValue : "other"
        let kind = Kind(route: route ?? "", method: method, status: status)
        counts.withLock { $0[kind, default: 0] += 1 }
    }

    /// In order.
    var requests: [(kind: Kind, count: Int)] {
        counts.withLock { $0.map { (kind: $0.key, count: $0.value) } }
            .sorted {
                ($0.kind.route, $0.kind.method, $0.kind.status) < ($1.kind.route, $1.kind.method, $1.kind.status)
            }
    }
}

/// What a client can meet that asks for too much.
enum Limit: String, Sendable, CaseIterable {
    case ratePerAddress = "rate_per_address"
    case ratePerMember = "rate_per_member"
    case joinsPerAddress = "joins_per_address"
    case wrongTokens = "wrong_tokens"
    case connectionsPerAddress = "connections_per_address"
    /// All connections are in use, or there is no file descriptor for another one.
    case connections = "connections"
    /// From a request's head to the end of its body.
    case requestTime = "request_time"
    /// Without a byte that the client has taken of its answers.
    case writeTime = "write_time"
    case pipelinedRequests = "pipelined_requests"
    case body = "body"
    case streams = "streams"
    case streamsPerMember = "streams_per_member"
    case streamsPerAddress = "streams_per_address"
}

/// How often each limit was hit.
final class LimitMetrics: Sendable {
    private let counts = Mutex<[Limit: Int]>([:])

    func hit(_ limit: Limit) { counts.withLock { $0[limit, default: 0] += 1 } }

    func count(_ limit: Limit) -> Int { counts.withLock { $0[limit] ?? 0 } }
}

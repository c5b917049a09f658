import ChatDomain
import Dispatch
import Foundation
import Synchronization

/// Connections with one thread each, and the calls that wait for them. Some connections serve only responses and some
/// serve none, so that no response waits behind background work.
final class PostgresPool: Sendable {
    /// The purpose of a call.
    enum Lane: Int, Sendable, CaseIterable {
        /// A write that a caller waits for.
        case answer
        case read
        /// The queue's own work: leases, outcomes, retention.
        case upkeep
        case background
    }

    /// The maximum number of waiting calls per lane. If more arrive, the server cannot keep up, and the client should
    /// retry later.
    static let waitingLimit = 10_000
    /// The time after which a waiting call is refused.
    static let longestWait = Duration.seconds(10)

    /// A thread's connection. It is opened when needed, and reopened after it was lost.
    final class Worker {
        private let pool: PostgresPool
        private var connection: PostgresConnection?

        fileprivate init(pool: PostgresPool) {
            self.pool = pool
        }

        func connected() throws(PostgresError) -> PostgresConnection {
            if let connection, connection.isUsable { return connection }
            connection = nil
            let opened = try pool.connect()
            connection = opened
            return opened
        }
    }

    private struct Call: Sendable {
        let since: ContinuousClock.Instant
        let run: @Sendable (Worker) -> Void
        let refuse: @Sendable (ChatError) -> Void
    }

    private struct State {
        var waiting = [[Call]](repeating: [], count: Lane.allCases.count)
        /// Indexes of the threads that have no call.
        var idle: Set<Int> = []
        var isClosed = false
    }

    /// The result of the last attempt to connect.
    private struct Attempts {
        var failure: PostgresError?
        var again = ContinuousClock.now
        var pause = PostgresPool.shortestPause
    }

    private static let shortestPause = Duration.milliseconds(250)
    private static let longestPause = Duration.seconds(4)

    private let url: String
    /// The lanes that each thread serves, in order of preference.
    private let lanes: [[Lane]]
    private let wakes: [DispatchSemaphore]
    private let state = Mutex(State())
    private let attempts = Mutex(Attempts())
    private let threads = DispatchGroup()

    init(url: String, connections: Int) {
        self.url = url
        // Of eight connections, four serve responses, and two of them also read. Two only read. The remaining two serve
        // the queue and background work: one prefers the queue, the other background work.
        let quiet = max(1, connections / 4)
        let reading = max(1, connections / 4)
        lanes = (0..<connections).map { number in
            switch number {
            case 0: [.upkeep, .background]
            case ..<quiet: number.isMultiple(of: 2) ? [.upkeep, .background] : [.background, .upkeep]
            case ..<(quiet + reading): [.read]
            default: number.isMultiple(of: 2) ? [.answer] : [.answer, .read]
            }
        }
        wakes = lanes.map { _ in DispatchSemaphore(value: 0) }
        for number in lanes.indices {
            threads.enter()
            let thread = Thread { [self] in
                serve(number)
                threads.leave()
            }
            thread.name = "postgres-\(number)"
            thread.start()
        }
    }

    /// Enqueues a call. It runs on a connection's thread, or is refused.
    func submit(
        _ lane: Lane, _ run: @escaping @Sendable (Worker) -> Void, refuse: @escaping @Sendable (ChatError) -> Void
    ) {
        let call = Call(since: .now, run: run, refuse: refuse)
        let (obstacle, wake) = state.withLock { state -> (String?, Int?) in
            guard !state.isClosed else { return ("the store is closed", nil) }
            guard state.waiting[lane.rawValue].count < Self.waitingLimit else {
                return ("too many calls wait for the database", nil)
            }
            state.waiting[lane.rawValue].append(call)
            // Prefer a thread that serves this lane first.
            let thread = state.idle.filter { lanes[$0].contains(lane) }.min { left, right in
                (lanes[left].first == lane ? 0 : 1, left) < (lanes[right].first == lane ? 0 : 1, right)
            }
            if let thread { state.idle.remove(thread) }
            return (nil, thread)
        }
        if let obstacle { refuse(.unavailable(cause: obstacle)) }
        if let wake { wakes[wake].signal() }
    }

    /// The number of connections with and without a call, and of waiting calls per lane.
    var load: (busy: Int, idle: Int, waiting: [(Lane, Int)]) {
        state.withLock { state in
            let idle = state.idle.count
            return (lanes.count - idle, idle, zip(Lane.allCases, state.waiting.map(\.count)).map { ($0, $1) })
        }
    }

    /// Waits for the running calls, and refuses the waiting ones.
    func close() {
        let refused = state.withLock { state in
            state.isClosed = true
            state.idle = []
            defer { state.waiting = state.waiting.map { _ in [] } }
            return state.waiting.joined()
        }
        for call in refused { call.refuse(.unavailable(cause: "the store is closed")) }
        for wake in wakes { wake.signal() }
        threads.wait()
    }

    private enum Next {
        case call(Call)
        case wait
        case end
    }

    private func serve(_ number: Int) {
        let worker = Worker(pool: self)
        while true {
            let next = state.withLock { state -> Next in
                for lane in lanes[number] where !state.waiting[lane.rawValue].isEmpty {
                    return .call(state.waiting[lane.rawValue].removeFirst())
                }
                if state.isClosed { return .end }
                state.idle.insert(number)
                return .wait
            }
            switch next {
            case .call(let call):
                if ContinuousClock.now - call.since > Self.longestWait {
                    call.refuse(.unavailable(cause: "no connection to the database was free"))
                } else {
                    call.run(worker)
                }
            case .wait: wakes[number].wait()
            case .end: return
            }
        }
    }

    /// Connects. After a failure, fails immediately for a while with the same error.
    private func connect() throws(PostgresError) -> PostgresConnection {
        let recent = attempts.withLock { $0.again > .now ? $0.failure : nil }
        if let recent { throw recent }
        do throws(PostgresError) {
            let connection = try PostgresConnection(url: url)
            attempts.withLock { $0 = Attempts() }
            return connection
        } catch {
            attempts.withLock { attempts in
                attempts.failure = error
                attempts.again = .now + attempts.pause
                attempts.pause = min(attempts.pause * 2, Self.longestPause)
            }
            throw error
        }
    }
}

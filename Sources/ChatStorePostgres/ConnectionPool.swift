#if PostgreSQL
import ChatDomain
import Dispatch
import Foundation
import Synchronization

/// Connections, each with a thread of its own, and the calls that wait for one. Some connections do answers only and some do
/// none, so that no answer waits behind work that nobody waits for.
final class ConnectionPool: Sendable {
    /// What a call is for.
    enum Lane: Int, Sendable, CaseIterable {
        /// Somebody waits for an answer, and something is written.
        case answer
        case read
        /// The queue's own: leases, outcomes, retention.
        case upkeep
        case background
    }

    /// Calls that may wait in a lane; more means that the server does not keep up, and the client should come later.
    static let waitingLimit = 10_000
    /// How long a call waits before it is refused.
    static let longestWait = Duration.seconds(10)

    /// A thread's connection, which comes and goes.
    final class Worker {
        private let pool: ConnectionPool
        private var connection: PostgresConnection?

        fileprivate init(pool: ConnectionPool) {
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
        /// Threads without a call, by number.
        var idle: Set<Int> = []
        var isClosed = false
    }

    /// How connecting went last.
    private struct Attempts {
        var failure: PostgresError?
        var again = ContinuousClock.now
        var pause = ConnectionPool.shortestPause
    }

    private static let shortestPause = Duration.milliseconds(250)
    private static let longestPause = Duration.seconds(4)

    private let url: String
    /// Which lanes a thread serves, in order.
    private let lanes: [[Lane]]
    private let wakes: [DispatchSemaphore]
    private let state = Mutex(State())
    private let attempts = Mutex(Attempts())
    private let threads = DispatchGroup()

    init(url: String, connections: Int) {
        self.url = url
        // Of eight: four for answers, two of which read as well, two that read, one for the queue and one for both.
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

    /// Puts a call in line. It runs on a connection's thread, or is refused.
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
            // Who serves this lane first.
            let thread = state.idle.filter { lanes[$0].contains(lane) }.min { left, right in
                (lanes[left].first == lane ? 0 : 1, left) < (lanes[right].first == lane ? 0 : 1, right)
            }
            if let thread { state.idle.remove(thread) }
            return (nil, thread)
        }
        if let obstacle { refuse(.unavailable(cause: obstacle)) }
        if let wake { wakes[wake].signal() }
    }

    /// Connections with a call and without one, and calls that wait.
    var load: (busy: Int, idle: Int, waiting: [(Lane, Int)]) {
        state.withLock { state in
            let idle = state.idle.count
            return (lanes.count - idle, idle, zip(Lane.allCases, state.waiting.map(\.count)).map { ($0, $1) })
        }
    }

    /// Waits for the calls that run; those that wait are refused.
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

    /// One attempt after another, and none for a while after one has failed: calls are refused then.
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
#endif

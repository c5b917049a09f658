import ChatDomain
import Synchronization
import Testing

/// A queue that returns the leases that a test has set, in that order. After them nothing is due.
final class FakeQueue: PushQueue {
    struct State {
        var leases: [Result<LeasedPushes, ChatError>] = []
        var asked: [(lanes: [PushLane], limit: Int)] = []
        var settled: [[Settlement]] = []
        var released: [ClosedRange<Int64>] = []
        var settleFailures = 0
        var due: [Timestamp?] = []
        /// If set, a lease after this number of leases waits until the stream ends.
        var gate: (after: Int, end: AsyncStream<Void>)?
    }

    let state = Mutex(State())
    private let listener = Mutex<AsyncStream<Void>.Continuation?>(nil)

    func tell(_ lease: Result<LeasedPushes, ChatError>...) {
        state.withLock { $0.leases += lease }
    }

    func signal() {
        _ = listener.withLock { $0?.yield() }
    }

    static func rows(_ ids: ClosedRange<Int64>, unanswered: Int = 0) -> LeasedPushes {
        LeasedPushes(ids.map { row($0, unanswered: unanswered) })
    }

    static func row(_ id: Int64, unanswered: Int = 0, lane: PushLane? = nil, payload: String = "{}") -> QueuedPush {
        let history = PushHistory(attempts: unanswered, unanswered: unanswered)
        return QueuedPush(
            id: id, lane: lane ?? PushLane(history, isBulk: false), history: history,
            address: DeviceToken(bytes: [UInt8](repeating: 0xAB, count: 32)).map(Address.token),
            payload: Array(payload.utf8), apnsID: "\(id)")
    }

    func lease(app: AppName, lanes: [PushLane], limit: Int) async throws(ChatError) -> LeasedPushes {
        let (next, gate) = state.withLock { state in
            state.asked.append((lanes, limit))
            let gate = state.gate.flatMap { state.asked.count > $0.after ? $0.end : nil }
            return (state.leases.isEmpty ? nil : state.leases.removeFirst(), gate)
        }
        if let gate { for await _ in gate {} }
        guard let next else { return LeasedPushes([]) }
        return try next.get()
    }

    func release(_ ids: [ClosedRange<Int64>], lane: PushLane, app: AppName) {
        state.withLock { $0.released += ids }
    }

    func settle(_ settlements: [Settlement], app: AppName) async throws(ChatError) -> [SettledPushes] {
        let fails = state.withLock { state in
            guard state.settleFailures == 0 else {
                state.settleFailures -= 1
                return true
            }
            state.settled.append(settlements)
            return false
        }
        if fails { throw .unavailable(cause: "the disk is full") }
        return settlements.map { SettledPushes(count: $0.count) }
    }

    func nextDue(app: AppName) async throws(ChatError) -> Timestamp? {
        state.withLock { $0.due.isEmpty ? nil : $0.due.removeFirst() }
    }

    func announceArrivals(of app: AppName, to signal: AsyncStream<Void>.Continuation) {
        #expect(app == .default)
        listener.withLock { $0 = signal }
    }
}

/// Accepts every row that has a payload.
struct FakeFormat: PushFormat {
    func payload(of alert: ChatAlert) throws(ChatError) -> String {
        Issue.record("a dispatcher composes nothing")
        return ""
    }

    func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification {
        Issue.record("a dispatcher composes nothing")
        return ComposedNotification(payload: "", pushType: "", priority: nil)
    }

    func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push {
        guard let address = row.address, let payload = row.payload, !payload.isEmpty else {
            throw PushRefusal("MissingPayload")
        }
        return Push(id: row.id, identifier: identifier, address: address, payload: payload)
    }
}

/// A gateway whose reports a test sends. It always has a slot until it is drained.
final class FakeGateway: PushGateway {
    private struct State {
        var nextIdentifier: UInt32 = 5
        var test: (limit: Int, ServiceTest)?
        var freshAsked = 0
        var written: [Lease] = []
        var isDrained = false
    }

    let format: any PushFormat = FakeFormat()
    let openConnections = 1
    private let state = Mutex(State())
    private let answers = AsyncStream.makeStream(of: [DeliveryReport].self)
    private let work = AsyncStream.makeStream(of: Void.self)

    var written: [Lease] { state.withLock { $0.written } }
    var freshAsked: Int { state.withLock { $0.freshAsked } }
    var isDrained: Bool { state.withLock { $0.isDrained } }

    /// Makes the slots of the gateway tests.
    func test(limit: Int, _ test: ServiceTest) { state.withLock { $0.test = (limit, test) } }

    func answer(_ reports: [DeliveryReport]) {
        answers.continuation.yield(reports)
    }

    /// Ends when the task is cancelled, or after ``fail()``.
    func run() async {
        for await _ in work.stream {}
    }

    /// Ends ``run()`` before the gateway is drained.
    func fail() {
        work.continuation.finish()
    }

    func slot(fresh: Bool) async -> ConnectionSlot? {
        state.withLock { state in
            if fresh { state.freshAsked += 1 }
            guard !state.isDrained else { return nil }
            return ConnectionSlot(
                connection: ConnectionID(fresh ? 2 : 1), firstIdentifier: fresh ? 1 : state.nextIdentifier,
                capacity: state.test?.limit ?? 1000, isFresh: fresh, answersEach: state.test != nil,
                test: state.test?.1)
        }
    }

    func write(_ lease: Lease) {
        let isLate = state.withLock { state in
            state.written.append(lease)
            if let last = lease.pushes.last { state.nextIdentifier = max(state.nextIdentifier, last.identifier + 1) }
            return state.isDrained
        }
        guard isLate, let first = lease.pushes.first, let last = lease.pushes.last else { return }
        answer([
            DeliveryReport(
                connection: lease.slot.connection, identifiers: first.identifier...last.identifier,
                outcome: .notProcessed)
        ])
    }

    func reports() async -> [DeliveryReport]? {
        for await reports in answers.stream { return reports }
        return nil
    }

    func drain() async {
        state.withLock { $0.isDrained = true }
    }

    func finish() async {
        answers.continuation.finish()
    }
}

/// A feedback source with pieces that a test sets.
struct FakeSource: FeedbackSource {
    let pieces: [[FeedbackReport]]
    var rest = 0

    func read(_ store: @Sendable ([FeedbackReport]) async throws -> Void) async throws -> Int {
        for piece in pieces { try await store(piece) }
        return rest
    }
}

final class FakeFeedbackStore: FeedbackStore {
    struct State {
        var recorded: [FeedbackReport] = []
        var failures = 0
        var recordedWhenActing: [Int] = []
        /// The result of acting on feedback. If it is `nil`, acting on feedback fails the test.
        var result: FeedbackResult?
    }

    let state = Mutex(State())

    func record(_ reports: [FeedbackReport], app: AppName) async throws(ChatError) {
        let fails = state.withLock { state in
            guard state.failures == 0 else {
                state.failures -= 1
                return true
            }
            state.recorded += reports
            return false
        }
        if fails { throw .unavailable(cause: "the disk is full") }
    }

    func actOnFeedback() async throws(ChatError) -> FeedbackResult {
        let result = state.withLock { state in
            state.recordedWhenActing.append(state.recorded.count)
            return state.result
        }
        if result == nil { Issue.record("the test has not set a result for acting on feedback") }
        return result ?? FeedbackResult()
    }
}

/// Lets a test write expected ranges as a literal.
extension IDRanges: ExpressibleByArrayLiteral {
    package init(arrayLiteral ranges: ClosedRange<Int64>...) { self.init(ranges) }
}

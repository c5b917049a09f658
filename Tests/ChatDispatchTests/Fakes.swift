import ChatDomain
import Synchronization
import Testing

/// A queue that answers as it was told, and fails the test when asked for more.
final class FakeQueue: PushQueue {
    struct State {
        var leases: [Result<Lease, ChatError>] = []
        var slots: [ConnectionSlot] = []
        var settled: [[Verdict]] = []
        var settleFailures = 0
        var due: [Timestamp?] = []
        /// The next lease waits for its end.
        var gate: AsyncStream<Void>?
    }

    let state = Mutex(State())
    private let bell = Mutex<AsyncStream<Void>.Continuation?>(nil)

    func tell(_ lease: Result<Lease, ChatError>...) {
        state.withLock { $0.leases += lease }
    }

    func ring() {
        _ = bell.withLock { $0?.yield() }
    }

    func lease(app: AppName, for slot: ConnectionSlot) async throws(ChatError) -> Lease {
        let (next, gate) = state.withLock { state in
            state.slots.append(slot)
            return (state.leases.isEmpty ? nil : state.leases.removeFirst(), state.gate)
        }
        if let gate { for await _ in gate {} }
        guard let next else { return Lease(slot: slot, pushes: []) }
        return try next.get()
    }

    func settle(_ verdicts: [Verdict]) async throws(ChatError) -> [Settlement] {
        let fails = state.withLock { state in
            guard state.settleFailures == 0 else {
                state.settleFailures -= 1
                return true
            }
            state.settled.append(verdicts)
            return false
        }
        if fails { throw .unavailable(cause: "the disk is full") }
        return verdicts.map { Settlement(verdict: $0, count: 1, entry: 1, token: nil, state: .sent) }
    }

    func recover() async throws(ChatError) -> Recovery {
        Issue.record("recover is not the dispatcher's")
        return Recovery(count: 0, lastEpoch: ConnectionEpoch(0))
    }

    func nextDue(app: AppName) async throws(ChatError) -> Timestamp? {
        state.withLock { $0.due.isEmpty ? nil : $0.due.removeFirst() }
    }

    func announceArrivals(to bell: AsyncStream<Void>.Continuation) {
        self.bell.withLock { $0 = bell }
    }
}

/// A gateway with slots and verdicts by order.
final class FakeGateway: PushGateway {
    private struct State {
        var slots: [ConnectionSlot] = []
        var freshAsked = 0
        var written: [Lease] = []
        var isDrained = false
    }

    private let state = Mutex(State())
    private let answers = AsyncStream.makeStream(of: [Verdict].self)

    var written: [Lease] { state.withLock { $0.written } }
    var freshAsked: Int { state.withLock { $0.freshAsked } }
    var isDrained: Bool { state.withLock { $0.isDrained } }

    func answer(_ verdicts: [Verdict]) {
        answers.continuation.yield(verdicts)
    }

    func run() async {
        try? await Task.sleep(for: .seconds(3600))
    }

    func slot(fresh: Bool) async -> ConnectionSlot? {
        state.withLock { state in
            if fresh { state.freshAsked += 1 }
            return state.isDrained ? nil : Self.slot(fresh: fresh)
        }
    }

    static func slot(fresh: Bool = false) -> ConnectionSlot {
        ConnectionSlot(
            connection: ConnectionEpoch(1), firstIdentifier: fresh ? 1 : 5, room: 10, isFresh: fresh, payloadLimit: 2048
        )
    }

    func write(_ lease: Lease) {
        let isLate = state.withLock { state in
            state.written.append(lease)
            return state.isDrained
        }
        guard isLate, let first = lease.pushes.first, let last = lease.pushes.last else { return }
        answer([
            Verdict(
                connection: lease.slot.connection, identifiers: first.identifier...last.identifier,
                outcome: .notProcessed)
        ])
    }

    func verdicts() async -> [Verdict]? {
        for await verdicts in answers.stream { return verdicts }
        return nil
    }

    func drain() async {
        state.withLock { $0.isDrained = true }
    }

    func finish() async {
        answers.continuation.finish()
    }
}

/// Feedback by order.
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
        state.withLock { $0.recordedWhenActing.append($0.recorded.count) }
        return FeedbackResult(deactivated: 1)
    }
}

/// Looks again until something holds; bounded, with room for other suites that keep both cores busy.
func eventually(_ what: Comment, _ holds: () -> Bool) async {
    let deadline = ContinuousClock.now + .seconds(60)
    while ContinuousClock.now < deadline {
        if holds() { return }
        try? await Task.sleep(for: .milliseconds(2))
    }
    Issue.record(what)
}

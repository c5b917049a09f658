import ChatDomain
import Testing

@testable import ChatDispatch

@Suite("Pushes between the queue and the gateway")
struct InFlightPushesTests {
    private static let start = Timestamp(seconds: 1_800_000_000)
    private let format = FakeFormat()

    private func slot(
        _ connection: Int64 = 1, first: UInt32 = 1, capacity: Int = 1000, fresh: Bool? = nil, answersEach: Bool = false
    ) -> ConnectionSlot {
        ConnectionSlot(
            connection: ConnectionID(connection), firstIdentifier: first, capacity: capacity,
            isFresh: fresh ?? (first == 1),
            answersEach: answersEach)
    }

    private func report(
        _ identifiers: ClosedRange<UInt32>, _ outcome: Outcome = .accepted, connection: Int64 = 1, late: Bool = false
    ) -> DeliveryReport {
        DeliveryReport(
            connection: ConnectionID(connection), identifiers: identifiers, outcome: outcome, overrulesSilence: late)
    }

    private func pushIDs(_ conclusion: InFlightPushes.Conclusion) -> [ClosedRange<Int64>] {
        conclusion.batches.joined().map(\.settlement.pushIDs)
    }

    @Test("A report settles the pushes that its identifiers name, in as few ranges as possible")
    func identifiers() throws {
        var inFlight = InFlightPushes(PushLifeCycle())
        let rows = LeasedPushes([10, 11, 12, 20, 21].map { FakeQueue.row($0) })
        let lease = inFlight.admit(rows, to: slot(first: 7), format: format, at: Self.start).lease
        #expect(lease.pushes.map(\.identifier) == [7, 8, 9, 10, 11])
        let conclusion = inFlight.conclude([report(8...10)], at: Self.start)
        #expect(pushIDs(conclusion) == [11...12, 20...20])
        #expect(pushIDs(inFlight.conclude([report(1...100)], at: Self.start)) == [10...10, 21...21])
        #expect(inFlight.conclude([report(1...100), report(1...9, connection: 5)], at: Self.start).batches.isEmpty)
    }

    @Test("A gateway that responds after its silence overrules the first report")
    func overruling() {
        var inFlight = InFlightPushes(PushLifeCycle())
        _ = inFlight.admit(FakeQueue.rows(1...100), to: slot(), format: format, at: Self.start)
        _ = inFlight.conclude([report(1...100)], at: Self.start)
        let late = inFlight.conclude(
            [
                report(50...50, .badAddress(reason: "InvalidToken"), late: true),
                report(51...100, .notProcessed, late: true),
            ],
            at: Self.start)
        #expect(pushIDs(late) == [50...50, 51...100])
        #expect(late.batches[0].allSatisfy { $0.settlement.overrulesSilence })
        #expect(late.batches[0][1].settlement.transition.result == .due(.normal, reason: nil))
    }

    @Test(
        "Metrics count outcomes and measure waits, round trips and acceptances; silence is not a round trip"
    )
    func answers() {
        func row(_ id: Int64, _ age: Int64) -> QueuedPush {
            QueuedPush(
                id: id, address: FakeQueue.row(1).address, payload: [1], apnsID: "",
                dueSince: Self.start - .seconds(age))
        }
        var inFlight = InFlightPushes(PushLifeCycle())
        // The metrics do not distinguish pushes that have waited about as long.
        let rows = LeasedPushes([row(1, 100), row(2, 99), row(3, 50), row(4, 50), row(5, 0)])
        let admission = inFlight.admit(rows, to: slot(answersEach: true), format: format, at: Self.start)
        #expect(admission.rows.map(\.id) == [1, 2, 3, 4, 5])
        let now = Self.start + .seconds(2)
        let refused = Outcome.notAuthorized(reason: "InvalidProviderToken")
        let answers = inFlight.conclude([report(1...4), report(5...5, refused)], at: now).answers
        #expect(answers.map(\.count) == [2, 2, 1])
        #expect(answers.map { $0.dueSince.map { now.seconds(since: $0) } } == [102, 52, 2])
        #expect(answers.allSatisfy { $0.writtenAt == Self.start })
        let progress = DispatchProgress()
        progress.wrote(admission.rows, at: Self.start)
        progress.answered(answers, at: now)
        var metrics = progress.metrics
        #expect(metrics.waits.sum == 299 && metrics.waits.count == 5)
        #expect(metrics.roundTrips.sum == 10 && metrics.roundTrips.count == 5)
        #expect(metrics.acceptances.sum == 308 && metrics.acceptances.count == 4)
        #expect(
            metrics.answers == [
                .init(kind: "accepted", reason: nil, count: 4),
                .init(kind: "not_authorized", reason: "InvalidProviderToken", count: 1),
            ])
        #expect(metrics.areCredentialsRefused)

        _ = inFlight.admit(LeasedPushes([row(6, 1)]), to: slot(2), format: format, at: Self.start)
        let silent = inFlight.conclude([report(1...1, connection: 2)], at: now).answers
        #expect(silent.map(\.writtenAt) == [nil])
        progress.answered(silent, at: now)
        metrics = progress.metrics
        #expect(metrics.roundTrips.count == 5 && metrics.acceptances.count == 5 && !metrics.areCredentialsRefused)
    }

    @Test(
        "Credentials count as accepted again when the gateway accepts a push or rejects its token",
        arguments: [
            (.accepted, false), (.badAddress(reason: "BadDeviceToken"), false),
            (.unregistered(since: Timestamp(seconds: 1), reason: "Unregistered"), false),
            (.rejected(reason: "PayloadEmpty"), true),
            (.retry(reason: "InternalServerError"), true),
        ] as [(Outcome, Bool)])
    func credentials(outcome: Outcome, areRefused: Bool) {
        let progress = DispatchProgress()
        for outcome in [.notAuthorized(reason: "InvalidProviderToken"), outcome] {
            let answer = DispatchProgress.Response(outcome: outcome, count: 1, writtenAt: nil, dueSince: nil)
            progress.answered([answer], at: Self.start)
        }
        #expect(progress.metrics.areCredentialsRefused == areRefused)
    }

    @Test("Only first attempts count as waits in the queue, and the number of distinct reasons is bounded")
    func boundedResponses() {
        let progress = DispatchProgress()
        let repeated = QueuedPush(
            id: 1, history: PushHistory(attempts: 1), address: nil, payload: nil, apnsID: "", dueSince: Self.start)
        progress.wrote([repeated, FakeQueue.row(2)], at: Self.start + .seconds(9))
        #expect(progress.metrics.waits.count == 0)
        progress.answered(
            (0..<100).map { .init(outcome: .rejected(reason: "r\($0)"), count: 1, writtenAt: nil, dueSince: nil) },
            at: Self.start)
        #expect(progress.metrics.answers.count == 65)
        #expect(progress.metrics.answers.first { $0.reason == BoundedNames.other }?.count == 36)
    }

    @Test("Pushes that were not processed are released unchanged, without a write to the database")
    func notProcessed() {
        var inFlight = InFlightPushes(PushLifeCycle())
        _ = inFlight.admit(FakeQueue.rows(1...4), to: slot(), format: format, at: Self.start)
        let conclusion = inFlight.conclude([report(1...1), report(2...4, .notProcessed)], at: Self.start)
        #expect(pushIDs(conclusion) == [1...1])
        #expect(conclusion.released == [.normal: [2...4]])
    }

    @Test("Many settlements are split into batches of about a thousand")
    func batches() {
        var inFlight = InFlightPushes(PushLifeCycle())
        // Every other id belongs to another app, so each push needs its own settlement.
        let rows = LeasedPushes((0..<700).map { FakeQueue.row($0 * 2) })
        for connection in 1...3 as ClosedRange<Int64> {
            _ = inFlight.admit(rows, to: slot(connection), format: format, at: Self.start)
        }
        let conclusion = inFlight.conclude((1...3).map { report(1...700, connection: $0) }, at: Self.start)
        #expect(conclusion.batches.map(\.count) == [1000, 1000, 100])
        _ = inFlight.admit(FakeQueue.rows(1...900), to: slot(4), format: format, at: Self.start)
        _ = inFlight.admit(FakeQueue.rows(2001...2900), to: slot(5), format: format, at: Self.start)
        // A batch never splits a range.
        let ranges = inFlight.conclude((4...5).map { report(1...900, connection: $0) }, at: Self.start)
        #expect(ranges.batches.map(\.count) == [2])
    }

    @Test("Pushes with different histories are settled separately")
    func histories() {
        var inFlight = InFlightPushes(PushLifeCycle())
        let rows = LeasedPushes([FakeQueue.row(1), FakeQueue.row(2, unanswered: 1), FakeQueue.row(3), FakeQueue.row(4)])
        _ = inFlight.admit(rows, to: slot(), format: format, at: Self.start)
        let conclusion = inFlight.conclude([report(1...4, .unanswered(reason: "Closed"))], at: Self.start)
        #expect(pushIDs(conclusion).sorted { $0.lowerBound < $1.lowerBound } == [1...1, 2...2, 3...4])
    }

    @Test("Suspect pushes wait for a fresh connection, and travel in groups without other pushes")
    func probes() {
        var inFlight = InFlightPushes(PushLifeCycle())
        let rows = LeasedPushes(
            (1...6).map { FakeQueue.row($0, unanswered: 5) } + [FakeQueue.row(7)], lanes: [.normal])
        let held = inFlight.admit(rows, to: slot(first: 9), format: format, at: Self.start)
        #expect(held.lease.pushes.isEmpty && inFlight.needsFreshConnection)
        #expect(held.released == [.retry: [1...6], .normal: [7...7]])
        let probe = inFlight.admit(rows, to: slot(2), format: format, at: Self.start)
        #expect(probe.lease.isProbe && probe.lease.pushes.map(\.id) == [1, 2, 3, 4])
        #expect(probe.released == [.retry: [5...6], .normal: [7...7]])
        let mixed = LeasedPushes([FakeQueue.row(7), FakeQueue.row(8, unanswered: 3)])
        let plain = inFlight.admit(mixed, to: slot(3), format: format, at: Self.start)
        #expect(!plain.lease.isProbe && plain.lease.pushes.map(\.id) == [7])
    }

    @Test("After a loss the window shrinks, unless the gateway responds to each push")
    func window() {
        var inFlight = InFlightPushes(PushLifeCycle())
        _ = inFlight.admit(FakeQueue.rows(1...1000), to: slot(), format: format, at: Self.start)
        _ = inFlight.conclude([report(1...1000, .unanswered(reason: "Closed"))], at: Self.start)
        #expect(inFlight.limit(for: slot(2)) == 500)
        #expect(inFlight.limit(for: slot(2, answersEach: true)) == 1000)
        let next = inFlight.admit(FakeQueue.rows(1001...2000), to: slot(2), format: format, at: Self.start)
        #expect(next.lease.isProbe && next.lease.pushes.count == 500)
        #expect(next.released == [.normal: [1501...2000]])
        _ = inFlight.conclude([report(1...500, connection: 2)], at: Self.start)
        #expect(inFlight.limit(for: slot(3)) == 625)
        // A rejected push among them is not a loss.
        _ = inFlight.admit(FakeQueue.rows(3001...3625), to: slot(3), format: format, at: Self.start)
        _ = inFlight.conclude(
            [
                report(1...9, connection: 3), report(10...10, .rejected(reason: "x"), connection: 3),
                report(11...625, .notProcessed, connection: 3),
            ], at: Self.start)
        #expect(inFlight.limit(for: slot(4)) == 781)
    }

    @Test(
        "Proof by silence lets the window pass the size of the loss sooner than responses do",
        arguments: [true, false])
    func silentWindow(isProvenBySilence: Bool) throws {
        var inFlight = InFlightPushes(PushLifeCycle())
        _ = inFlight.admit(FakeQueue.rows(1...100), to: slot(), format: format, at: Self.start)
        _ = inFlight.conclude([report(1...100, .unanswered(reason: "Closed"))], at: Self.start)
        var next: Int64 = 101
        for connection in 2...15 as ClosedRange<Int64> {
            let slot = ConnectionSlot(
                connection: ConnectionID(connection), firstIdentifier: 1, capacity: 1000, isFresh: true,
                isProvenBySilence: isProvenBySilence)
            let limit = inFlight.limit(for: slot)
            _ = inFlight.admit(FakeQueue.rows(next...next + Int64(limit) - 1), to: slot, format: format, at: Self.start)
            _ = inFlight.conclude([report(1...UInt32(limit), connection: connection)], at: Self.start)
            next += Int64(limit)
        }
        #expect((inFlight.limit(for: slot(99)) > 100) == isProvenBySilence)
    }

    @Test("A relay that starts with a backlog sends small probes first, and opens the window after they succeed")
    func startInDoubt() {
        var inFlight = InFlightPushes(PushLifeCycle(), startsInDoubt: true)
        let first = inFlight.admit(
            LeasedPushes(FakeQueue.rows(1...256).pushes, lanes: [.normal]), to: slot(), format: format, at: Self.start)
        #expect(first.lease.isProbe)
        _ = inFlight.conclude([report(1...256)], at: Self.start)
        #expect(inFlight.limit(for: slot(2)) == 512)
        _ = inFlight.admit(FakeQueue.rows(257...300), to: slot(2), format: format, at: Self.start)
        _ = inFlight.conclude([report(1...44, connection: 2)], at: Self.start)
        #expect(inFlight.limit(for: slot(3)) == 1000)
        #expect(
            !inFlight.admit(FakeQueue.rows(301...302), to: slot(3, first: 9), format: format, at: Self.start).lease
                .isProbe)
    }

    @Test("Lanes that a lease did not reach get the next turns")
    func turns() {
        var turn = LaneTurn()
        turn.leased(through: .normal, remaining: [.normal, .bulk, .retry], isSinglePush: false)
        #expect(turn.next == .bulk)
        turn.leased(through: .bulk, remaining: [.normal, .bulk, .retry], isSinglePush: false)
        #expect(turn.next == nil)
        turn.leased(through: .normal, remaining: [.normal, .bulk, .retry], isSinglePush: false)
        #expect(turn.next == .retry)
        turn.leased(through: .retry, remaining: [.normal], isSinglePush: false)
        turn.leased(through: .normal, remaining: [.normal], isSinglePush: false)
        #expect(turn.next == nil)
        turn.leased(through: .normal, remaining: [.bulk], isSinglePush: true)
        #expect(turn.next == nil)
    }

    @Test("The number of remembered blocks is bounded, however long a connection lives", .timeLimit(.minutes(1)))
    func bounded() {
        for answersEach in [true, false] {
            var inFlight = InFlightPushes(PushLifeCycle())
            var first: UInt32 = 1
            for round in 0..<5000 {
                // Each lease adds two blocks.
                let base = Int64(round) * 10
                let rows = LeasedPushes([base, base + 2].map { FakeQueue.row($0) })
                _ = inFlight.admit(
                    rows, to: slot(first: first, answersEach: answersEach), format: format, at: Self.start)
                _ = inFlight.conclude([report(first...first + 1)], at: Self.start)
                first += 2
            }
            #expect(inFlight.rememberedBlocks <= (answersEach ? 2 : 2000))
            // The gateway can still overrule the latest outcome.
            let late = inFlight.conclude([report(first - 1...first - 1, .notProcessed, late: true)], at: Self.start)
            #expect(pushIDs(late) == (answersEach ? [] : [49_992...49_992]))
        }
    }

    @Test("A busy connection does not evict the blocks of other connections")
    func boundedEach() {
        var inFlight = InFlightPushes(PushLifeCycle())
        for number in 1...50 {
            _ = inFlight.admit(
                FakeQueue.rows(Int64(number)...Int64(number)), to: slot(1, first: UInt32(number)), format: format,
                at: Self.start)
        }
        _ = inFlight.conclude([report(1...50)], at: Self.start)
        for number in 1...3000 {
            let row = Int64(1000 + number * 2)
            _ = inFlight.admit(
                FakeQueue.rows(row...row), to: slot(2, first: UInt32(number)), format: format, at: Self.start)
            _ = inFlight.conclude([report(UInt32(number)...UInt32(number), connection: 2)], at: Self.start)
        }
        // The relay took silence on the first connection for acceptance. Now the gateway reports an error.
        let late = inFlight.conclude([report(21...50, .notProcessed, late: true)], at: Self.start)
        #expect(pushIDs(late).map(\.count).reduce(0, +) == 30)
        #expect(inFlight.rememberedBlocks <= 2250)
    }
}

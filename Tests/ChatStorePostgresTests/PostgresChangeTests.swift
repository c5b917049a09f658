import ChatDomain
import ChatSQL
import Synchronization
import Testing

@testable import ChatStorePostgres
@testable import TestStores

/// Tests messages that change, in a database that two relays share.
@Suite("Messages that change, at several relays on one PostgreSQL database", .timeLimit(.minutes(3)))
struct PostgresChangeTests {
    private static let room = SecretCode(stored: "room")
    private static let sent = Transition(.sent, adding: PushHistory(attempts: 1))

    private let fixture: PostgresFixture

    init() throws { fixture = try PostgresFixture() }

    /// Runs `body` with two relays, and closes them afterwards.
    private func withRelays(_ body: (PostgresStores, PostgresStores) async throws -> Void) async throws {
        let first = try await fixture.open()
        defer { first.close() }
        let second = try await fixture.open()
        defer { second.close() }
        try await body(first, second)
    }

    private static func post(_ text: String, key: String, at relay: PostgresStores) async throws -> ChangeReceipt {
        let request = PostRequest(
            member: .program(token: 1), program: PostRequest.Program(nickname: Nickname(stored: "cron"), room: room),
            content: try MessageContent(parsing: text))
        return try await relay.changes.post(KeyedPost(request, key: MessageKey(stored: key)))
    }

    /// Waits until the first pushes of the message are queued.
    private func queueFirst(_ message: MessageID, at relay: PostgresStores) async throws {
        let watch = Task { await relay.upkeep.watch() }
        while try await relay.records.progress(of: message).isQueueing {
            try await Task.sleep(for: .milliseconds(5))
        }
        watch.cancel()
        await watch.value
    }

    private func lease(at relay: PostgresStores) async throws -> [QueuedPush] {
        try await relay.queue.lease(app: StoreFixture.changingApp, lanes: PushLane.allCases, limit: 1000).pushes
    }

    private func settle(_ pushes: [QueuedPush], at relay: PostgresStores) async throws {
        _ = try await relay.queue.settle(
            pushes.map { Settlement($0.id...$0.id, Self.sent) }, app: StoreFixture.changingApp)
    }

    /// Performs all rounds that are due, at both relays at once.
    private func performDue(_ relays: [PostgresStores]) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for relay in relays { group.addTask { while try await relay.changes.performDue() {} } }
            try await group.waitForAll()
        }
    }

    @Test("A client that continues after the last number misses neither a message nor the newest change")
    func order() async throws {
        try await withRelays { first, second in
            try await first.rooms.join(StoreFixture.join(1))
            let reader = Task {
                var (seen, isLast) = ([RoomEntry](), false)
                while !isLast {
                    let new = try await second.feed.entries(in: Self.room, after: seen.last?.id ?? 0, limit: 7)
                    seen += new
                    isLast = new.contains { $0.message?.text == "last" }
                }
                return seen
            }
            let ids = try await withThrowingTaskGroup(of: (String, MessageID).self) { group in
                for (number, relay) in [first, second, first, second].enumerated() {
                    group.addTask {
                        var last: MessageID = 0
                        for edit in 0..<15 {
                            let receipt = try await Self.post("\(edit)", key: "k\(number % 2)", at: relay)
                            last = max(last, receipt.change ?? receipt.message)
                        }
                        return ("k\(number % 2)", last)
                    }
                    group.addTask {
                        var last: MessageID = 0
                        for _ in 0..<15 {
                            last = try await relay.rooms.post(StoreFixture.post(1, "plain")).message
                        }
                        return ("plain \(number)", last)
                    }
                }
                return try await group.reduce(into: [String: MessageID]()) { ids, last in
                    ids[last.0] = max(ids[last.0] ?? 0, last.1)
                }
            }
            _ = try await first.rooms.post(StoreFixture.post(1, "last"))
            let seen = try await reader.value
            #expect(seen.map(\.id) == seen.map(\.id).sorted() && Set(seen.map(\.id)).count == seen.count)
            // All 60 posts, the two messages with keys, and the last post.
            #expect(seen.count { if case .message = $0 { true } else { false } } == 63)
            for (name, id) in ids { #expect(seen.contains { $0.id == id }, "\(name)") }
        }
    }

    @Test("While a relay has leased a push, no relay queues another of the message for the device")
    func rounds() async throws {
        try await withRelays { first, second in
            for number in 1...12 {
                try await first.rooms.join(StoreFixture.join(number, app: StoreFixture.changingApp.text))
            }
            let message = try await Self.post("one", key: "k", at: first).message
            try await queueFirst(message, at: first)
            let leased = try await lease(at: first)
            #expect(leased.count == 12)
            _ = try await Self.post("two", key: "k", at: second)
            try await performDue([first, second])
            #expect(try await lease(at: second).isEmpty)
            try await settle(Array(leased.prefix(8)), at: first)
            fixture.advance(.seconds(1))
            try await performDue([first, second])
            let next = try await lease(at: second)
            #expect(Set(next.map(\.address)) == Set(leased.prefix(8).map(\.address)) && next.count == 8)
            #expect(next.allSatisfy { $0.payload == Array("replace: two".utf8) })
            // The first relay ends without having recorded the other outcomes. Its pushes have no text any more.
            first.close()
            try await settle(next, at: second)
            var texts: [String] = []
            for _ in 0..<3 {
                try await second.lookForPushes()
                for push in try await lease(at: second) {
                    if push.obstacle == nil { texts.append(String(decoding: push.payload ?? [], as: UTF8.self)) }
                    let end = PushLifeCycle().obstacle(to: push, at: fixture.time.now) ?? Self.sent
                    _ = try await second.queue.settle(
                        [Settlement(push.id...push.id, end)], app: StoreFixture.changingApp)
                }
                fixture.advance(.seconds(1))
                try await performDue([second])
            }
            #expect(texts == [String](repeating: "ring: two", count: 4))
        }
    }

    @Test("A change waits for a round in progress, and withdraws its pushes", arguments: [false, true])
    func heldRound(isDeletion: Bool) async throws {
        try await withRelays { first, second in
            for number in 1...3 {
                try await first.rooms.join(StoreFixture.join(number, app: StoreFixture.changingApp.text))
            }
            let message = try await Self.post("one", key: "k", at: first).message
            try await queueFirst(message, at: first)
            try await settle(try await lease(at: first), at: first)
            _ = try await Self.post("two", key: "k", at: first)
            let action: MessageChangeRequest.Action =
                isDeletion ? .delete : .edit(try MessageContent(parsing: "three"))
            let change = Mutex<Task<ChangeReceipt, any Error>?>(nil)
            // As a step that has read the text "two" and has not committed.
            try await hold(at: first) {
                _ = try $0.row("SELECT push_due FROM message_states FOR UPDATE")
            } during: {
                change.withLock { task in
                    task = Task {
                        try await second.changes.change(MessageChangeRequest(.id(message), by: Self.author, action))
                    }
                }
            } then: {
                try $0.run(
                    """
                    INSERT INTO push_queue_due (device_token, payload, app, chat_message, device, member, silent)
                    SELECT q.device_token, 'replace: two', q.app, q.chat_message, q.device, q.member, true
                    FROM push_queue q WHERE q.state = 'sent'
                    """, [])
            }
            let task = try #require(change.withLock { $0 })
            _ = try await task.value
            #expect(try fixture.value("SELECT count(*) FROM push_queue WHERE payload LIKE '%two%'") == 0)
            fixture.advance(.seconds(15))
            try await performDue([first, second])
            let payloads = try await lease(at: first).compactMap { push in
                push.payload.map { String(decoding: $0, as: UTF8.self) }
            }
            #expect(payloads == [String](repeating: isDeletion ? "remove" : "replace: three", count: 3))
        }
    }

    /// Holds a transaction of the first relay until `count` other ones wait for it.
    private func hold(
        at relay: PostgresStores, until count: Int = 1,
        _ body: @escaping @Sendable (PostgresTransaction) throws -> Void,
        during start: @escaping @Sendable () -> Void, then end: @escaping @Sendable (PostgresTransaction) throws -> Void
    ) async throws {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        let isFirst = Atomic(true)
        try await relay.database.write { [fixture] transaction in
            try body(transaction)
            // Statements without a result are sent with the next one.
            _ = try transaction.row("SELECT 1")
            // The attempts of one transaction start the others only once.
            if isFirst.exchange(false, ordering: .relaxed) { start() }
            let limit = ContinuousClock.now + .seconds(60)
            while try fixture.value(waiting) < count {
                try #require(ContinuousClock.now < limit)
            }
            try end(transaction)
        }
    }

    private static let author = ChangeAuthor(writer: .program(token: 1), room: room)

    @Test(
        "A request that two relays get at once is answered once, and then as a repeat",
        arguments: [MessageChangeRequest.Action.delete, .edit(MessageContent(stored: "two"), revision: 1)])
    func repeated(action: MessageChangeRequest.Action) async throws {
        try await withRelays { first, second in
            let third = try await fixture.open()
            defer { third.close() }
            let message = try await Self.post("one", key: "k", at: first).message
            let request = MessageChangeRequest(.id(message), by: Self.author, action, idempotencyKey: "r")
            let tasks = Mutex<[Task<ChangeReceipt, any Error>]>([])
            try await hold(at: first, until: 2) {
                try $0.lock(room: Self.room)
            } during: {
                tasks.withLock {
                    $0 = [second, third].map { relay in Task { try await relay.changes.change(request) } }
                }
            } then: { _ in
            }
            var receipts: [ChangeReceipt] = []
            for task in tasks.withLock({ $0 }) { receipts.append(try await task.value) }
            #expect(receipts.map(\.isRepeat).sorted { !$0 && $1 } == [false, true])
            #expect(Set(receipts.map(\.change)).count == 1)
        }
    }

    @Test("A push that a relay leases during the deletion of its message gets a push that removes it")
    func leasedDuringDeletion() async throws {
        try await withRelays { first, second in
            try await first.rooms.join(StoreFixture.join(1, app: StoreFixture.changingApp.text))
            let message = try await Self.post("one", key: "k", at: first).message
            try await queueFirst(message, at: first)
            let deletion = Mutex<Task<ChangeReceipt, any Error>?>(nil)
            try await hold(at: first) {
                try $0.run("UPDATE push_queue_due SET lease_start = 1000", [])
            } during: {
                deletion.withLock { task in
                    task = Task {
                        try await second.changes.change(MessageChangeRequest(.id(message), by: Self.author, .delete))
                    }
                }
            } then: { _ in
            }
            _ = try await deletion.withLock { $0 }?.value
            #expect(
                try fixture.query("SELECT payload, state, not_before IS NOT NULL FROM push_queue ORDER BY message_id")
                    == "|cancelled|f\nremove|pending|t")
        }
    }

    @Test("A deletion at one relay ends the edits at the other")
    func deletion() async throws {
        try await withRelays { first, second in
            for round in 0..<10 {
                let message = try await Self.post("start", key: "k\(round)", at: first).message
                let author = ChangeAuthor(writer: .program(token: 1), room: Self.room)
                async let edited = Result {
                    try await second.changes.change(
                        MessageChangeRequest(.id(message), by: author, .edit(MessageContent(parsing: "edited"))))
                }
                async let deleted = first.changes.change(MessageChangeRequest(.id(message), by: author, .delete))
                let (edit, deletion) = (await edited, try await deleted)
                if case .success(let receipt) = edit {
                    #expect(try #require(receipt.change) < #require(deletion.change))
                } else if case .failure(let error) = edit {
                    #expect((error as? ChatError)?.code == .notFound)
                }
                #expect(try fixture.value("SELECT count(*) FROM messages") == 0)
                let last = try await second.feed.entries(in: Self.room, after: message, limit: 10).last
                #expect(last?.id == deletion.change && last?.message == nil)
            }
        }
    }
}

extension Result where Failure == any Error {
    fileprivate init(_ body: () async throws -> Success) async {
        do { self = .success(try await body()) } catch { self = .failure(error) }
    }
}

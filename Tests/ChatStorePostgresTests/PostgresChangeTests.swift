import ChatDomain
import ChatSQL
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

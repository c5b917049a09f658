import ChatDomain
import Foundation
import Testing

@testable import TestStores

/// Tests the requirements of `docs/stores.md` for scheduled messages, in every store.
@Suite("Scheduled messages in every store", .timeLimit(.minutes(3)))
struct SchedulePortTests {
    private static let room = SecretCode(stored: "room")
    private static let moderator = Moderator(name: "ann", address: "192.0.2.9")

    /// A program with a token.
    private struct Program {
        let store: TestedStore
        let token: Int64
        var room = SchedulePortTests.room

        init(_ name: String = "cron", expiresAt: Timestamp? = nil, in store: TestedStore) async throws {
            self.store = store
            token = try await store.stores.tokens.create(
                AccessToken.name(name), AccessGrant(scopes: [.post]), expiresAt: expiresAt
            ).token.id
        }

        var author: ChangeAuthor { ChangeAuthor(writer: .program(token: token), room: room) }

        @discardableResult
        func post(
            _ text: String, key: String? = nil, at due: Timestamp? = nil, retry: String? = nil, renotify: Bool = false
        ) async throws -> ChangeReceipt {
            let request = PostRequest(
                member: author.writer, program: PostRequest.Program(nickname: Nickname(stored: "cron"), room: room),
                content: try MessageContent(parsing: text), idempotencyKey: retry)
            return try await store.stores.changes.post(
                KeyedPost(request, key: key.map(MessageKey.init(stored:)), renotify: renotify, notBefore: due))
        }

        @discardableResult
        func change(
            _ name: String, _ action: MessageChangeRequest.Action, retry: String? = nil
        ) async throws -> ChangeReceipt {
            try await store.stores.changes.change(
                MessageChangeRequest(MessageReference(parsing: name), by: author, action, idempotencyKey: retry))
        }

        func find(_ name: String) async throws -> FoundMessage {
            try await store.stores.changes.find(MessageReference(parsing: name), for: author)
        }

        func scheduled() async throws -> [ScheduledMessage] {
            try await Page.all { cursor in
                try await store.stores.changes.scheduled(
                    in: room, author: .program(token: token), after: cursor, limit: 2)
            }
        }
    }

    private func edit(_ text: String, revision: Int? = nil, at due: Timestamp? = nil) throws
        -> MessageChangeRequest.Action
    {
        .edit(try MessageContent(parsing: text), revision: revision, notBefore: due)
    }

    private func refusal(_ call: () async throws -> Void) async -> ChatError? {
        do {
            try await call()
            return nil
        } catch {
            return error as? ChatError
        }
    }

    private func performDue(_ store: TestedStore) async throws {
        while try await store.stores.changes.performDue() {}
    }

    private func texts(_ store: TestedStore, in room: String = "room") throws -> [String] {
        try store.query("SELECT text FROM messages WHERE secret_code = '\(room)' ORDER BY message_id").map { $0[0] }
    }

    private func records(_ store: TestedStore) async throws -> [String] {
        try await store.stores.moderation.records(before: nil, limit: 100).items
            .filter { $0.action == "unschedule" }
            .map { "\($0.room?.text ?? ""): \($0.subject ?? "") by \($0.actor)" }.sorted()
    }

    // MARK: - Posting

    @Test(
        "A scheduled message is posted once, at its time, with a higher id and its pushes",
        arguments: StoreKind.allCases)
    func posted(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await store.stores.rooms.join(StoreFixture.join(1))
        let program = try await Program(in: store)
        let due = store.now() + .seconds(60)
        let receipt = try await program.post("later", at: due)
        #expect(receipt.isNew && receipt.due == due && receipt.change == nil && receipt.revision == 1)
        let other = try await program.post("now", key: "other")
        #expect(other.message > receipt.message)
        guard case .scheduled(let scheduled) = try await program.find("\(receipt.message)") else {
            Issue.record("not scheduled")
            return
        }
        #expect(scheduled.content.text.text == "later" && scheduled.due == due && !scheduled.isHeld)
        #expect(try await program.scheduled() == [scheduled])
        #expect(try await store.stores.changes.nextDue() == due)
        store.advance(.seconds(60) - .milliseconds(1))
        try await performDue(store)
        #expect(try texts(store) == ["now"])
        store.advance(.milliseconds(1))
        #expect(try await store.stores.changes.performDue())
        try await performDue(store)
        #expect(try texts(store) == ["now", "later"])
        #expect(try await program.scheduled().isEmpty)
        #expect(try await store.stores.changes.nextDue() == nil)
        // The process ends directly after the commit. The pushes follow.
        try await store.restart()
        try await performDue(store)
        #expect(try texts(store) == ["now", "later"])
        guard case .message(let record, nil) = try await program.find("\(receipt.message)") else {
            Issue.record("not posted")
            return
        }
        #expect(record.message.id > other.message && record.message.sentAt == due)
        let upkeep = store.stores.upkeep
        let watch = Task { await upkeep.watch() }
        while try await store.stores.records.progress(of: record.message.id).isQueueing { await Task.yield() }
        watch.cancel()
        await watch.value
        #expect(try await store.lease().filter { $0.message == record.message.id }.count == 1)

        // The number of the first response names the message.
        let edited = try await program.change("\(receipt.message)", edit("changed"))
        #expect(edited.message == record.message.id && edited.revision == 2)
        #expect(try texts(store) == ["now", "changed"])
        #expect(
            await refusal { try await program.change("\(receipt.message)", edit("x", at: due + .seconds(60))) }?.field
                == "not_before")
        try await program.change("\(receipt.message)", .delete)
        #expect(try texts(store) == ["now"])
        #expect(await refusal { _ = try await program.find("\(receipt.message)") }?.code == .notFound)
    }

    @Test("Late messages are posted at once, the oldest first", arguments: StoreKind.allCases)
    func late(kind: StoreKind) async throws {
        let store = try await kind.make()
        let program = try await Program(in: store)
        for number in [3, 1, 2] {
            try await program.post("message \(number)", at: store.now() + .seconds(60 * Int64(number)))
        }
        store.advance(.seconds(3600))
        try await store.restart()
        try await performDue(store)
        #expect(try texts(store) == ["message 1", "message 2", "message 3"])
    }

    @Test("Clocks that are set back or forward neither repeat nor lose a message", arguments: StoreKind.allCases)
    func clocks(kind: StoreKind) async throws {
        let store = try await kind.make()
        let program = try await Program(in: store)
        try await program.post("first", at: store.now() + .seconds(60))
        let second = try await program.post("second", at: store.now() + .seconds(120))
        store.advance(.seconds(60))
        try await performDue(store)
        store.advance(.seconds(-3600))
        try await performDue(store)
        #expect(try texts(store) == ["first"])
        #expect(try await store.stores.changes.nextDue() == second.due)
        store.advance(.seconds(7 * 86_400))
        try await performDue(store)
        try await performDue(store)
        #expect(try texts(store) == ["first", "second"])
    }

    // MARK: - Limits

    @Test("The time is in the future, and at most 30 days ahead", arguments: StoreKind.allCases)
    func horizon(kind: StoreKind) async throws {
        let store = try await kind.make()
        let program = try await Program(in: store)
        let (now, month) = (store.now(), Duration.seconds(30 * 86_400))
        let kept = try await program.post("kept", at: now + month)
        #expect(kept.due == now + month)
        #expect(try await program.post("soon", at: now + .milliseconds(1)).isNew)
        for due in [now - .seconds(1), now, now + month + .milliseconds(1), Timestamp(milliseconds: .max)] {
            let refused = await refusal { try await program.post("x", at: due) }
            #expect(refused?.code == .invalidField && refused?.field == "not_before")
            let change = await refusal { try await program.change("\(kept.message)", edit("x", at: due)) }
            #expect(change?.code == .invalidField && change?.field == "not_before")
        }
        #expect(try await program.scheduled().map(\.content.text.text) == ["kept", "soon"])
    }

    @Test("A program has at most 1,000 scheduled messages in a room", arguments: StoreKind.allCases)
    func limit(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (program, other) = (try await Program(in: store), try await Program("other", in: store))
        let due = store.now() + .seconds(60)
        let keyed = try await program.post("keyed", key: "k", at: due)
        _ = try store.query(
            """
            INSERT INTO scheduled_messages (scheduled_id, secret_code, author, nickname, text, due, time_created)
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(ScheduledMessage.limit - 1))
            SELECT i + 1000000, 'room', 'token:\(program.token)', 'cron', 'x', \(due.milliseconds),
                \(store.time(store.now())) FROM n
            """)
        let refused = await refusal { try await program.post("one more", at: due) }
        #expect(refused?.code == .conflict && refused?.field == "not_before")
        #expect(try await other.post("another program", at: due).isNew)
        var elsewhere = program
        elsewhere.room = SecretCode(stored: "elsewhere")
        #expect(try await elsewhere.post("another room", at: due).isNew)
        #expect(try await program.post("keyed again", key: "k", at: due).message == keyed.message)
        try await program.change("1000001", .delete)
        #expect(try await program.post("one more", at: due).isNew)
    }

    // MARK: - Changes

    @Test("A key that is pushed further each minute is posted only when that ends", arguments: StoreKind.allCases)
    func deadMansSwitch(kind: StoreKind) async throws {
        let store = try await kind.make()
        let program = try await Program(in: store)
        let wait = Duration.seconds(300)
        let first = try await program.post("backup is dead", key: "backup", at: store.now() + wait, retry: "retry 0")
        for number in 1...1000 {
            store.advance(.seconds(60))
            try await performDue(store)
            let next = try await program.post(
                "backup is dead since \(number)", key: "backup", at: store.now() + wait,
                retry: number > 960 ? "retry \(number)" : nil)
            guard next.message == first.message, !next.isNew, next.revision == number + 1 else {
                Issue.record("\(next)")
                return
            }
        }
        #expect(try texts(store).isEmpty)
        #expect(try await program.scheduled().map(\.revision) == [1001])
        #expect(try store.value("SELECT count(*) FROM message_retries") == MessageChangeLimits.retries)
        store.advance(wait)
        try await performDue(store)
        #expect(try texts(store) == ["backup is dead since 1000"])
        // The newest retry knows the message.
        #expect(
            try await program.post(
                "backup is dead since 1000", key: "backup", at: store.now(), retry: "retry 1000"
            ).isRepeat)
        #expect(try await program.post("backup is alive", key: "backup").revision == 2)
    }

    @Test("A scheduled message is listed, changed and cancelled, by its number or key", arguments: StoreKind.allCases)
    func changed(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (program, other) = (try await Program(in: store), try await Program("other", in: store))
        let due = store.now() + .seconds(60)
        let first = try await program.post("first", key: "a", at: due)
        let second = try await program.post("second", at: due + .seconds(1))
        let third = try await program.post("third", key: "c", at: due + .seconds(2))
        let edited = try await program.change("a", edit("first again", revision: 7, at: due + .seconds(9)))
        #expect(edited.message == first.message && edited.revision == 7 && edited.due == due + .seconds(9))
        #expect(await refusal { try await program.change("a", edit("old", revision: 6)) }?.code == .conflict)
        #expect(try await program.change("\(second.message)", edit("second again")).due == due + .seconds(1))
        #expect(await refusal { try await program.change("a", .clear) }?.code == .conflict)
        for name in ["a", "\(first.message)"] {
            #expect(await refusal { try await other.change(name, edit("x")) }?.code == .notFound)
            #expect(await refusal { try await other.change(name, .delete) }?.code == .notFound)
            #expect(await refusal { _ = try await other.find(name) }?.code == .notFound)
        }
        #expect(
            try await program.scheduled().map { "\($0.id) \($0.content.text.text)" }
                == ["\(first.message) first again", "\(second.message) second again", "\(third.message) third"])
        try await program.change("c", .delete)
        #expect(await refusal { try await program.change("\(third.message)", .delete) }?.code == .notFound)
        let admin = ChangeAuthor(writer: .administrator, isAdmin: true, room: Self.room, moderator: Self.moderator)
        let all = try await store.stores.changes.scheduled(in: Self.room, author: nil, after: nil, limit: 9)
        #expect(all.items.map(\.id) == [first.message, second.message])
        _ = try await store.stores.changes.change(MessageChangeRequest(.id(second.message), by: admin, .delete))
        #expect(try await records(store) == ["room: 1 scheduled message by ann"])
        // Two programs have the key.
        let own = try await other.post("other", key: "a", at: due)
        let refused = await refusal {
            _ = try await store.stores.changes.find(.key(MessageKey(stored: "a")), for: admin)
        }
        #expect(refused?.code == .conflict && refused?.ids == [first.message, own.message])
        store.advance(.seconds(3600))
        try await performDue(store)
        #expect(try texts(store) == ["other", "first again"])
    }

    @Test("The number of each scheduled message names the message that it changed", arguments: StoreKind.allCases)
    func numbers(kind: StoreKind) async throws {
        let store = try await kind.make()
        let program = try await Program(in: store)
        var numbers: [MessageID] = []
        var message: MessageID?
        for number in 0...MessageChangeLimits.retries + 1 {
            let scheduled = try await program.post("text \(number)", key: "k", at: store.now() + .seconds(60))
            #expect(scheduled.isNew)
            numbers.append(scheduled.message)
            store.advance(.seconds(60))
            try await performDue(store)
            guard case .message(let record, _) = try await program.find("\(scheduled.message)") else {
                Issue.record("not posted")
                return
            }
            #expect(message == nil || record.message.id == message)
            message = record.message.id
        }
        #expect(try texts(store) == ["text \(MessageChangeLimits.retries + 1)"])
        // The last numbers are kept.
        for (index, number) in numbers.enumerated() {
            let error = await refusal { _ = try await program.find("\(number)") }
            #expect(error?.code == (index < 2 ? .notFound : nil), "\(index)")
        }
        #expect(try await program.change("\(numbers[2])", edit("changed")).message == message)
        #expect(try await program.change("\(numbers[9])", .delete).message == message)
        #expect(await refusal { _ = try await program.find("\(numbers[9])") }?.code == .notFound)
        store.advance(.seconds(100))
        _ = try await store.stores.upkeep.applyRetention(messages: .seconds(50), queue: .seconds(50))
        #expect(try store.value("SELECT count(*) FROM posted_schedules") == 0)
    }

    @Test("A message and a scheduled one may have the same key", arguments: StoreKind.allCases)
    func sameKey(kind: StoreKind) async throws {
        let store = try await kind.make()
        let program = try await Program(in: store)
        let due = store.now() + .seconds(60)
        let message = try await program.post("down", key: "k")
        let scheduled = try await program.post("still down", key: "k", at: due)
        #expect(scheduled.message != message.message && scheduled.isNew)
        #expect(try await program.change("k", edit("down!")).message == message.message)
        #expect(try await program.change("k", edit("still down!", at: due)).message == scheduled.message)
        try await program.change("k", .clear)
        #expect(try await program.scheduled().map(\.content.text.text) == ["still down!"])
        // It replaces the text of the open message.
        store.advance(.seconds(60))
        try await performDue(store)
        #expect(try texts(store) == ["still down!"])
        guard case .message(let record, let change?) = try await program.find("\(scheduled.message)") else {
            Issue.record("not posted")
            return
        }
        #expect(record.message.id == message.message && change.kind == .edited)

        // Posting now, resolving and deleting the open message cancel the scheduled one. Another message does not.
        let later = store.now() + .seconds(60)
        try await program.post("later", key: "k", at: later)
        try await program.post("now", key: "k")
        #expect(try await program.scheduled().isEmpty)
        try await program.post("later", key: "k", at: later)
        try await program.change("k", .resolve(nil))
        #expect(try await program.scheduled().isEmpty)
        try await program.post("later", key: "k", at: later)
        try await program.change("\(message.message)", .delete)
        #expect(try await program.scheduled().count == 1)
        // It is not posted yet, so there is nothing to resolve.
        try await program.change("k", .resolve(try MessageContent(parsing: "up")))
        store.advance(.seconds(600))
        try await performDue(store)
        #expect(try texts(store).isEmpty)
    }

    @Test(
        "A late retry neither repeats a scheduled message nor brings back a cancelled one",
        arguments: StoreKind.allCases)
    func retries(kind: StoreKind) async throws {
        let store = try await kind.make()
        let program = try await Program(in: store)
        let due = store.now() + .seconds(60)
        let first = try await program.post("first", at: due, retry: "a")
        let again = try await program.post("first", at: due, retry: "a")
        #expect(again.isRepeat && again.message == first.message && again.due == due && !again.isNew)
        #expect(
            await refusal { try await program.post("first", at: due + .seconds(1), retry: "a") }?.code
                == .idempotencyConflict)
        let second = try await program.post("second", key: "k", at: due, retry: "b")
        try await program.change("k", .delete, retry: "c")
        for _ in 1...2 {
            #expect(try await program.post("second", key: "k", at: due, retry: "b").message == second.message)
            #expect(try await program.change("k", .delete, retry: "c").isRepeat)
        }
        #expect(try await program.scheduled().map(\.id) == [first.message])
        store.advance(.seconds(60))
        try await performDue(store)
        let posted = try await program.post("first", at: due, retry: "a")
        #expect(posted.isRepeat && posted.message > second.message && posted.due == nil)
        #expect(try texts(store) == ["first"])
    }

    // MARK: - Rooms and tokens

    @Test("A new code moves the scheduled messages", arguments: StoreKind.allCases)
    func newCode(kind: StoreKind) async throws {
        let store = try await kind.make()
        var program = try await Program(in: store)
        let receipt = try await program.post("later", key: "k", at: store.now() + .seconds(60))
        let code = SecretCode(stored: "new")
        _ = try await store.stores.moderation.recode(Self.room, to: code, by: Self.moderator)
        #expect(await refusal { _ = try await program.find("k") }?.code == .notFound)
        program.room = code
        #expect(try await program.scheduled().map(\.id) == [receipt.message])
        try await program.change("k", edit("later again"))
        store.advance(.seconds(60))
        try await performDue(store)
        #expect(try texts(store, in: "new") == ["later again"])
        #expect(try await records(store).isEmpty)
    }

    @Test(
        "Closing the room, and revoking the token, drop scheduled messages with a record",
        arguments: StoreKind.allCases)
    func dropped(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (program, other) = (try await Program(in: store), try await Program("other", in: store))
        let due = store.now() + .seconds(60)
        for number in 1...3 { try await program.post("message \(number)", at: due) }
        try await other.post("other", at: due)
        var elsewhere = program
        elsewhere.room = SecretCode(stored: "elsewhere")
        try await elsewhere.post("kept", at: due)
        _ = try await store.stores.moderation.ban(BanRequest(.room(Self.room)), by: Self.moderator)
        #expect(try await records(store) == ["room: 4 scheduled messages by ann"])
        #expect(await refusal { try await program.post("closed", at: due) }?.code == .forbidden)
        #expect(try await elsewhere.scheduled().map(\.content.text.text) == ["kept"])
        var third = elsewhere
        third.room = SecretCode(stored: "third")
        try await third.post("third", at: due)
        _ = try await store.stores.tokens.revoke(program.token, by: Self.moderator)
        #expect(
            try await records(store) == [
                "elsewhere: 1 scheduled message by ann", "room: 4 scheduled messages by ann",
                "third: 1 scheduled message by ann",
            ])
        store.advance(.seconds(60))
        try await performDue(store)
        #expect(try store.value("SELECT count(*) FROM messages") == 0)
    }

    @Test(
        "A message whose program may no longer post is dropped when it is due, with a record",
        arguments: StoreKind.allCases)
    func notAllowed(kind: StoreKind) async throws {
        let store = try await kind.make()
        let due = store.now() + .seconds(60)
        let expired = try await Program("expired", expiresAt: due, in: store)
        let gone = try await Program("gone", in: store)
        let limited = try await Program("limited", in: store)
        let narrowed = try await Program("narrowed", in: store)
        let valid = try await Program("valid", expiresAt: due + .milliseconds(1), in: store)
        for program in [expired, gone, limited, narrowed, valid] { try await program.post("hi", at: due) }
        var closed = valid
        closed.room = SecretCode(stored: "closed")
        try await closed.post("hi", at: due)
        let admin = PostRequest(
            member: .administrator, program: PostRequest.Program(nickname: Nickname(stored: "admin"), room: Self.room),
            content: try MessageContent(parsing: "from admin"))
        _ = try await store.stores.changes.post(KeyedPost(admin, notBefore: due))
        // Another program's writes.
        _ = try store.query("DELETE FROM api_tokens WHERE name = 'gone'")
        _ = try store.query("UPDATE api_tokens SET room = 'other' WHERE name = 'limited'")
        _ = try store.query("UPDATE api_tokens SET scopes = '[\"read\"]' WHERE name = 'narrowed'")
        _ = try store.query(
            "INSERT INTO bans (secret_code, time_created) VALUES ('closed', \(store.time(store.now())))")
        store.advance(.seconds(60))
        try await performDue(store)
        #expect(try texts(store).sorted() == ["from admin", "hi"])
        #expect(try texts(store, in: "closed").isEmpty)
        let dropped = "scheduled message by schedule"
        #expect(
            try await records(store)
                == ["closed: 1 \(dropped)"] + Array(repeating: "room: 1 \(dropped)", count: 4))
    }

    @Test("A held message is listed, and posted only with a new time", arguments: StoreKind.allCases)
    func held(kind: StoreKind) async throws {
        let store = try await kind.make()
        let program = try await Program(in: store)
        let due = store.now() + .seconds(60)
        let first = try await program.post("first", at: due)
        try await program.post("second", key: "k", at: due)
        let third = try await program.post("third", at: due)
        let isTrue = kind == .sqlite ? "1" : "true"
        _ = try store.query("UPDATE scheduled_messages SET is_held = \(isTrue)")
        store.advance(.seconds(60))
        try await performDue(store)
        #expect(try texts(store).isEmpty)
        #expect(try await store.stores.changes.nextDue() == nil)
        #expect(try await program.scheduled().map(\.isHeld) == [true, true, true])
        try await program.change("\(first.message)", edit("first again"))
        #expect(try await program.scheduled().map(\.isHeld) == [true, true, true])
        try await program.change("\(first.message)", edit("first again", at: store.now() + .seconds(1)))
        try await program.post("second again", key: "k", at: store.now() + .seconds(2))
        try await program.change("\(third.message)", .delete)
        #expect(try await program.scheduled().map(\.isHeld) == [false, false])
        store.advance(.seconds(2))
        try await performDue(store)
        #expect(try texts(store) == ["first again", "second again"])
    }

    @Test("A message that the database rejects is tried again each minute, and does not hold up the others")
    func rejected() async throws {
        let store = try await StoreKind.sqlite.make()
        let program = try await Program(in: store)
        try await program.post("first", at: store.now() + .seconds(60))
        try await program.post("second", at: store.now() + .seconds(61))
        _ = try store.query(
            """
            CREATE TRIGGER t BEFORE INSERT ON messages WHEN new.text = 'first' BEGIN SELECT RAISE(ABORT, 'no'); END
            """)
        store.advance(.seconds(61))
        #expect(await refusal { try await performDue(store) }?.code == .internalError)
        try await performDue(store)
        #expect(try texts(store) == ["second"])
        store.advance(.seconds(60))
        #expect(await refusal { try await performDue(store) }?.code == .internalError)
        _ = try store.query("DROP TRIGGER t")
        try await performDue(store)
        #expect(try texts(store) == ["second"])
        store.advance(.seconds(60))
        try await performDue(store)
        #expect(try texts(store) == ["second", "first"])
    }
}

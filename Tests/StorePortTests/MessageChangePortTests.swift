import ChatDomain
import Foundation
import Testing

@testable import TestStores

/// Tests the requirements of `docs/stores.md` for messages that change, in every store.
@Suite("Messages that change in every store", .timeLimit(.minutes(3)))
struct MessageChangePortTests {
    private static let room = SecretCode(stored: "room")
    private static let sent = Transition(.sent, adding: PushHistory(attempts: 1))
    private static let moderator = Moderator(name: "admin", address: "192.0.2.9")

    private func author(_ token: Int64 = 1) -> ChangeAuthor {
        ChangeAuthor(writer: .program(token: token), room: Self.room)
    }

    private var admin: ChangeAuthor {
        ChangeAuthor(writer: .administrator, isAdmin: true, room: Self.room, moderator: Self.moderator)
    }

    private func content(_ text: String) throws -> MessageContent { try MessageContent(parsing: text) }

    private func post(
        _ text: String, key: String?, token: Int64 = 1, room: SecretCode = room, retry: String? = nil,
        renotify: Bool = false, in store: TestedStore
    ) async throws -> ChangeReceipt {
        let request = PostRequest(
            member: .program(token: token),
            program: PostRequest.Program(nickname: Nickname(stored: "cron"), room: room), content: try content(text),
            idempotencyKey: retry)
        return try await store.stores.changes.post(
            KeyedPost(request, key: key.map(MessageKey.init(stored:)), renotify: renotify))
    }

    @discardableResult
    private func change(
        _ name: String, _ action: MessageChangeRequest.Action, by author: ChangeAuthor? = nil, retry: String? = nil,
        in store: TestedStore
    ) async throws -> ChangeReceipt {
        try await store.stores.changes.change(
            MessageChangeRequest(
                MessageReference(parsing: name), by: author ?? self.author(), action, idempotencyKey: retry))
    }

    /// Returns the code of the error that the call throws.
    private func refusal(_ call: () async throws -> Void) async -> ChatError? {
        do {
            try await call()
            return nil
        } catch {
            return error as? ChatError
        }
    }

    private func join(_ numbers: ClosedRange<Int>, in store: TestedStore) async throws {
        for number in numbers {
            try await store.stores.rooms.join(
                StoreFixture.join(number, app: StoreFixture.changingApp.text))
        }
    }

    /// Waits until the first pushes of the messages are queued.
    private func queueFirst(_ messages: [MessageID], in store: TestedStore) async throws {
        let upkeep = store.stores.upkeep
        let watch = Task { await upkeep.watch() }
        for message in messages {
            while try await store.stores.records.progress(of: message).isQueueing {
                try await Task.sleep(for: .milliseconds(5))
            }
        }
        watch.cancel()
        await watch.value
    }

    /// Performs all rounds that are due now.
    private func performDue(in store: TestedStore) async throws {
        while try await store.stores.changes.performDue() {}
    }

    private func lease(in store: TestedStore) async throws -> [QueuedPush] {
        try await store.stores.queue.lease(app: StoreFixture.changingApp, lanes: PushLane.allCases, limit: 1000).pushes
    }

    private func settle(_ pushes: [QueuedPush], _ transition: Transition = sent, in store: TestedStore) async throws {
        _ = try await store.stores.queue.settle(
            pushes.map { Settlement($0.id...$0.id, transition) }, app: StoreFixture.changingApp)
    }

    /// Sends all pushes that are due, and returns their payloads in order.
    private func send(in store: TestedStore) async throws -> [String] {
        let pushes = try await lease(in: store)
        try await settle(pushes.filter { $0.obstacle == nil }, in: store)
        for push in pushes where push.obstacle != nil {
            try await settle([push], try #require(PushLifeCycle().obstacle(to: push, at: store.now())), in: store)
        }
        return pushes.filter { $0.obstacle == nil }.map { String(decoding: $0.payload ?? [], as: UTF8.self) }.sorted()
    }

    private func entries(after id: MessageID = 0, in store: TestedStore) async throws -> [RoomEntry] {
        try await store.stores.feed.entries(in: Self.room, after: id, limit: 1000)
    }

    /// The number of rows that contain a text, in all tables that could.
    private func traces(of text: String, in store: TestedStore) throws -> Int {
        try ["messages", "scheduled_messages", "push_queue"].reduce(0) { count, table in
            let column = table == "push_queue" ? "payload" : "text"
            return try count + store.value("SELECT count(*) FROM \(table) WHERE \(column) LIKE '%\(text)%'")
        }
    }

    // MARK: - Keys

    @Test("A post with the key of an open message replaces its text everywhere", arguments: StoreKind.allCases)
    func replaced(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        let first = try await post("disk is full", key: "disk", in: store)
        #expect(first.isNew && first.change == nil && first.revision == 1 && !first.isRepeat && !first.isApart)
        try await queueFirst([first.message], in: store)
        #expect(try traces(of: "disk is full", in: store) == 3)
        store.advance(.seconds(5))
        let second = try await post("disk has space", key: "disk", in: store)
        #expect(second.message == first.message && second.revision == 2 && !second.isNew)
        let number = try #require(second.change)
        #expect(number > first.message && second.time == store.now())
        #expect(try traces(of: "disk is full", in: store) == 0 && traces(of: "disk has space", in: store) == 1)
        #expect(try await send(in: store).isEmpty)

        let found = try await entries(in: store)
        #expect(
            found.map(\.id) == [first.message, number]
                && found.map(\.message?.text) == ["disk has space", "disk has space"])
        guard case .change(let change, let message?) = found[1] else {
            Issue.record("no change")
            return
        }
        #expect(change.kind == .edited && change.key?.text == "disk" && change.author == .program(token: 1))
        #expect(change.revision == 2 && change.time == store.now() && change.message == first.message)
        #expect(message.content.extras.change == .edited && message.content.extras.key?.text == "disk")
        #expect(try await store.stores.feed.lastEntry(in: Self.room) == number)
        let page = try await store.stores.rooms.entries(
            for: StoreFixture.member(1), since: first.message, limit: 10, isPeek: false)
        #expect(page.entries == Array(found.dropFirst()) && page.next == number)
        guard
            case .message(let record, let last) = try await store.stores.changes.find(
                .key(MessageKey(stored: "disk")), for: author())
        else {
            Issue.record("no message")
            return
        }
        #expect(record.message == message && last == change)
        // A post of the old kind gets a higher id.
        let plain = try await store.stores.rooms.post(StoreFixture.post(1, "plain"))
        #expect(plain.message > number)
    }

    @Test("A member gets only changes of messages that it may read", arguments: StoreKind.allCases)
    func history(kind: StoreKind) async throws {
        let store = try await kind.make()
        let before = try await post("before", key: "before", in: store)
        try await join(1...1, in: store)
        let after = try await post("after", key: "after", in: store)
        try await change("before", .clear, in: store)
        let seen = try #require(try await change("after", .clear, in: store).change)
        let page = try await store.stores.rooms.entries(
            for: StoreFixture.member(1), since: nil, limit: 10, isPeek: true)
        #expect(page.entries.map(\.id) == [after.message, seen] && before.message < after.message)
        // The number of a change is not the number of a message.
        _ = try await store.stores.rooms.entries(
            for: StoreFixture.member(1), since: after.message, limit: 10, isPeek: false)
        try await queueFirst([after.message], in: store)
        let fetched = try await store.stores.records.members(of: Self.room, after: nil, limit: 9).items.map(\.fetchedTo)
        #expect(fetched == [after.message])
        let error = await refusal {
            _ = try await store.stores.rooms.entries(for: StoreFixture.member(2), since: nil, limit: 1, isPeek: true)
        }
        #expect(error?.code == .notJoined)
    }

    @Test("Authors have their own messages under a key, and change no others", arguments: StoreKind.allCases)
    func authors(kind: StoreKind) async throws {
        let store = try await kind.make()
        let first = try await post("one", key: "k", in: store)
        let second = try await post("two", key: "k", token: 2, in: store)
        #expect(second.isNew && second.message != first.message && second.isApart && !first.isApart)
        #expect(try await post("two again", key: "k", token: 2, in: store).message == second.message)
        // A key belongs to a room.
        let elsewhere = try await post("three", key: "k", room: SecretCode(stored: "other"), in: store)
        #expect(elsewhere.isNew && !elsewhere.isApart)
        for (name, by) in [
            ("\(first.message)", author(2)), ("k", author(3)), ("\(first.message + 1000)", author()),
            ("\(elsewhere.message)", author()), ("unknown", author()), ("unknown", admin),
        ] {
            for action in [.clear, .delete, .edit(try content("x"))] as [MessageChangeRequest.Action] {
                #expect(
                    await refusal { try await change(name, action, by: by, in: store) }?.code == .notFound, "\(name)")
            }
        }
        let several = await refusal { try await change("k", .clear, by: admin, in: store) }
        #expect(several?.code == .conflict && several?.ids == [first.message, second.message])
        let missing = await refusal {
            try await change("k", .clear, by: ChangeAuthor(writer: .program(token: 1)), in: store)
        }
        #expect(missing?.field == "room")
        #expect(try await change("\(first.message)", .delete, by: admin, in: store).message == first.message)
        #expect(try await change("k", .edit(content("by the admin")), by: admin, in: store).message == second.message)
        #expect(try await store.stores.moderation.records(before: nil, limit: 9).items.map(\.action) == ["delete"])
        try await change("k", .delete, by: author(2), in: store)
        #expect(try await store.stores.moderation.records(before: nil, limit: 9).items.count == 1)
        // People's messages are not changed.
        try await store.stores.rooms.join(StoreFixture.join(1))
        let people = try await store.stores.rooms.post(StoreFixture.post(1, "hi")).message
        #expect(await refusal { try await change("\(people)", .clear, by: admin, in: store) }?.code == .forbidden)
    }

    @Test("resolve and delete end a key, clear does not", arguments: StoreKind.allCases)
    func ends(kind: StoreKind) async throws {
        let store = try await kind.make()
        let first = try await post("down", key: "k", in: store)
        let cleared = try await change("k", .clear, in: store)
        #expect(cleared.revision == 1)
        #expect(try await post("down again", key: "k", in: store).message == first.message)
        let resolved = try await change("k", .resolve(content("up")), in: store)
        #expect(resolved.revision == 3 && resolved.message == first.message)
        #expect(await refusal { try await change("k", .clear, in: store) }?.code == .notFound)
        let second = try await post("down", key: "k", in: store)
        #expect(second.isNew && second.message > first.message && !second.isApart)
        try await change("k", .delete, in: store)
        #expect(await refusal { try await change("\(second.message)", .delete, in: store) }?.code == .notFound)
        let third = try await post("down", key: "k", in: store)
        #expect(third.isNew)
        let found = try await entries(in: store)
        #expect(found.map(\.id) == found.map(\.id).sorted())
        var kinds: [MessageID: MessageChange.Kind] = [:]
        for case .change(let change, let message) in found {
            kinds[change.message] = change.kind
            #expect((message == nil) == (change.kind == .deleted))
        }
        #expect(kinds == [first.message: .resolved, second.message: .deleted])
        #expect(found.first?.message?.text == "up" && found.first?.message?.content.extras.isRemoved == false)
        // An ended message can be changed by its id.
        #expect(try await change("\(first.message)", .edit(content("later")), in: store).revision == 4)
        #expect(try await post("down", key: "k", in: store).message == third.message)
    }

    @Test("The oldest key beyond the limit ends", arguments: StoreKind.allCases)
    func openKeys(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await post("x", key: "k0", in: store)
        let flag = kind == .sqlite ? "1" : "true"
        _ = try store.query(
            """
            INSERT INTO message_states (message_id, secret_code, author, message_key, is_open)
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(MessageChangeLimits.openKeys - 1))
            SELECT 100000 + i, 'room', 'token:1', 'k' || i, \(flag) FROM n
            """)
        #expect(try await !post("x", key: "k0", in: store).isNew)
        _ = try await post("x", key: "other", token: 2, in: store)
        #expect(try await !post("x", key: "k0", in: store).isNew)
        _ = try await post("x", key: "new", in: store)
        // The new message has a lower id than the rows above: one of them has ended.
        #expect(
            try store.value("SELECT count(*) FROM message_states WHERE author = 'token:1' AND is_open")
                == MessageChangeLimits.openKeys)
    }

    @Test(
        "Retention keeps messages with an open key, and later deletes what is left of others",
        arguments: StoreKind.allCases)
    func retention(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await store.stores.tokens.create(
            AccessToken.name("cron"), AccessGrant(scopes: [.post]), expiresAt: nil)
        let open = try await post("open", key: "a", in: store)
        let closed = try await post("closed", key: "b", retry: "r", in: store)
        let deleted = try await post("deleted", key: "c", in: store)
        try await queueFirst([open.message, closed.message, deleted.message], in: store)
        try await change("b", .resolve(nil), in: store)
        try await change("c", .delete, in: store)
        try await performDue(in: store)
        store.advance(.seconds(100))
        func apply() async throws -> Int {
            try await store.stores.upkeep.applyRetention(messages: .seconds(50), queue: .seconds(50)).messages
        }
        #expect(try await apply() == 1)
        _ = try await apply()
        #expect(try await entries(in: store).map(\.id) == [open.message])
        #expect(try store.value("SELECT count(*) FROM message_states") == 1)
        #expect(try store.value("SELECT count(*) FROM message_retries") == 0)
        #expect(try await !post("still open", key: "a", in: store).isNew)
    }

    @Test(
        "Retention ends keys whose token was revoked or has expired, and those of closed rooms",
        arguments: StoreKind.allCases)
    func endedKeys(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (tokens, moderation) = (store.stores.tokens, store.stores.moderation)
        var ids: [Int64] = []
        let ages: [Int64?] = [nil, nil, 40, 60]
        for (number, age) in ages.enumerated() {
            ids.append(
                try await tokens.create(
                    AccessToken.name("cron \(number)"), AccessGrant(scopes: [.post]),
                    expiresAt: age.map { store.now() + .seconds($0) }
                ).token.id)
        }
        for (number, token) in ids.enumerated() {
            _ = try await post("room \(number)", key: "k", token: token, in: store)
        }
        let (closed, paused) = (SecretCode(stored: "closed"), SecretCode(stored: "paused"))
        for room in [closed, paused] { _ = try await post(room.text, key: "k", token: ids[0], room: room, in: store) }
        _ = try await tokens.revoke(ids[1], by: Self.moderator)
        _ = try await moderation.ban(BanRequest(.room(closed)), by: Self.moderator)
        _ = try await moderation.ban(
            BanRequest(.room(paused), endsAt: store.now() + .seconds(1000)), by: Self.moderator)
        func apply() async throws -> Int {
            try await store.stores.upkeep.applyRetention(messages: .seconds(50), queue: .seconds(50)).messages
        }
        #expect(try await apply() == 0)
        store.advance(.seconds(100))
        // A token that has expired within the age may have been replaced by a moment too late.
        #expect(try await apply() == 3)
        #expect(
            try store.query("SELECT text FROM messages ORDER BY message_id").map { $0[0] }
                == ["room 0", "room 3", "paused"])
        #expect(try await !post("again", key: "k", token: ids[0], in: store).isNew)
    }

    @Test("A post without a key uses none of the tables of changes", arguments: StoreKind.allCases)
    func plainPosts(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...3, in: store)
        for table in ["message_states", "message_retries", "scheduled_messages", "posted_schedules"] {
            _ = try store.query("DROP TABLE \(table)")
        }
        let program = PostRequest(
            member: .program(token: 1),
            program: PostRequest.Program(nickname: Nickname(stored: "cron"), room: Self.room),
            content: try content("from a program"), idempotencyKey: "r")
        for request in [program, try StoreFixture.post(1, "from a member", key: "r")] {
            let posted = try await store.stores.rooms.post(request)
            let again = try await store.stores.rooms.post(request)
            #expect(again.isRepeat && again.message == posted.message)
        }
        #expect(try await send(in: store).count == 5)
        #expect(try await lease(in: store).isEmpty)
    }

    // MARK: - Retries

    @Test("Late and repeated requests change nothing", arguments: StoreKind.allCases)
    func retries(kind: StoreKind) async throws {
        let store = try await kind.make()
        let first = try await post("one", key: "k", retry: "r1", in: store)
        let second = try await post("two", key: "k", retry: "r2", in: store)
        let third = try await change("k", .edit(content("three")), retry: "r3", in: store)
        // The client did not get the responses, and repeats its requests in any order.
        for retry in ["r2", "r1"] {
            let again = try await post(retry == "r1" ? "one" : "two", key: "k", retry: retry, in: store)
            #expect(again.isRepeat && !again.isNew && again.revision == 3 && again.change == third.change)
        }
        #expect(try await change("k", .edit(content("three")), retry: "r3", in: store).isRepeat)
        #expect(try await entries(in: store).map(\.id) == [first.message, try #require(third.change)])
        #expect(try #require(second.change) < #require(third.change))
        for (text, key, retry) in [("other", "k", "r1"), ("one", "other", "r1"), ("three", "k", "r3")] {
            let error = await refusal { _ = try await post(text, key: key, retry: retry, in: store) }
            #expect(error?.code == .idempotencyConflict)
        }
        #expect(await refusal { try await change("k", .clear, retry: "r3", in: store) }?.code == .idempotencyConflict)
        #expect(try await post("one", key: "k", token: 2, retry: "r1", in: store).isNew)
        let deleted = try await change("k", .delete, retry: "r4", in: store)
        let again = try await change("k", .delete, retry: "r4", in: store)
        #expect(again.isRepeat && again.change == deleted.change && again.message == first.message)
        // A late retry does not post the message again.
        #expect(try await post("one", key: "k", retry: "r1", in: store).isRepeat)
        // The last changes are remembered.
        let other = try await post("0", key: "many", retry: "m0", in: store)
        for number in 1...MessageChangeLimits.retries {
            _ = try await post("\(number)", key: "many", retry: "m\(number)", in: store)
        }
        #expect(try await post("1", key: "many", retry: "m1", in: store).isRepeat)
        #expect(
            try store.value("SELECT count(*) FROM message_retries WHERE message_id = \(other.message)")
                == MessageChangeLimits.retries)
    }

    @Test("A retry of a post without a key finds its message also after an edit", arguments: StoreKind.allCases)
    func editedPost(kind: StoreKind) async throws {
        let store = try await kind.make()
        let request = PostRequest(
            member: .program(token: 1),
            program: PostRequest.Program(nickname: Nickname(stored: "cron"), room: Self.room),
            content: try content("first"), idempotencyKey: "r")
        let posted = try await store.stores.rooms.post(request)
        try await change("\(posted.message)", .clear, in: store)
        #expect(try await store.stores.rooms.post(request).isRepeat)
        let edited = try await change("\(posted.message)", .edit(content("second")), in: store)
        #expect(edited.revision == 2)
        let again = try await store.stores.rooms.post(request)
        #expect(again.isRepeat && again.message == posted.message)
        var other = request
        other.content = try content("third")
        #expect(await refusal { _ = try await store.stores.rooms.post(other) }?.code == .idempotencyConflict)
    }

    @Test("An edit with a lower revision is rejected", arguments: StoreKind.allCases)
    func revisions(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await post("one", key: "k", in: store)
        func edit(_ revision: Int) async throws -> Int {
            try await change("k", .edit(content("r\(revision)"), revision: revision), in: store).revision
        }
        // The program's own counter, or the revision that it has read.
        #expect(try await edit(5) == 5)
        let late = await refusal { _ = try await edit(4) }
        #expect(late?.code == .conflict && late?.field == "revision")
        #expect(late?.message == "Invalid revision: the message has revision 5")
        #expect(try await edit(5) == 6)
        #expect(await refusal { _ = try await edit(5) }?.code == .conflict)
        #expect(try await entries(in: store).last?.message?.text == "r5")
    }

    // MARK: - Rounds

    @Test("Devices get what their earlier pushes leave open", arguments: StoreKind.allCases)
    func rounds(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...4, in: store)
        let message = try await post("one", key: "k", in: store).message
        try await queueFirst([message], in: store)
        let first = try await lease(in: store)
        #expect(first.count == 4)
        // One push was sent, one failed, one is with a gateway, and one waits.
        try await settle([first[0]], in: store)
        try await settle([first[1]], Transition(.failed(reason: "Bad")), in: store)
        store.stores.queue.release([first[3].id...first[3].id], lane: .normal, app: StoreFixture.changingApp)
        // PostgreSQL writes the release with the next lease.
        let released = try await lease(in: store)
        store.stores.queue.release(released.map { $0.id...$0.id }, lane: .normal, app: StoreFixture.changingApp)
        _ = try await store.stores.queue.lease(app: AppName("none"), lanes: [.normal], limit: 1)
        try await store.notice()
        _ = try await post("two", key: "k", in: store)
        try await performDue(in: store)
        var sent = try await send(in: store)
        #expect(sent == ["replace: two", "ring: two"] || sent == ["replace: two"], "\(sent)")
        // The gateway has accepted the push. The next pass replaces it.
        try await settle([first[2]], in: store)
        for _ in 0..<3 {
            store.advance(.seconds(1))
            try await performDue(in: store)
            sent += try await send(in: store)
        }
        #expect(sent.sorted() == ["replace: two", "replace: two", "ring: two"])
        #expect(try traces(of: "one", in: store) == 0)
        #expect(try await store.stores.changes.nextDue() == nil)
        let collapse = try store.query(
            "SELECT DISTINCT collapse_id FROM push_queue WHERE device = \(store.value("SELECT device FROM push_queue WHERE message_id = \(first[0].id)")) AND payload LIKE 'replace%'"
        )
        #expect(collapse == [[first[0].apnsID]])
    }

    @Test(
        "Silent updates of a message are 15 s apart, the newest wins, and a ring is sent at once",
        arguments: StoreKind.allCases)
    func spacing(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        let message = try await post("0", key: "k", in: store).message
        try await queueFirst([message], in: store)
        #expect(try await send(in: store) == ["ring: 0", "ring: 0"])
        _ = try await post("1", key: "k", in: store)
        try await performDue(in: store)
        #expect(try await send(in: store) == ["replace: 1", "replace: 1"])
        for number in 2...4 {
            store.advance(.seconds(4))
            _ = try await post("\(number)", key: "k", in: store)
            try await performDue(in: store)
            #expect(try await send(in: store).isEmpty)
        }
        #expect(try await store.stores.changes.nextDue() == store.now() + .seconds(3))
        store.advance(.seconds(3))
        try await performDue(in: store)
        #expect(try await send(in: store) == ["replace: 4", "replace: 4"])
        _ = try await post("5", key: "k", renotify: true, in: store)
        // A silent edit does not swallow the ring.
        _ = try await post("6", key: "k", in: store)
        try await performDue(in: store)
        #expect(try await send(in: store) == ["ring: 6", "ring: 6"])
        // A member that joined later gets no silent update, but a ring.
        try await join(3...3, in: store)
        store.advance(.seconds(15))
        _ = try await post("7", key: "k", in: store)
        try await performDue(in: store)
        #expect(try await send(in: store) == ["replace: 7", "replace: 7"])
        store.advance(.seconds(15))
        try await change("k", .resolve(content("8"), renotify: true), in: store)
        try await performDue(in: store)
        #expect(try await send(in: store) == ["ring: 8", "ring: 8", "ring: 8"])
    }

    @Test("A device that waits does not void the interval of the others' updates", arguments: StoreKind.allCases)
    func spacingWhileWaiting(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...3, in: store)
        let message = try await post("0", key: "k", in: store).message
        try await queueFirst([message], in: store)
        let first = try await lease(in: store)
        // One push stays with its gateway.
        try await settle(Array(first.prefix(2)), in: store)
        var updates: [String] = []
        for number in 1...3 {
            _ = try await post("\(number)", key: "k", in: store)
            try await performDue(in: store)
            updates += try await send(in: store)
            store.advance(.seconds(4))
        }
        #expect(updates == ["replace: 1", "replace: 1"])
    }

    @Test("A message that was just resolved stays, however old it is", arguments: StoreKind.allCases)
    func resolvedLate(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await post("down", key: "k", in: store)
        store.advance(.seconds(100))
        try await change("k", .resolve(content("up")), in: store)
        func apply() async throws -> Int {
            try await store.stores.upkeep.applyRetention(messages: .seconds(50), queue: .seconds(50)).messages
        }
        try await performDue(in: store)
        #expect(try await apply() == 0)
        #expect(try await entries(in: store).last?.message?.text == "up")
        store.advance(.seconds(60))
        #expect(try await apply() == 1)
    }

    @Test(
        "A push that was sent by silence and comes back after an edit rings with the newest text",
        arguments: StoreKind.allCases, [false, true])
    func returned(kind: StoreKind, waits: Bool) async throws {
        let store = try await kind.make()
        // Devices that cannot replace a notification.
        for number in 1...2 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        let message = try await post("one", key: "k", in: store).message
        try await queueFirst([message], in: store)
        let first = try await store.lease()
        try await store.settle(first, Self.sent)
        _ = try await post("two", key: "k", in: store)
        try await performDue(in: store)
        #expect(try await store.stores.changes.nextDue() == nil)
        #expect(try await store.lease().isEmpty)
        // The gateway reports late that it has not processed one of the pushes.
        let result: Transition.Result =
            waits ? .waiting(until: store.now() + .seconds(5), reason: "Busy") : .due(.normal, reason: nil)
        let settled = try await store.stores.queue.settle(
            [
                Settlement(
                    first[0].id...first[0].id, Transition(result, adding: PushHistory(attempts: 1)),
                    overrulesSilence: true)
            ],
            app: .default)
        #expect(settled.map(\.count) == [1])
        var texts: [String] = []
        for _ in 0..<10 {
            try await performDue(in: store)
            try await store.notice()
            for push in try await store.lease() {
                if let end = PushLifeCycle().obstacle(to: push, at: store.now()) {
                    try await store.settle([push], end)
                } else {
                    #expect(push.address == first[0].address)
                    texts.append(String(decoding: push.payload ?? [], as: UTF8.self))
                    try await store.settle([push], Self.sent)
                }
            }
            store.advance(.seconds(1))
        }
        #expect(texts.count == 1 && texts.allSatisfy { $0.contains("two") }, "\(texts)")
        #expect(try await store.stores.changes.nextDue() == nil)
    }

    @Test(
        "A notification that a gateway may have got before the relay was killed is removed",
        arguments: StoreKind.allCases, [[MessageChangeRequest.Action.clear], [.delete], [.edit("two"), .delete]])
    func inDoubt(kind: StoreKind, actions: [MessageChangeRequest.Action]) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        let message = try await post("one", key: "k", in: store).message
        try await queueFirst([message], in: store)
        #expect(try await lease(in: store).count == 2)
        try await store.restart()
        for action in actions { try await change("k", action, in: store) }
        var sent: [String] = []
        for _ in 0..<5 {
            try await store.notice()
            sent += try await send(in: store)
            try await performDue(in: store)
            store.advance(.seconds(10))
        }
        #expect(sent == ["remove", "remove"])
        #expect(try await store.stores.changes.nextDue() == nil)
    }

    @Test("A push that SQLite's dispatchers may lease during the deletion gets a push that removes it")
    func leasedDuringDeletion() async throws {
        let store = try await StoreKind.sqlite.make()
        try await join(1...1, in: store)
        let message = try await post("one", key: "k", in: store).message
        try await queueFirst([message], in: store)
        try await change("k", .delete, in: store)
        var sent: [String] = []
        for _ in 0..<4 {
            sent += try await send(in: store)
            store.advance(.seconds(10))
            try await store.notice()
        }
        #expect(sent == ["remove"])
    }

    @Test(
        "A push that a gateway returns for a later retry does not delay the newest text", arguments: StoreKind.allCases)
    func retried(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        let message = try await post("one", key: "k", in: store).message
        try await queueFirst([message], in: store)
        let first = try await lease(in: store)
        _ = try await post("two", key: "k", in: store)
        try await performDue(in: store)
        try await settle(first, Transition(.waiting(until: store.now() + .seconds(3600), reason: "Busy")), in: store)
        store.advance(.seconds(1))
        try await performDue(in: store)
        #expect(try await send(in: store) == ["ring: two"])
    }

    @Test("The number of rings of a message that name it stays small", arguments: StoreKind.allCases)
    func ringing(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        let message = try await post("0", key: "k", in: store).message
        try await queueFirst([message], in: store)
        #expect(try await send(in: store).count == 2)
        let first = try store.query("SELECT message_id FROM push_queue ORDER BY message_id")
        for number in 1...20 {
            _ = try await post("\(number)", key: "k", renotify: true, in: store)
            try await performDue(in: store)
            #expect(try await send(in: store) == ["ring: \(number)", "ring: \(number)"])
        }
        let rows = "SELECT count(*) FROM push_queue WHERE chat_message = \(message)"
        #expect(try store.value(rows) <= 2 * 7)
        // The first push has the collapse id of the others.
        let names = first.map { $0[0] }.joined(separator: ", ")
        #expect(try store.value(rows + " AND message_id IN (\(names))") == 2)
    }

    @Test(
        "A ring that has expired is made up for, and one that an operator has cancelled is not",
        arguments: StoreKind.allCases)
    func lostRings(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...3, in: store)
        let message = try await post("one", key: "k", in: store).message
        try await queueFirst([message], in: store)
        let first = try await lease(in: store)
        try await settle([first[0]], Transition(.expired), in: store)
        try await settle([first[1]], in: store)
        store.stores.queue.release([first[2].id...first[2].id], lane: .normal, app: StoreFixture.changingApp)
        _ = try await store.stores.queue.lease(app: AppName("none"), lanes: [.normal], limit: 1)
        try await store.notice()
        #expect(try await store.queue().cancel(.ids([first[2].id]), progress: { _ in }) == 1)
        try await store.notice()
        _ = try await post("two", key: "k", in: store)
        try await performDue(in: store)
        let pushes = try await lease(in: store).filter { $0.obstacle == nil }
        let texts = Dictionary(
            pushes.map { ($0.address, String(decoding: $0.payload ?? [], as: UTF8.self)) }, uniquingKeysWith: max)
        #expect(texts == [first[0].address: "ring: two", first[1].address: "replace: two"])
    }

    @Test("A device that registers after its first push also gets the changes", arguments: StoreKind.allCases)
    func registeredLater(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        _ = try store.query("DELETE FROM devices")
        try await store.notice()
        let message = try await post("one", key: "k", in: store).message
        try await queueFirst([message], in: store)
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE device IS NULL AND member IS NOT NULL") == 2)
        #expect(try await send(in: store) == ["ring: one", "ring: one"])
        _ = try store.query("UPDATE push_queue SET device = NULL")
        try await join(1...1, in: store)
        #expect(try store.value("SELECT count(*) FROM devices") == 1)
        _ = try await post("two", key: "k", in: store)
        try await performDue(in: store)
        #expect(try await send(in: store) == ["replace: two", "replace: two"])
        try await change("k", .delete, in: store)
        #expect(try await send(in: store) == ["remove", "remove"])
    }

    @Test("A message whose round always fails does not delay the others", arguments: StoreKind.allCases)
    func failingRound(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        let messages = [
            try await post("one", key: "a", in: store).message, try await post("one", key: "b", in: store).message,
        ]
        try await queueFirst(messages, in: store)
        #expect(try await send(in: store).count == 2)
        let condition = "new.chat_message = \(messages[0])"
        let create =
            switch kind {
            case .sqlite:
                "CREATE TRIGGER t BEFORE INSERT ON push_queue WHEN \(condition) BEGIN SELECT RAISE(ABORT, 'no'); END"
            case .postgres:
                """
                CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$;
                CREATE TRIGGER t BEFORE INSERT ON push_queue_due FOR EACH ROW WHEN (\(condition)) EXECUTE FUNCTION t()
                """
            }
        for statement in create.split(separator: ";\n") { _ = try store.query(String(statement)) }
        for key in ["a", "b"] { _ = try await post("two", key: key, in: store) }
        for _ in 0..<5 { _ = try? await store.stores.changes.performDue() }
        #expect(try await send(in: store) == ["replace: two"])
        #expect(try await store.stores.changes.nextDue() != nil)
        _ = try store.query("DROP TRIGGER t" + (kind == .postgres ? " ON push_queue_due" : ""))
        store.advance(.seconds(15))
        try await performDue(in: store)
        #expect(try await send(in: store) == ["replace: two"])
    }

    @Test("The history of a device has all rings of changes, at their places", arguments: StoreKind.allCases)
    func deviceHistory(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        func plain(_ count: Int) async throws {
            for number in 1...count { _ = try await store.stores.rooms.post(StoreFixture.post(2, "plain \(number)")) }
        }
        let first = try await post("alert", key: "k", in: store).message
        try await queueFirst([first], in: store)
        try await plain(2)
        for number in 1...4 {
            try await settle(try await lease(in: store).filter { $0.obstacle == nil }, in: store)
            _ = try await post("alert \(number)", key: "k", renotify: true, in: store)
            try await performDue(in: store)
        }
        try await plain(110)
        try await settle(try await lease(in: store).filter { $0.obstacle == nil }, in: store)
        _ = try await post("last", key: "k", renotify: true, in: store)
        try await performDue(in: store)
        let device = try store.value(
            "SELECT device_id FROM devices WHERE device_token = '\(StoreFixture.token(1))'")
        let all = try store.query("SELECT message_id FROM push_queue WHERE device = \(device) ORDER BY message_id DESC")
            .compactMap { Int64($0[0]) }
        for limit in [1, 2, 3, 50, 500] {
            let found = try await Page.all { cursor in
                try await store.stores.devices.deliveries(to: Int64(device), before: cursor, limit: limit)
            }
            #expect(found.map(\.id) == all, "\(limit)")
        }
    }

    @Test("clear, resolve without a text and delete remove notifications", arguments: StoreKind.allCases)
    func removals(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        // A device that cannot remove a notification gets nothing.
        try await store.stores.rooms.join(StoreFixture.join(3))
        let actions: [MessageChangeRequest.Action] = [.clear, .resolve(nil), .delete]
        for (number, action) in actions.enumerated() {
            let message = try await post("\(number)", key: "k\(number)", in: store).message
            try await queueFirst([message], in: store)
            #expect(try await send(in: store) == ["ring: \(number)", "ring: \(number)"])
            let plain = try await store.lease()
            try await store.settle(plain, Self.sent)
            try await change("k\(number)", action, in: store)
            try await performDue(in: store)
            #expect(try await send(in: store) == ["remove", "remove"], "\(action)")
            #expect(try await store.lease().isEmpty)
        }
        let entry = try await entries(in: store).first { $0.message?.content.extras.change == .cleared }
        #expect(entry?.message?.content.extras.isRemoved == true && entry?.message?.text == "0")
        // After a removal, the newest form is shown again, without a ring.
        store.advance(.seconds(15))
        _ = try await post("again", key: "k0", in: store)
        try await performDue(in: store)
        #expect(try await send(in: store) == ["replace: again", "replace: again"])
    }

    @Test("A device has at most one push of a message that is not settled", arguments: StoreKind.allCases)
    func oneAtATime(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...3, in: store)
        let message = try await post("0", key: "k", in: store).message
        try await queueFirst([message], in: store)
        var leased = try await lease(in: store)
        for number in 1...20 {
            _ = try await post("\(number)", key: "k", renotify: number % 3 == 0, in: store)
            try await performDue(in: store)
            let next = try await lease(in: store)
            let held = leased.map(\.address)
            #expect(next.allSatisfy { !held.contains($0.address) || $0.obstacle != nil })
            #expect(
                next.allSatisfy {
                    $0.obstacle != nil
                        || $0.payload.map { String(decoding: $0, as: UTF8.self) }?.hasSuffix(": \(number)") == true
                })
            leased += next
            let settled = leased.prefix(2)
            leased = Array(leased.dropFirst(2))
            for push in settled {
                try await settle(
                    [push], push.obstacle == nil ? Self.sent : Transition(.cancelled(reason: "x")), in: store)
            }
            store.advance(.seconds(5))
        }
        try await settle(leased.filter { $0.obstacle == nil }, in: store)
        for _ in 0..<4 {
            store.advance(.seconds(15))
            try await performDue(in: store)
            _ = try await send(in: store)
        }
        #expect(try await store.stores.changes.nextDue() == nil)
        // Each device shows the newest text.
        let shown = try store.query(
            """
            SELECT q.payload FROM push_queue q WHERE q.state = 'sent' AND q.message_id = (
                SELECT max(p.message_id) FROM push_queue p WHERE p.device = q.device AND p.state = 'sent')
            """
        ).map { $0[0] }
        #expect(shown.count == 3 && shown.allSatisfy { $0.hasSuffix(": 20") }, "\(shown)")
        // The number of rows per device that name the message stays small.
        for number in 21...40 {
            store.advance(.seconds(15))
            _ = try await post("\(number)", key: "k", in: store)
            try await performDue(in: store)
            #expect(try await send(in: store).count == 3)
        }
        let rows = try store.value(
            "SELECT max(n) FROM (SELECT count(*) AS n FROM push_queue WHERE chat_message = \(message) AND silent = \(kind == .sqlite ? "1" : "true") GROUP BY device) c"
        )
        #expect(rows <= 6)
    }

    @Test("A round continues after a restart, in rooms of several steps", arguments: StoreKind.allCases)
    func restarted(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        // Members without a device count for the steps.
        let code = kind == .sqlite ? "printf('%040d', i)" : "lpad(i::text, 40, '0')"
        _ = try store.query(
            """
            INSERT INTO active_users (udid, nickname, secret_code)
            WITH RECURSIVE n (i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 1000 + \(RoomSize.step))
            SELECT \(code), 'n', 'room' FROM n
            """)
        try await join(3...3, in: store)
        let message = try await post("one", key: "k", in: store).message
        // Nothing has been queued when the process ends.
        try await store.restart()
        try await queueFirst([message], in: store)
        #expect(try await send(in: store) == ["ring: one", "ring: one", "ring: one"])
        _ = try await post("two", key: "k", in: store)
        #expect(try await store.stores.changes.performDue())
        try await store.restart()
        try await store.notice()
        try await performDue(in: store)
        #expect(try await send(in: store) == ["replace: two", "replace: two", "replace: two"])
    }

    @Test("A room with a new code keeps keys and changes", arguments: StoreKind.allCases)
    func recoded(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        let first = try await post("one", key: "k", in: store)
        let edited = try await post("two", key: "k", in: store)
        let code = SecretCode(stored: "new")
        _ = try await store.stores.moderation.recode(Self.room, to: code, by: Self.moderator)
        #expect(await refusal { _ = try await post("three", key: "k", in: store) }?.code == .forbidden)
        #expect(await refusal { try await change("k", .clear, in: store) }?.code == .notFound)
        #expect(try await post("three", key: "k", room: code, in: store).message == first.message)
        let found = try await store.stores.feed.entries(in: code, after: try #require(edited.change), limit: 9)
        #expect(found.map(\.message?.text) == ["three"])
    }

    @Test("Simultaneous changes leave one newest state, and numbers in order", arguments: StoreKind.allCases)
    func races(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        let message = try await post("start", key: "k", in: store).message
        try await queueFirst([message], in: store)
        _ = try await send(in: store)
        let stores = store.stores
        let texts = try (0..<40).map { try content("text \($0)") }
        let reader = Task {
            // A reader that continues after the last number it has seen misses nothing.
            var (last, numbers) = (MessageID(0), [MessageID]())
            var isDeleted = false
            while !isDeleted {
                let found = try await stores.feed.entries(in: Self.room, after: last, limit: 10)
                numbers += found.map(\.id)
                last = found.last?.id ?? last
                for case .change(let change, _) in found where change.kind == .deleted { isDeleted = true }
            }
            return numbers
        }
        let author = author()
        let numbers = try await withThrowingTaskGroup(of: MessageID?.self) { group in
            for (index, text) in texts.enumerated() {
                group.addTask {
                    let name: MessageReference = index % 2 == 0 ? .key(MessageKey(stored: "k")) : .id(message)
                    do {
                        let action: MessageChangeRequest.Action =
                            index == 30 ? .delete : index % 7 == 0 ? .clear : .edit(text)
                        return try await stores.changes.change(
                            MessageChangeRequest(name, by: author, action, idempotencyKey: "race \(index)")
                        ).change
                    } catch let error as ChatError where error.code == .notFound {
                        return nil
                    }
                }
                group.addTask {
                    _ = try await stores.changes.performDue()
                    return nil
                }
            }
            var numbers: [MessageID] = []
            for try await number in group { if let number { numbers.append(number) } }
            return numbers
        }
        #expect(Set(numbers).count == numbers.count)
        let seen = try await reader.value
        #expect(seen == seen.sorted() && Set(seen).count == seen.count)
        let found = try await entries(in: store)
        #expect(found.count == 1 && found[0].id == numbers.max())
        guard case .change(let change, nil) = found[0] else {
            Issue.record("not deleted")
            return
        }
        #expect(change.kind == .deleted && change.message == message)
        #expect(try traces(of: "text", in: store) == 0 && traces(of: "start", in: store) == 0)
        #expect(try await send(in: store).allSatisfy { $0 == "remove" })
    }
}

extension MessageChangeRequest.Action {
    fileprivate static func edit(_ text: String) -> Self { .edit(MessageContent(stored: text)) }
}

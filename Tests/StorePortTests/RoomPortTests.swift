import ChatDomain
import Foundation
import Testing

@testable import TestStores

/// Tests the requirements of `docs/stores.md` for rooms and moderation in every store, through the ports alone.
@Suite("Rooms in every store", .timeLimit(.minutes(2)))
struct RoomPortTests {
    private static let moderator = Moderator(name: "admin", address: "192.0.2.9")

    private func code(_ text: String = "room") -> SecretCode { SecretCode(stored: text) }

    private func join(_ numbers: ClosedRange<Int>, _ room: String = "room", in store: TestedStore) async throws {
        for number in numbers { try await store.stores.rooms.join(StoreFixture.join(number, room)) }
    }

    @discardableResult
    private func post(_ number: Int, _ text: String = "hi", in store: TestedStore) async throws -> MessageID {
        try await store.stores.rooms.post(StoreFixture.post(number, text)).message
    }

    private func program(
        _ text: String, room: String = "room", key: String? = nil, writer: String = "token:1",
        title: String? = nil, link: String? = nil, priority: UInt8? = nil, sound: String? = nil, isUrgent: Bool = false,
        extras: String? = nil
    ) throws -> PostRequest {
        PostRequest(
            member: MemberID(stored: writer),
            program: PostRequest.Program(nickname: Nickname(stored: "cron"), room: code(room)),
            content: try MessageContent(
                parsing: text, title: title, link: link, priority: priority, sound: sound, isUrgent: isUrgent,
                extras: MessageExtras(stored: extras)),
            idempotencyKey: key)
    }

    private func members(_ room: String = "room", in store: TestedStore) async throws -> [MemberRecord] {
        try await store.stores.records.members(of: code(room), after: nil, limit: 100).items
    }

    private func names(_ room: String = "room", in store: TestedStore) async throws -> [String] {
        try await members(room, in: store).map(\.nickname)
    }

    private func id(_ number: Int, in store: TestedStore, _ room: String = "room") async throws -> Int64 {
        try #require(try await members(room, in: store).first { $0.nickname == "name\(number)" }).id
    }

    private func texts(for number: Int, in store: TestedStore) async throws -> [String] {
        try await store.stores.rooms.messages(for: StoreFixture.member(number), since: nil, limit: 100).messages
            .map(\.text)
    }

    /// Returns the text of the error that the call throws. `nil` if it throws none.
    private func refusal(_ call: () async throws -> Void) async -> String? {
        do {
            try await call()
            return nil
        } catch let error as ChatError {
            return error.code == .notJoined ? "not joined" : error.message
        } catch {
            return "\(error)"
        }
    }

    /// Runs the store's upkeep during `body`. When it ends, all activity is stored.
    private func withUpkeep(_ store: TestedStore, _ body: () async throws -> Void) async throws {
        let upkeep = store.stores.upkeep
        let watch = Task { await upkeep.watch() }
        let result: Result<Void, any Error>
        do { result = .success(try await body()) } catch { result = .failure(error) }
        watch.cancel()
        await watch.value
        try result.get()
    }

    // MARK: - History

    @Test(
        "A code with invisible characters at its ends names the visible room, unless its own room exists",
        arguments: StoreKind.allCases)
    func invisibleEnds(kind: StoreKind) async throws {
        let store = try await kind.make()
        let records = store.stores.records
        _ = try await store.stores.rooms.post(try program("x", room: "old\u{200B}"))
        for (given, meant) in [
            ("tea\u{200B}", "tea"), ("old\u{200B}", "old\u{200B}"), ("old\u{FEFF}", "old"), ("tea", "tea"),
        ] {
            #expect(try await records.room(named: code(given)) == code(meant))
        }
        await #expect(throws: ChatError.self) { try await records.room(named: code("\u{3164}")) }
        #expect(try await records.exists(code("old\u{200B}")))
        #expect(try await !records.exists(code("old")))
    }

    @Test(
        "With the history `all`, a new member reads earlier messages; otherwise only later ones",
        arguments: StoreKind.allCases)
    func historyChoice(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, records) = (store.stores.rooms, store.stores.records)
        // The choice is made before the first member joins.
        try await records.edit(code("ops"), RoomEdit(history: .set(.all)))
        for room in ["ops", "tea"] { _ = try await rooms.post(try program("before", room: room)) }
        try await join(1...1, "ops", in: store)
        try await join(2...2, "tea", in: store)
        for room in ["ops", "tea"] { _ = try await rooms.post(try program("after", room: room)) }
        #expect(try await texts(for: 1, in: store) == ["before", "after"])
        #expect(try await texts(for: 2, in: store) == ["after"])
        #expect(try await store.stores.feed.position(of: StoreFixture.member(1)).historyFrom == 0)
        func choices() async throws -> [RoomHistory?] {
            try await records.rooms(startingWith: "", after: nil, limit: 10).rooms.map(\.choices.history)
        }
        #expect(try await choices() == [.all, nil])
        // A new choice applies to members who join after it.
        try await records.edit(code("ops"), RoomEdit(history: .remove))
        try await records.edit(code("tea"), RoomEdit(history: .set(.joined)))
        #expect(try await choices() == [nil, .joined])
        try await join(3...3, "ops", in: store)
        #expect(try await texts(for: 3, in: store) == [])
        try await join(1...1, "ops", in: store)
        #expect(try await texts(for: 1, in: store) == ["before", "after"])
    }

    // MARK: - Titles

    @Test(
        "A title is stored beside the history, reaches the members, and moves with the room to a new code",
        arguments: StoreKind.allCases)
    func titles(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (records, feed) = (store.stores.records, store.stores.feed)
        let title = try RoomTitle(parsing: " Küche & Bar ")
        #expect(
            try await records.edit(code(), RoomEdit(history: .set(.all), title: .set(title)))
                == RoomChoices(history: .all, title: title))
        try await join(1...1, in: store)
        func titleForMember() async throws -> String? {
            try await store.stores.rooms.messages(for: StoreFixture.member(1), since: nil, limit: 9).title?.text
        }
        #expect(try await titleForMember() == "Küche & Bar")
        try await post(1, in: store)
        #expect(try await titleForMember() == "Küche & Bar")
        #expect(try await feed.summary(of: code()) == RoomSummary(members: 1, title: title))
        let rooms = try await records.rooms(startingWith: "", after: nil, limit: 9).rooms
        #expect(rooms.map(\.choices) == [RoomChoices(history: .all, title: title)])
        #expect(try await store.stores.clients.room(code()).title == title)
        _ = try await store.stores.moderation.recode(code(), to: code("new"), by: Self.moderator)
        #expect(try await titleForMember() == "Küche & Bar")
        #expect(try await records.edit(code("new"), RoomEdit(history: .remove)) == RoomChoices(title: title))
        #expect(try await records.edit(code("new"), RoomEdit(title: .remove)) == RoomChoices())
        #expect(try await titleForMember() == nil)
        #expect(try await feed.summary(of: code("new")) == RoomSummary(members: 1))
    }

    @Test("The feed reports a room that gets a title", arguments: StoreKind.allCases)
    func titleChange(kind: StoreKind) async throws {
        let store = try await kind.make()
        let feed = store.stores.feed
        var signals = feed.roomChanges().makeAsyncIterator()
        try await store.stores.records.edit(code("tea"), RoomEdit(title: .set(try RoomTitle(parsing: "Tea"))))
        try await withUpkeep(store) {
            while true {
                let changes = await feed.takeRoomChanges()
                if changes.memberships.contains(code("tea")) || changes.isUnknown { break }
                _ = await signals.next()
            }
        }
    }

    @Test("A room that only has a title is kept until the title is removed", arguments: StoreKind.allCases)
    func keepsTitle(kind: StoreKind) async throws {
        let store = try await kind.make()
        let title = try RoomTitle(parsing: "Tea")
        try await store.stores.records.edit(code("tea"), RoomEdit(title: .set(title)))
        _ = try await store.stores.upkeep.applyRetention(messages: .seconds(1), queue: .seconds(1))
        #expect(try await store.stores.feed.summary(of: code("tea")).title == title)
        try await store.stores.records.edit(code("tea"), RoomEdit(title: .remove))
        _ = try await store.stores.upkeep.applyRetention(messages: .seconds(1), queue: .seconds(1))
        #expect(try store.query("SELECT count(*) FROM rooms") == [["0"]])
    }

    @Test(
        "A credential posts only while its member is in its room, also with a key that was used there",
        arguments: StoreKind.allCases)
    func onlyRoom(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, "tea", in: store)
        var request = try StoreFixture.post(1, "hi", key: "once")
        request.onlyRoom = code("tea")
        let first = try await store.stores.rooms.post(request)
        #expect(try await store.stores.rooms.post(request).message == first.message)
        // The member changes its room between the check of the credential and the post.
        try await join(1...1, "coffee", in: store)
        #expect(await refusal { _ = try await store.stores.rooms.post(request) } == "not joined")
        request.idempotencyKey = nil
        #expect(await refusal { _ = try await store.stores.rooms.post(request) } == "not joined")
        #expect(try store.query("SELECT count(*) FROM messages") == [["1"]])
    }

    @Test(
        "Members see the origins of webhooks that get their room's events, each once and only on the first page",
        arguments: StoreKind.allCases)
    func receivers(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        let (webhooks, moderator) = (store.stores.webhooks, Moderator(name: "ann", address: nil))
        func add(_ host: String, _ room: String?, events: Set<WebhookEventKind>? = nil, bot: String? = nil) async throws
        {
            _ = try await webhooks.create(
                WebhookSettings(
                    url: "https://\(host).example/secret?key=1", room: room.map { try SecretCode(parsing: $0) },
                    events: events, bot: bot.map { try Nickname(parsing: $0) }),
                secret: .random(), by: moderator)
        }
        try await add("bot", "room", bot: "Bot")
        try await add("all", nil)
        try await add("all", nil, events: [.joined])
        try await add("other", "other")
        try await add("failures", "room", events: [.pushFailed])
        try await add("paused", "room")
        let paused = try #require(try await webhooks.webhooks().last)
        _ = try await webhooks.change(
            paused.id, to: WebhookEdit(settings: paused.settings, state: .paused), by: moderator)
        func page(after cursor: Int64?) async throws -> RoomMemberPage {
            try await store.stores.records.members(for: StoreFixture.member(1), after: cursor, limit: 1)
        }
        let first = try await page(after: nil)
        #expect(
            first.receivers.map(\.origin) == ["https://bot.example", "https://all.example", "https://paused.example"])
        #expect(first.receivers.map(\.bot) == ["Bot", nil, nil])
        #expect(try await page(after: first.members.next).receivers.isEmpty)
    }

    // MARK: - Search, and the members as members see them

    private func found(
        _ text: String, in scope: MessageSearch.Scope, _ store: TestedStore
    ) async throws -> [String] {
        let search = MessageSearch(try SearchText(parsing: text), in: scope)
        return try await store.stores.records.search(search, limit: 9).items.map(\.message.text)
    }

    @Test(
        "A search finds texts in any case, newest first, only in the room and where the member may read",
        arguments: StoreKind.allCases)
    func search(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        try await join(3...3, "other", in: store)
        try await post(1, "Äpfel before", in: store)
        try await join(2...2, in: store)
        try await post(3, "äpfel elsewhere", in: store)
        for text in ["two ÄPFEL", "pears", "ПРИВЕТ", "100% of a_b\\c"] { try await post(1, text, in: store) }
        _ = try await store.stores.rooms.post(program("ripe", title: "Der Apfel"))
        let (first, second) = (try StoreFixture.member(1), try StoreFixture.member(2))
        #expect(try await found("äpfel", in: .member(first), store) == ["two ÄPFEL", "Äpfel before"])
        #expect(try await found("äpfel", in: .member(second), store) == ["two ÄPFEL"])
        #expect(try await found("äpfel", in: .room(code()), store) == ["two ÄPFEL", "Äpfel before"])
        #expect(try await found("привет", in: .member(second), store) == ["ПРИВЕТ"])
        #expect(try await found("APFEL", in: .member(second), store) == ["ripe"])
        #expect(try await found("A_B\\", in: .member(second), store) == ["100% of a_b\\c"])
        #expect(try await found("%e", in: .member(second), store) == [])
        #expect(try await found("pears", in: .room(code("nowhere")), store) == [])
        #expect(await refusal { _ = try await found("a", in: .member(StoreFixture.member(9)), store) } == "not joined")
    }

    @Test("A deleted message is never found", arguments: StoreKind.allCases)
    func searchDeleted(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        let (member, message) = (try StoreFixture.member(1), try await post(1, "secret", in: store))
        #expect(try await found("secret", in: .member(member), store) == ["secret"])
        try await store.stores.moderation.deleteOwn(message, of: member)
        #expect(try await found("secret", in: .member(member), store) == [])
    }

    @Test("A search continues where the page before it ended", arguments: StoreKind.allCases)
    func searchPages(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        for number in 1...5 { try await post(1, number == 3 ? "other" : "word \(number)", in: store) }
        let records = store.stores.records
        let text = try SearchText(parsing: "WORD")
        let first = try await records.search(MessageSearch(text, in: .room(code())), limit: 2)
        #expect(first.items.map(\.message.text) == ["word 5", "word 4"])
        #expect(first.next != nil)
        let next = MessageSearch(text, in: .room(code()), before: first.next)
        let second = try await records.search(next, limit: 2)
        #expect(second.items.map(\.message.text) == ["word 2", "word 1"] && second.next == nil)
    }

    @Test("A search examines a limited number of messages, and the next one continues", arguments: StoreKind.allCases)
    func searchWindow(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await store.stores.rooms.post(program("needle"))
        try hay(MessageSearch.mostExamined, in: store)
        let text = try SearchText(parsing: "needle")
        func search(before: MessageID?) async throws -> Page<MessageRecord> {
            let search = MessageSearch(text, in: .room(code()), before: before, within: .seconds(600))
            return try await store.stores.records.search(search, limit: 9)
        }
        let first = try await search(before: nil)
        #expect(first.items.isEmpty && first.next != nil)
        let second = try await search(before: first.next)
        #expect(second.items.map(\.message.text) == ["needle"] && second.next == nil)
    }

    @Test("A search without time examines one step, and the next one continues", arguments: StoreKind.allCases)
    func searchTime(kind: StoreKind) async throws {
        let store = try await kind.make()
        for text in ["needle", "needle 2"] { _ = try await store.stores.rooms.post(program(text)) }
        try hay(MessageSearch.step, in: store)
        _ = try await store.stores.rooms.post(program("needle 3"))
        var (found, pages, cursor) = ([String](), 0, MessageID?.none)
        repeat {
            let search = MessageSearch(
                try SearchText(parsing: "needle"), in: .room(code()), before: cursor, within: .zero)
            let page = try await store.stores.records.search(search, limit: 9)
            found += page.items.map(\.message.text)
            (pages, cursor) = (pages + 1, page.next)
        } while cursor != nil
        #expect(found == ["needle 3", "needle 2", "needle"] && pages == 2)
    }

    /// Inserts messages that no search here looks for.
    private func hay(_ count: Int, in store: TestedStore) throws {
        _ = try store.query(
            """
            INSERT INTO messages (secret_code, udid, nickname, text)
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(count))
            SELECT 'room', 'admin', 'n', 'hay' FROM n
            """)
    }

    @Test(
        "A member sees the others with a coarse time, and the programs whose messages it may read",
        arguments: StoreKind.allCases)
    func people(kind: StoreKind) async throws {
        let store = try await kind.make()
        let records = store.stores.records
        try await join(1...1, in: store)
        _ = try await store.stores.rooms.post(program("early", writer: "admin"))
        try await join(2...3, in: store)
        try await join(4...4, "other", in: store)
        _ = try await store.stores.rooms.post(program("one"))
        _ = try await store.stores.rooms.post(program("two"))
        let page = try await records.members(for: StoreFixture.member(2), after: nil, limit: 2)
        #expect(page.members.items.map(\.nickname) == ["name1", "name2"])
        #expect(page.members.items.map(\.isOwn) == [false, true])
        let now = store.now().seconds
        #expect(page.members.items.allSatisfy { $0.lastSeen == Timestamp(seconds: now - now % 3600) })
        #expect(page.programs.map(\.name) == ["cron"] && page.programs.map(\.isOperator) == [false])
        let rest = try await records.members(for: StoreFixture.member(2), after: page.members.next, limit: 2)
        #expect(rest.members.items.map(\.nickname) == ["name3"] && rest.members.next == nil && rest.programs.isEmpty)
        let first = try await records.members(for: StoreFixture.member(1), after: nil, limit: 9)
        #expect(first.programs.map(\.isOperator) == [false, true])
        #expect(
            await refusal { _ = try await records.members(for: StoreFixture.member(9), after: nil, limit: 9) }
                == "not joined")
    }

    // MARK: - Members and messages

    @Test("A message goes to everyone else of the room, once each", arguments: StoreKind.allCases)
    func recipients(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...3, in: store)
        try await join(4...4, "elsewhere", in: store)
        try await store.stores.rooms.join(StoreFixture.join(5, tokenless: true))
        try await join(6...6, "Room", in: store)
        #expect(try await store.stores.rooms.post(StoreFixture.post(1, "hi")).queued == 2)
        let pushes = try await store.lease()
        #expect(pushes.map(\.address) == [.token(try StoreFixture.token(2)), .token(try StoreFixture.token(3))])
        #expect(
            pushes.map { $0.payload.map { String(decoding: $0, as: UTF8.self) } }
                == Array(repeating: #"{"aps":{"alert":"name1: hi","sound":"default"}}"#, count: 2))
        #expect(pushes.allSatisfy { $0.isOurs && $0.lane == .normal && $0.obstacle == nil })
    }

    @Test("A client that has not joined can neither post, update nor read", arguments: StoreKind.allCases)
    func strangers(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, stranger, token) = (store.stores.rooms, try StoreFixture.member(9), try StoreFixture.token(9))
        #expect(await refusal { _ = try await rooms.post(StoreFixture.post(9, "hi")) } == "not joined")
        #expect(await refusal { _ = try await rooms.post(StoreFixture.post(9, "hi", key: "k")) } == "not joined")
        #expect(
            await refusal { try await rooms.update(stranger, token: token, client: ClientInfo(), user: nil) }
                == "not joined")
        #expect(await refusal { _ = try await rooms.messages(for: stranger, since: 7, limit: 9) } == "not joined")
        #expect(await refusal { _ = try await rooms.receipt(of: 1, for: stranger) } == "not joined")
        #expect(await refusal { _ = try await store.stores.feed.position(of: stranger) } == "not joined")
        #expect(try await !rooms.leave(stranger))
    }

    @Test("A token belongs to the last member that brought it, within its app", arguments: StoreKind.allCases)
    func tokens(kind: StoreKind) async throws {
        let store = try await kind.make()
        let rooms = store.stores.rooms
        try await rooms.join(StoreFixture.join(1, token: 7))
        try await rooms.join(StoreFixture.join(2, token: 7))
        try await join(3...3, in: store)
        #expect(try await rooms.post(StoreFixture.post(3, "one push")).queued == 1)
        #expect(try await rooms.post(StoreFixture.post(1, "still in the room")).queued == 2)
        try await rooms.update(
            StoreFixture.member(1), token: StoreFixture.token(7), client: ClientInfo(), user: nil)
        #expect(try await members(in: store).map { $0.token == nil } == [false, true, false])
        try await rooms.update(
            StoreFixture.member(2), token: StoreFixture.token(7), app: .app(AppName("other")),
            client: ClientInfo(), user: nil)
        #expect(try await members(in: store).map { $0.token == nil } == [false, false, false])
        // A browser may be in several rooms.
        try await rooms.join(StoreFixture.join(4, token: 8, app: "webpush"))
        try await rooms.join(StoreFixture.join(5, "other", token: 8, app: "webpush"))
        #expect(try await members(in: store).map { $0.token == nil } == [false, false, false, false])
    }

    @Test(
        "A browser's push has the number of unread messages in all its rooms, once it has read any",
        arguments: StoreKind.allCases)
    func unread(kind: StoreKind) async throws {
        let store = try await kind.make()
        for (number, room) in [(1, "a"), (2, "b")] {
            try await store.stores.rooms.join(StoreFixture.join(number, room, token: 7, app: "webpush"))
        }
        try await store.stores.rooms.join(StoreFixture.join(3, "a", app: "webpush"))
        try await join(4...4, "a", in: store)
        try await join(5...5, "b", in: store)
        func leased(_ app: AppName = .web) async throws -> [Int64?] {
            let pushes = try await store.stores.queue.lease(app: app, lanes: PushLane.allCases, limit: 100).pushes
            try await store.settle(pushes, Transition(.sent, adding: PushHistory(attempts: 1)), app: app)
            return pushes.map(\.unread)
        }
        try await post(4, in: store)
        #expect(try await leased() == [nil, nil], "No member has fetched anything, and some clients never do")
        try await withUpkeep(store) { _ = try await texts(for: 1, in: store) }
        try await post(5, in: store)
        try await post(4, in: store)
        // The browser's own message in `a` does not count as unread.
        try await post(1, in: store)
        #expect(try await leased() == [2, 2, nil, nil])
        #expect(try await leased(.default) == [nil], "An app's push has no count")
        // The store counts when it leases the push, also after a restart, when it reads rows.
        try await post(5, in: store)
        try await store.restart()
        #expect(try await leased() == [3])
        try await withUpkeep(store) {
            for number in 1...2 { _ = try await texts(for: number, in: store) }
        }
        for _ in 0..<3 { try await post(5, in: store) }
        #expect(try await leased() == [3, 3, 3])
        for _ in 0..<100 { try await post(5, in: store) }
        #expect(try await leased() == [Int64?](repeating: 99, count: 100), "The count has a limit")
    }

    @Test(
        "A phone's push has the number of unread messages, once the phone has fetched any since it joined",
        arguments: StoreKind.allCases)
    func badge(kind: StoreKind) async throws {
        let store = try await kind.make()
        let app = StoreFixture.http2App
        for number in 1...2 { try await store.stores.rooms.join(StoreFixture.join(number, app: app.text)) }
        try await join(3...3, in: store)
        func leased(of app: AppName = app) async throws -> [Int64?] {
            let pushes = try await store.stores.queue.lease(app: app, lanes: PushLane.allCases, limit: 100).pushes
            try await store.settle(pushes, Transition(.sent, adding: PushHistory(attempts: 1)), app: app)
            return pushes.sorted { "\($0.address!)" < "\($1.address!)" }.map(\.unread)
        }
        try await post(3, in: store)
        try await post(3, in: store)
        #expect(try await leased() == [nil, nil, nil, nil], "The tutorial's app never fetches")
        // Of the two phones, only the first fetches.
        try await withUpkeep(store) { _ = try await texts(for: 1, in: store) }
        try await post(3, in: store)
        #expect(try await leased() == [1, nil])
        // The store counts when it leases the push, also after a restart, when it reads rows.
        try await post(3, in: store)
        try await store.restart()
        #expect(try await leased() == [2, nil])
        // A notification has no count.
        _ = try await store.stores.notifications.send(
            NotificationRequest(
                audience: .tokens([try StoreFixture.token(1), try StoreFixture.token(2)]), app: app,
                payload: #"{"aps":{"badge":7}}"#))
        #expect(try await leased() == [nil, nil])
        // A phone that joins another room has fetched nothing there.
        try await store.stores.rooms.join(StoreFixture.join(1, "b", app: app.text))
        try await join(4...4, "b", in: store)
        try await post(4, in: store)
        #expect(try await leased() == [nil])
        try await post(1, in: store)
        #expect(try await leased(of: .default) == [nil], "Nothing counts for an app that does not show the number")
    }

    @Test(
        "Every field of a message stays in its pushes and in every list, in small and in large rooms",
        arguments: StoreKind.allCases, [2, 12])
    func contents(kind: StoreKind, members: Int) async throws {
        let store = try await kind.make()
        let (rooms, records) = (store.stores.rooms, store.stores.records)
        for number in 1...members {
            try await rooms.join(StoreFixture.join(number, app: StoreFixture.http2App.text))
        }
        let requests = [
            try program(
                "fire", key: "k", title: "T", link: "https://e.example/", sound: "bell", isUrgent: true,
                extras: #"{"later":[1]}"#),
            try program("drill", priority: 10),
        ]
        var ids: [MessageID] = []
        for request in requests { ids.append(try await rooms.post(request).message) }
        try await withUpkeep(store) {
            for id in ids {
                while try await records.progress(of: id).isQueueing { try await Task.sleep(for: .milliseconds(10)) }
            }
        }
        let pushes = try await store.stores.queue.lease(
            app: StoreFixture.http2App, lanes: PushLane.allCases, limit: 100
        ).pushes
        #expect(pushes.count == 2 * members && pushes.allSatisfy { $0.priority == 10 })
        for push in pushes {
            let text = String(decoding: try #require(push.payload), as: UTF8.self)
            for part in [
                #""interruption-level":"time-sensitive""#, #""title":"T""#, #""link":"https://e.example/""#,
                #""sound":"bell""#,
            ] { #expect(text.contains(part) == (push.message == ids[0]), "\(text)") }
        }
        try await rooms.join(StoreFixture.join(members + 1))
        let page = try await rooms.messages(for: StoreFixture.member(1), since: nil, limit: 10).messages
        #expect(page.map(\.content) == requests.map(\.content) && page[0].content.priority == 10)
        #expect(try await rooms.post(requests[0]).isRepeat)
        #expect(page.map(\.content.extras.stored) == [#"{"later":[1]}"#, nil])
        let all = try await records.messages(of: code(), .oldestFirst(after: 0), limit: 9).items
        #expect(all.map(\.message) == page)
        #expect(try await records.progress(of: ids[0]).message.message == page[0])
        let search = MessageSearch(try SearchText(parsing: "fire"), in: .room(code()))
        #expect(try await records.search(search, limit: 9).items == [all[0]])
        let read = try await store.stores.clients.messages(
            ClientReading(room: code(), after: 0, client: "admin"), before: nil, limit: 9)
        #expect(read.map(\.message) == page.reversed())
        #expect(try await store.stores.feed.messages(in: code(), after: 0, limit: 9) == page)
    }

    @Test("Only its subscription changes a browser's device, never a token", arguments: StoreKind.allCases)
    func browserUpdate(kind: StoreKind) async throws {
        let store = try await kind.make()
        let rooms = store.stores.rooms
        try await rooms.join(StoreFixture.join(1, token: 7, app: "webpush"))
        try await rooms.join(StoreFixture.join(2, token: 8, app: "webpush"))
        func update(_ app: AppChoice) async throws {
            try await rooms.update(
                StoreFixture.member(2), token: StoreFixture.token(7), app: app, client: ClientInfo(), user: nil)
        }
        #expect(
            await refusal { try await update(.current(otherwise: nil)) } == ChatError.browserNeedsSubscription.message)
        let (first, second) = (try StoreFixture.token(7).description, try StoreFixture.token(8).description)
        #expect(try await members(in: store).map(\.token) == [first, second])
        try await update(.app(.web))
        #expect(try await members(in: store).map(\.token) == [nil, first])
    }

    @Test(
        "A new token without an app's name stays in the member's app, unless that app is for other phones",
        arguments: StoreKind.allCases)
    func phoneUpdate(kind: StoreKind) async throws {
        let store = try await kind.make()
        let rooms = store.stores.rooms
        let android = try DeviceToken(parsing: "cAAAAAAAAAAAAAAAAAAAA1:APA91bHexampleexample")
        let (iPhone, firebase) = (try StoreFixture.token(7), StoreFixture.firebaseApp)
        try await rooms.join(StoreFixture.join(1, app: "other"))
        func app(after token: DeviceToken, otherwise: AppName?) async throws -> AppName? {
            try await rooms.update(
                StoreFixture.member(1), token: token, app: .current(otherwise: otherwise), client: ClientInfo(),
                user: nil)
            return try await members(in: store).first?.app
        }
        #expect(try await app(after: iPhone, otherwise: .default) == AppName("other"))
        #expect(try await app(after: android, otherwise: firebase) == firebase)
        #expect(try await app(after: android, otherwise: AppName("second")) == firebase)
        #expect(
            await refusal { _ = try await app(after: iPhone, otherwise: nil) } == "Invalid token: "
                + TokenKind.installation.rule)
        #expect(try await members(in: store).map(\.token) == [android.description])
        #expect(try await app(after: iPhone, otherwise: .default) == .default)
    }

    @Test("Joining again keeps the membership; joining another room leaves the first", arguments: StoreKind.allCases)
    func rejoin(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        try await post(2, "first", in: store)
        try await store.stores.rooms.join(StoreFixture.join(1, name: "renamed"))
        #expect(try await texts(for: 1, in: store) == ["first"])
        #expect(try await names(in: store) == ["renamed", "name2"])
        try await join(1...1, "other", in: store)
        #expect(try await texts(for: 1, in: store).isEmpty)
        #expect(try await store.stores.rooms.post(StoreFixture.post(2, "alone")).queued == 0)
    }

    @Test("History comes in order and in pages, and marks the reader's own messages", arguments: StoreKind.allCases)
    func history(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, reader) = (store.stores.rooms, try StoreFixture.member(2))
        try await join(1...2, in: store)
        for number in 0..<5 { try await post(number % 2 + 1, "m\(number)", in: store) }
        let first = try await rooms.messages(for: reader, since: nil, limit: 3)
        #expect(first.messages.map(\.text) == ["m0", "m1", "m2"])
        #expect(first.messages.map { $0.sender == reader } == [false, true, false])
        #expect(first.messages[0].nickname == "name1" && first.messages[0].sentAt == store.now())
        let second = try await rooms.messages(for: reader, since: first.next, limit: 3)
        #expect(second.messages.map(\.text) == ["m3", "m4"])
        #expect(
            try await rooms.messages(for: reader, since: second.next, limit: 3)
                == MessagePage(messages: [], next: second.next, room: code()))
    }

    @Test(
        "A position has the room, the start of the member's history, and the room's last message",
        arguments: StoreKind.allCases)
    func places(kind: StoreKind) async throws {
        let store = try await kind.make()
        let feed = store.stores.feed
        try await join(1...1, in: store)
        let before = try await post(1, in: store)
        try await join(2...2, in: store)
        let after = try await post(1, "c", in: store)
        let place = try await feed.position(of: StoreFixture.member(2))
        #expect(place == RoomPosition(code: code(), historyFrom: before, last: after))
        #expect(try await feed.position(of: StoreFixture.member(1)).historyFrom == 0)
        #expect(try await feed.summary(of: code()) == RoomSummary(members: 2))
        #expect(try await feed.summary(of: code("nowhere")) == RoomSummary(members: 0))
        let page = try await feed.messages(in: code(), after: before, limit: 1)
        #expect(try page.map(\.text) == ["c"] && page.map(\.sender) == [StoreFixture.member(1)])
    }

    @Test(
        "A known key with another room or another field is rejected, and each writer has its own keys",
        arguments: StoreKind.allCases)
    func keys(kind: StoreKind) async throws {
        let store = try await kind.make()
        let rooms = store.stores.rooms
        try await join(1...2, in: store)
        let first = try await rooms.post(StoreFixture.post(1, "hi", key: "k"))
        #expect(
            try await rooms.post(StoreFixture.post(1, "hi", key: "k"))
                == PostReceipt(message: first.message, time: first.time, isRepeat: true, queued: 0))
        #expect(try await !rooms.post(StoreFixture.post(2, "hi", key: "k")).isRepeat)
        let done = try await rooms.post(program("done", key: "k"))
        #expect(try await rooms.post(program("done", key: "k")).isRepeat)
        #expect(try await rooms.post(program("done", key: "k", writer: "token:2")).message != done.message)
        for other in [
            try StoreFixture.post(1, "other", key: "k"), try program("other", key: "k"),
            try program("done", room: "other", key: "k"),
            try program("done", key: "k", title: "T"), try program("done", key: "k", link: "https://e.example/"),
            try program("done", key: "k", priority: 5), try program("done", key: "k", sound: "bell"),
            try program("done", key: "k", isUrgent: true), try program("done", key: "k", extras: #"{"later":1}"#),
        ] {
            let error = await #expect(throws: ChatError.self) { try await rooms.post(other) }
            #expect(error?.code == .idempotencyConflict)
        }
        #expect(try await store.lease().count == 1 + 1 + 2 + 2)
    }

    @Test(
        "All members of a room get a push, before or after the response, but no member who joins later",
        arguments: StoreKind.allCases, [1, 8, 9, 10, 40, 130])
    func sizes(kind: StoreKind, others: Int) async throws {
        let store = try await kind.make()
        try await join(1...others + 1, in: store)
        let receipts = [
            try await store.stores.rooms.post(StoreFixture.post(2, "hi")),
            try await store.stores.rooms.post(
                program("done", title: "T", link: "https://example.org/", priority: 5, sound: "")),
        ]
        #expect(receipts.map(\.queued) == [others > 8 ? 0 : others, others + 1 > 8 ? 0 : others + 1])
        try await store.stores.rooms.join(StoreFixture.join(others + 2))
        try await withUpkeep(store) {
            for receipt in receipts {
                while try await store.stores.records.progress(of: receipt.message).isQueueing {
                    try await Task.sleep(for: .milliseconds(10))
                }
            }
        }
        let pushes = try await store.lease(1000)
        let (chat, programs) = (pushes.filter { $0.priority == nil }, pushes.filter { $0.priority == 5 })
        #expect(Set(chat.map(\.address)).count == others && chat.count == others)
        #expect(Set(programs.map(\.address)).count == others + 1 && programs.count == others + 1)
        #expect(pushes.allSatisfy { $0.lane == (others > PushLifeCycle.bulkFrom ? .bulk : .normal) })
        let payload = #"{"aps":{"alert":{"title":"T","body":"cron: done"}},"link":"https://example.org/"}"#
        #expect(programs.allSatisfy { $0.payload == Array(payload.utf8) })
    }

    @Test(
        "Programs' messages are in a room's history, with title and link, even if the room is empty",
        arguments: StoreKind.allCases)
    func programs(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, records) = (store.stores.rooms, store.stores.records)
        let before = try await rooms.post(program("before")).message
        try await join(1...1, in: store)
        let after = try await rooms.post(program("after", title: "Title", link: "https://example.org/")).message
        let page = try await rooms.messages(for: StoreFixture.member(1), since: nil, limit: 10)
        #expect(page.messages.map(\.id) == [after] && page.messages.map(\.content.title) == ["Title"])
        #expect(page.messages[0].content.link == "https://example.org/" && page.messages[0].nickname == "cron")
        // The operator's programs read all messages, in both directions.
        var all = try await records.messages(of: code(), .oldestFirst(after: 0), limit: 1)
        #expect(all.items.map(\.message.text) == ["before"] && all.next == before)
        all = try await records.messages(of: code(), .oldestFirst(after: before), limit: 1)
        #expect(all.items.map(\.message.id) == [after])
        let other = try await rooms.post(program("x", room: "a")).message
        let list = try await records.rooms(startingWith: "", after: nil, limit: 9).rooms
        #expect(list.map(\.code) == [code("a"), code()] && list.map(\.members) == [0, 1])
        #expect(list.map(\.lastMessage) == [other, after])
    }

    @Test("Concurrent posts share transactions, and each returns its own result", arguments: StoreKind.allCases)
    func together(kind: StoreKind) async throws {
        let store = try await kind.make()
        let rooms = store.stores.rooms
        try await join(1...5, in: store)
        let results = try await withThrowingTaskGroup(of: (Int, MessageID?).self) { group in
            for number in 0..<100 {
                group.addTask {
                    // Every tenth post is from a stranger.
                    let post = try StoreFixture.post(number % 10 == 9 ? 900 : number % 5 + 1, "m\(number)")
                    do {
                        return (number, try await rooms.post(post).message)
                    } catch {
                        return (number, nil)
                    }
                }
            }
            return try await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
        }
        let page = try await rooms.messages(for: StoreFixture.member(1), since: nil, limit: 200)
        #expect(page.messages.count == 90 && page.messages.map(\.id) == page.messages.map(\.id).sorted())
        for message in page.messages { #expect(results[Int(message.text.dropFirst()) ?? -1] == message.id) }
        #expect(try await store.lease(1000).count == 90 * 4)
    }

    // MARK: - Records

    @Test(
        "Rooms with a prefix are listed in the order of their codes, in pages", arguments: StoreKind.allCases)
    func rooms(kind: StoreKind) async throws {
        let store = try await kind.make()
        let records = store.stores.records
        for (number, room) in ["b", "ba", "a", "bé", "b😀", "c", "B", "ba"].enumerated() {
            try await store.stores.rooms.join(StoreFixture.join(number + 1, room))
        }
        let said = try await post(2, in: store)
        let empty = try await store.stores.rooms.post(program("x", room: "bb")).message
        var (found, cursor) = ([RoomRecord](), SecretCode?.none)
        repeat {
            let page = try await records.rooms(startingWith: "b", after: cursor, limit: 2)
            #expect(page.rooms.count <= 2)
            found += page.rooms
            cursor = page.next
        } while cursor != nil
        #expect(found.map(\.code.text) == ["b", "ba", "bb", "bé", "b😀"])
        #expect(found.map(\.members) == [1, 2, 0, 1, 1])
        #expect(found.map(\.lastMessage) == [nil, said, empty, nil, nil] && found[1].lastMessageAt == store.now())
        #expect(try await records.rooms(startingWith: "", after: nil, limit: 100).rooms.count == 8)
        #expect(try await records.rooms(startingWith: "bc", after: nil, limit: 100).rooms.isEmpty)
        #expect(try await records.rooms(startingWith: "b", after: code("a"), limit: 1).rooms.map(\.code.text) == ["b"])
    }

    @Test(
        "A message's progress counts its readers, including those who have left since", arguments: StoreKind.allCases
    )
    func progress(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (records, feed) = (store.stores.records, store.stores.feed)
        try await join(1...3, in: store)
        try await store.stores.rooms.join(StoreFixture.join(4, tokenless: true))
        let first = try await post(1, "häh", in: store)
        try await join(5...5, in: store)
        let second = try await post(1, "and?", in: store)
        var progress = try await records.progress(of: first)
        #expect(progress.message.message.text == "häh" && progress.message.message.nickname == "name1")
        #expect(progress.counts == [.pending: 2] && !progress.isQueueing)
        // Neither the writer nor a member who joined later counts.
        #expect(progress.readers == 3 && progress.fetched == 0)
        #expect(try await records.progress(of: second).readers == 4)
        try await withUpkeep(store) {
            _ = try await store.stores.rooms.messages(for: StoreFixture.member(2), since: nil, limit: 1)
            // An older message that is fetched later does not lower the position.
            for message in [second, first] { feed.handedOut(message, to: try StoreFixture.member(4)) }
        }
        // Nor does it lower the stored position.
        let fetchedAt = store.now()
        store.advance(.seconds(5))
        try await withUpkeep(store) { feed.handedOut(first, to: try StoreFixture.member(4)) }
        progress = try await records.progress(of: first)
        #expect(progress.fetched == 2 && progress.fetchedBy == ["name2", "name4"])
        #expect(try await records.progress(of: second).fetchedBy == ["name4"])
        var page = try await records.deliveries(ofMessage: first, after: nil, limit: 1)
        #expect(page.items.map(\.isFetched) == [true] && page.items.map(\.delivery.message) == [first])
        page = try await records.deliveries(ofMessage: first, after: page.next, limit: 9)
        #expect(page.items.map(\.isFetched) == [false] && page.next == nil)
        let members = try await records.members(of: code(), after: nil, limit: 4)
        #expect(members.items.map(\.fetchedTo) == [nil, first, nil, second])
        #expect(members.items[1].fetchedAt == fetchedAt)
        #expect(members.items.map { $0.token == nil } == [false, false, false, true])
        #expect(try await records.members(of: code(), after: members.next, limit: 4).items.map(\.nickname) == ["name5"])
        // Activity that is not stored when the member leaves is kept. The member has not read messages from the time of
        // its absence.
        feed.handedOut(second, to: try StoreFixture.member(2))
        _ = try await store.stores.rooms.leave(StoreFixture.member(2))
        let third = try await post(1, in: store)
        try await store.stores.rooms.join(StoreFixture.join(2, name: "Bo"))
        #expect(try await records.progress(of: second).fetchedBy == ["name2", "name4"])
        #expect(try await records.progress(of: third).readers == 3)
        #expect(try await self.members(in: store).last?.fetchedTo == second)
        let newest = try await records.messages(of: code(), .newestFirst(before: nil), limit: 2)
        #expect(newest.items.map(\.message.id) == [third, second])
        let reach = try await records.reach(of: newest.items)
        #expect(reach.map(\.readers) == [3, 4] && reach.map(\.fetched) == [0, 2] && reach.map(\.sent) == [0, 0])
        let oldest = try await records.messages(of: code(), .newestFirst(before: newest.next), limit: 9)
        #expect(oldest.items.map(\.message.id) == [first] && oldest.next == nil)
        await #expect(throws: ChatError.self) { try await records.progress(of: 9_999) }
    }

    @Test(
        "A phone reports a shown message that its member may read, and the message stays unread",
        arguments: StoreKind.allCases)
    func shown(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, records) = (store.stores.rooms, store.stores.records)
        let member = try StoreFixture.member(2)
        try await join(1...1, in: store)
        let before = try await post(1, "before", in: store)
        try await join(2...3, in: store)
        try await join(4...4, "other", in: store)
        let (first, second) = (try await post(1, "one", in: store), try await post(1, "two", in: store))
        let elsewhere = try await post(4, "elsewhere", in: store)
        try await withUpkeep(store) {
            // A report that arrives late does not lower the position.
            for message in [second, first] { try await rooms.shown(message, to: member) }
            let page = try await rooms.messages(for: StoreFixture.member(3), since: nil, limit: 9, isPeek: true)
            #expect(page.messages.map(\.id) == [first, second])
        }
        for message in [before, elsewhere, 9_999] {
            #expect(await refusal { try await rooms.shown(message, to: member) } == "There is no such message")
        }
        #expect(await refusal { try await rooms.shown(first, to: StoreFixture.member(9)) } == "not joined")
        let members = try await records.members(of: code(), after: nil, limit: 9).items
        #expect(members.map(\.shownTo) == [nil, second, nil] && members.map(\.fetchedTo) == [nil, nil, nil])
        var progress = try await records.progress(of: first)
        #expect(progress.readers == 2 && progress.shown == 1 && progress.fetched == 0)
        // A member that has fetched a message has seen it.
        try await withUpkeep(store) {
            _ = try await rooms.messages(for: StoreFixture.member(3), since: nil, limit: 1)
        }
        progress = try await records.progress(of: first)
        #expect(progress.shown == 2 && progress.fetched == 1)
        #expect(try await records.progress(of: second).shown == 1)
    }

    @Test(
        "Only the writer gets a receipt, for its last message in its present room, with the readers' names",
        arguments: StoreKind.allCases)
    func receipts(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, feed, writer) = (store.stores.rooms, store.stores.feed, try StoreFixture.member(1))
        try await join(1...3, in: store)
        try await join(4...4, "other", in: store)
        try await post(1, "one", in: store)
        let last = try await post(1, "two", in: store)
        try await post(2, "me", in: store)
        try await withUpkeep(store) {
            _ = try await rooms.messages(for: StoreFixture.member(2), since: nil, limit: 5)
        }
        let pushes = try await store.lease()
        try await store.settle(
            Array(pushes.filter { $0.message == last }.suffix(1)), Transition(.sent, adding: PushHistory(attempts: 1)))
        let receipt = Receipt(message: last, reached: 1, fetched: 1, readers: ["name2"])
        #expect(try await rooms.receipt(of: last, for: writer) == receipt)
        #expect(try await feed.receipts(in: code(), for: [writer, StoreFixture.member(4)]) == [writer: receipt])
        for stranger in [4, 2, 9] {
            await #expect(throws: ChatError.self) {
                try await rooms.receipt(of: last, for: StoreFixture.member(stranger))
            }
        }
        // The message has no receipt while the writer is in another room, nor after it comes back.
        try await join(1...1, "other", in: store)
        await #expect(throws: ChatError.self) { try await rooms.receipt(of: last, for: writer) }
        try await join(1...1, in: store)
        #expect(try await feed.receipts(in: code(), for: [writer]) == [:])
        try await join(5...52, in: store)
        #expect(
            try await feed.receipts(in: code(), for: [StoreFixture.member(2)]) == [:], "no receipts in a large room")
    }

    // MARK: - Moderation

    @Test(
        "A removed member is out at once, its waiting pushes of the room are not sent, and it may come back",
        arguments: StoreKind.allCases)
    func remove(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, moderation) = (store.stores.rooms, store.stores.moderation)
        try await join(1...3, in: store)
        try await join(4...4, "other", in: store)
        try await post(1, "before", in: store)
        try await moderation.remove(id(2, in: store), by: Self.moderator)
        #expect(try await names(in: store) == ["name1", "name3"])
        #expect(await refusal { _ = try await rooms.post(StoreFixture.post(2, "no")) } == "not joined")
        try await join(2...2, "other", in: store)
        try await post(4, "in another room", in: store)
        try await store.restart()
        #expect(try await store.lease().map(\.obstacle) == [.memberRemoved, nil, nil])
        try await join(2...2, in: store)
        try await post(1, "after", in: store)
        #expect(try await store.lease().map(\.obstacle) == [nil, nil])
        await #expect(throws: ChatError.self) { try await store.stores.moderation.remove(9_999, by: Self.moderator) }
        let records = try await store.stores.moderation.records(before: nil, limit: 9).items
        #expect(records.map(\.action) == ["remove"] && records[0].room == code() && records[0].subject == "name2")
        #expect(records[0].actor == "admin" && records[0].address == "192.0.2.9" && records[0].at == store.now())
    }

    @Test(
        "A banned member is out of its room, by udid and by device, until the ban ends", arguments: StoreKind.allCases)
    func ban(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, moderation) = (store.stores.rooms, store.stores.moderation)
        try await join(1...2, in: store)
        let until = store.now() + .seconds(60)
        let request = BanRequest(.member(try await id(2, in: store), everywhere: false), endsAt: until, reason: "spam")
        let ban = try await moderation.ban(request, by: Self.moderator)
        #expect(ban.name == "name2" && ban.room == code() && ban.endsAt == until && !ban.isClosed && !ban.hasEnded)
        #expect(ban.device == "aaaaaaaa…" && ban.reason == "spam" && ban.createdAt == store.now())
        #expect(try await names(in: store) == ["name1"])
        let text = "You are banned from this room until \(until.rfc3339)"
        for join in [
            try StoreFixture.join(2), try StoreFixture.join(2, token: 7), try StoreFixture.join(2, tokenless: true),
            // Another udid with the same device, in any app.
            try StoreFixture.join(7, token: 2), try StoreFixture.join(7, token: 2, app: "other"),
        ] {
            #expect(await refusal { try await rooms.join(join) } == text)
        }
        // A known limit: a client with another udid and without a token.
        try await rooms.join(StoreFixture.join(7, tokenless: true))
        let (member, banned) = (try StoreFixture.member(7), try StoreFixture.token(2))
        #expect(
            await refusal { try await rooms.update(member, token: banned, client: ClientInfo(), user: nil) } == text)
        #expect(try await members(in: store).map { $0.token == nil } == [false, true])
        try await join(2...2, "other", in: store)
        store.advance(.seconds(60))
        try await join(2...2, in: store)
        #expect(try await moderation.bans(in: nil, before: nil, limit: 9).items.map(\.hasEnded) == [true])
        // The ban has already ended.
        await #expect(throws: ChatError.self) { try await moderation.endBan(ban.id, by: Self.moderator) }
    }

    @Test(
        "A ban of a udid or device removes its members from the rooms that it covers",
        arguments: StoreKind.allCases)
    func bansOfMembers(kind: StoreKind) async throws {
        let store = try await kind.make()
        let moderation = store.stores.moderation
        func enter() async throws {
            try await join(1...1, "a", in: store)
            // A browser in two rooms, as two members.
            try await store.stores.rooms.join(StoreFixture.join(2, "a", token: 5, app: "webpush"))
            try await store.stores.rooms.join(StoreFixture.join(3, "b", token: 5, app: "webpush"))
        }
        func ban(_ subject: BanRequest.Subject) async throws -> Ban {
            try await moderation.ban(BanRequest(subject), by: Self.moderator)
        }
        try await enter()
        var made = try await ban(.device(StoreFixture.token(5), room: code("a")))
        #expect(made.name == "name2")
        #expect(try await names("a", in: store) == ["name1"])
        #expect(try await names("b", in: store) == ["name3"])
        try await moderation.endBan(made.id, by: Self.moderator)
        try await enter()
        made = try await ban(.member(id(2, in: store, "a"), everywhere: true))
        #expect(made.room == nil)
        #expect(try await names("a", in: store) == ["name1"])
        #expect(try await names("b", in: store).isEmpty)
        try await moderation.endBan(made.id, by: Self.moderator)
        try await enter()
        made = try await ban(.udid(StoreFixture.member(1), room: code("b")))
        #expect(try await names("a", in: store).count == 2, "it is in another room")
        #expect(made.name == nil && made.device == nil)
        made = try await ban(.udid(StoreFixture.member(1), room: nil))
        #expect(try await names("a", in: store) == ["name2"] && made.name == "name1")
        // The ban is by udid alone, so the device may join with another udid.
        try await store.stores.rooms.join(StoreFixture.join(9, "a", token: 1))
        await #expect(throws: ChatError.self) { try await ban(.member(9_999, everywhere: false)) }
    }

    @Test("A ban of a device takes back the waiting pushes of a member that has left", arguments: StoreKind.allCases)
    func banWithoutMember(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...3, in: store)
        try await post(1, in: store)
        _ = try await store.stores.rooms.leave(StoreFixture.member(2))
        let ban = try await store.stores.moderation.ban(
            BanRequest(.device(StoreFixture.token(2), room: nil)), by: Self.moderator)
        #expect(ban.name == nil)
        // A store may remember the content of new pushes for a moment. The lease must not use it.
        #expect(try await store.lease().map(\.obstacle) == [.memberRemoved, nil])
    }

    @Test(
        "An error names the longest of several bans, a lifted ban does not count, and bans are listed",
        arguments: StoreKind.allCases)
    func several(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (moderation, member) = (store.stores.moderation, try StoreFixture.member(1))
        func ban(_ seconds: Int?, everywhere: Bool = false) async throws -> Int64 {
            let end = seconds.map { store.now() + .seconds($0) }
            let subject = BanRequest.Subject.udid(member, room: everywhere ? nil : code())
            return try await moderation.ban(BanRequest(subject, endsAt: end), by: Self.moderator).id
        }
        let bans = [try await ban(10), try await ban(100), try await ban(nil), try await ban(5, everywhere: true)]
        func refused() async -> String? { await refusal { try await join(1...1, in: store) } }
        #expect(await refused() == "You are banned from this room")
        try await moderation.endBan(bans[2], by: Self.moderator)
        #expect(await refused() == "You are banned from this room until \((store.now() + .seconds(100)).rfc3339)")
        try await moderation.endBan(bans[1], by: Self.moderator)
        try await moderation.endBan(bans[0], by: Self.moderator)
        #expect(await refused() == "You are banned from every room until \((store.now() + .seconds(5)).rfc3339)")
        let first = try await moderation.bans(in: nil, before: nil, limit: 3)
        #expect(
            first.items.map(\.id) == [bans[3], bans[2], bans[1]] && first.items.map(\.hasEnded) == [false, true, true])
        #expect(try await moderation.bans(in: nil, before: first.next, limit: 3).items.map(\.id) == [bans[0]])
        #expect(
            try await moderation.bans(in: code(), before: nil, limit: 9).items.map(\.id) == [bans[2], bans[1], bans[0]])
        let records = try await moderation.records(before: nil, limit: 2)
        let rest = try await moderation.records(before: records.next, limit: 9)
        #expect(
            (records.items + rest.items).map(\.action) == ["unban", "unban", "unban", "ban", "ban", "ban", "ban"])
        #expect(rest.next == nil)
        // Another program changes the bans.
        let changed = [try await ban(10), try await ban(100)]
        _ = try store.query("UPDATE bans SET time_ends = '2000-01-01' WHERE ban_id IN (\(bans[3]), \(changed[1]))")
        #expect(await refused() == "You are banned from this room until \((store.now() + .seconds(10)).rfc3339)")
        _ = try store.query("DELETE FROM bans WHERE ban_id = \(changed[0])")
        #expect(await refused() == nil)
        _ = try store.query("INSERT INTO bans (udid) VALUES ('\(member.text)')")
        #expect(await refused() == "You are banned from every room")
    }

    @Test(
        "A closed room has no members and rejects joins and posts until it is opened or the time is over",
        arguments: StoreKind.allCases)
    func close(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, moderation) = (store.stores.rooms, store.stores.moderation)
        try await join(1...2, in: store)
        try await join(3...3, "other", in: store)
        try await post(1, "before", in: store)
        let known = try await rooms.post(program("known", key: "k"))
        let until = store.now() + .seconds(60)
        let closed = try await moderation.ban(BanRequest(.room(code()), endsAt: until), by: Self.moderator)
        #expect(closed.isClosed)
        #expect(try await names(in: store).isEmpty)
        #expect(try await names("other", in: store) == ["name3"])
        #expect(try await store.lease().map(\.obstacle) == [.memberRemoved, .memberRemoved, .memberRemoved])
        let text = "This room is closed until \(until.rfc3339)"
        #expect(await refusal { try await join(9...9, in: store) } == text)
        #expect(await refusal { _ = try await rooms.post(program("no")) } == text)
        #expect(try await rooms.post(program("known", key: "k")).message == known.message)
        #expect(await refusal { try await post(1, "no", in: store) } == "not joined")
        #expect(try store.value("SELECT count(*) FROM messages") == 2)
        _ = try await rooms.post(program("yes", room: "other"))
        try await moderation.endBan(closed.id, by: Self.moderator)
        try await join(9...9, in: store)
        _ = try await rooms.post(program("again"))
        #expect(try await store.lease().map(\.obstacle) == [nil, nil])
        #expect(try await moderation.records(before: nil, limit: 9).items.map(\.action) == ["open", "close"])
        _ = try await moderation.ban(
            BanRequest(.room(code()), endsAt: store.now() + .seconds(60)), by: Self.moderator)
        store.advance(.seconds(60))
        _ = try await rooms.post(program("over"))
    }

    @Test("A deleted message is in no history, and its waiting pushes are cancelled", arguments: StoreKind.allCases)
    func delete(kind: StoreKind) async throws {
        let store = try await kind.make()
        let moderation = store.stores.moderation
        try await join(1...3, in: store)
        try await join(11...30, "large", in: store)
        let messages = [try await post(1, "one", in: store), try await post(1, "two", in: store)]
        let large = try await post(11, "three", in: store)
        for message in messages + [large] { try await moderation.delete(message, by: Self.moderator) }
        #expect(try await texts(for: 2, in: store).isEmpty)
        let page = try await store.stores.records.messages(of: code(), .newestFirst(before: nil), limit: 9)
        #expect(page.items.isEmpty)
        await #expect(throws: ChatError.self) { try await store.stores.records.progress(of: messages[0]) }
        try await withUpkeep(store) { try await Task.sleep(for: .milliseconds(100)) }
        #expect(try await store.lease().isEmpty)
        #expect(store.stores.metrics.outcomes().first { $0.state == .cancelled }?.total ?? 0 >= 4)
        await #expect(throws: ChatError.self) { try await moderation.delete(large, by: Self.moderator) }
        let records = try await moderation.records(before: nil, limit: 9).items
        #expect(records.map(\.subject) == [large, messages[1], messages[0]].map { "\($0)" })
        // A reader that was at the newest message continues there, and is not taken for a reader of another database.
        #expect(try await store.stores.feed.position(of: StoreFixture.member(2)).last >= messages[1])
    }

    @Test("A message that is deleted during its fan-out leaves no push to send", arguments: StoreKind.allCases)
    func deleteDuringFanout(kind: StoreKind) async throws {
        let store = try await kind.make()
        let stores = store.stores
        try await join(1...2, in: store)
        let (steps, digits) = (4, String(repeating: "a", count: 60))
        _ = try store.query(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(steps * RoomSize.step))
            INSERT INTO active_users (udid, device_token, nickname, secret_code)
            SELECT '\(digits.prefix(28))' || (1000 + i), '\(digits)' || (1000 + i), 'n', 'room' FROM n
            """)
        try await withUpkeep(store) {
            for round in 0..<2 * steps {
                let message = try await post(1, in: store)
                // Each message is deleted after another step of its fan-out, and the last one after the end.
                let enough = round % steps * RoomSize.step
                let reached = """
                    SELECT 1 WHERE \(enough) <= (SELECT count(*) FROM push_queue WHERE chat_message = \(message))
                        OR EXISTS (SELECT 1 FROM messages WHERE message_id = \(message) AND fanout_after IS NULL)
                    """
                let end = ContinuousClock.now + .seconds(60)
                while try store.query(reached).isEmpty { try #require(ContinuousClock.now < end) }
                try await stores.moderation.delete(message, by: Self.moderator)
            }
        }
        #expect(try store.value("SELECT count(*) FROM messages") == 0)
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE state <> 'cancelled' OR payload <> ''") == 0)
        #expect(try await store.lease().isEmpty)
        let cancelled = try store.value("SELECT count(*) FROM push_queue")
        #expect(cancelled > steps * RoomSize.step)
        #expect(
            stores.metrics.outcomes().first { $0.reason == PushLifeCycle.messageDeleted }?.total == cancelled)
    }

    @Test(
        "A member deletes its own message of its current room, and no other one", arguments: StoreKind.allCases)
    func deleteOwn(kind: StoreKind) async throws {
        let store = try await kind.make()
        let moderation = store.stores.moderation
        try await join(1...3, in: store)
        let (own, other) = (try await post(1, "mine", in: store), try await post(2, "not mine", in: store))
        let notOwn = "You have written no such message in this room"
        func refused(_ message: MessageID, of number: Int) async -> String? {
            await refusal { try await moderation.deleteOwn(message, of: StoreFixture.member(number)) }
        }
        #expect(await refused(other, of: 1) == notOwn)
        #expect(await refused(999, of: 1) == notOwn)
        #expect(await refused(own, of: 9) == "not joined")
        // A message in a room that the member has left stays.
        let elsewhere = try await post(3, "from before", in: store)
        try await join(3...3, "elsewhere", in: store)
        #expect(await refused(elsewhere, of: 3) == notOwn)
        #expect(try await texts(for: 2, in: store) == ["mine", "not mine", "from before"])

        try await moderation.deleteOwn(own, of: StoreFixture.member(1))
        #expect(try await texts(for: 2, in: store) == ["not mine", "from before"])
        #expect(await refused(own, of: 1) == notOwn)
        #expect(
            try await !store.lease().contains { push in
                push.payload.map { String(decoding: $0, as: UTF8.self).contains("name1: mine") } ?? false
            })
        #expect(store.stores.metrics.outcomes().first { $0.reason == PushLifeCycle.messageDeleted }?.total == 2)
        #expect(try await moderation.records(before: nil, limit: 9).items.isEmpty)
    }

    private static let nobody: @Sendable (Int) -> Void = { _ in }

    /// Returns the states of the pushes with their reasons, in the order of the push ids.
    private func states(in store: TestedStore) throws -> [String] {
        try store.query("SELECT state, coalesce(reason, '') FROM push_queue ORDER BY message_id").map {
            $0.joined(separator: " ").trimmingCharacters(in: .whitespaces)
        }
    }

    @Test(
        "All pushes of a deleted message are settled and lose their text, whatever an outcome or script does later",
        arguments: StoreKind.allCases)
    func deletedPushes(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...8, in: store)
        let message = try await post(1, "a secret", in: store)
        let pushes = try await store.lease()
        #expect(pushes.count == 7)
        let attempt = PushHistory(attempts: 1)
        let wait = Transition(.waiting(until: store.now() + .seconds(60), reason: "Busy"), adding: attempt)
        try await store.settle(Array(pushes[0...1]), Transition(.sent, adding: attempt))
        try await store.settle([pushes[2]], Transition(.failed(reason: "Bad"), adding: attempt))
        try await store.settle([pushes[3]], wait)
        try await store.settle([pushes[4]], Transition(.expired))

        // The last two pushes are with a gateway.
        try await store.stores.moderation.delete(message, by: Self.moderator)
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE payload <> ''") == 0)
        let deleted = "cancelled MessageDeleted"
        #expect(try states(in: store) == ["sent", "sent", "failed Bad", deleted, "expired Expired", deleted, deleted])
        let queue = try store.queue()
        #expect(try await queue.retry(.matching(QueueFilter()), progress: Self.nobody) == 0)
        #expect(try await queue.retry(.ids(pushes.map(\.id)), progress: Self.nobody) == 0)
        #expect(try await queue.push(pushes[2].id)?.hasNoContent == true)

        func settle(_ push: QueuedPush, _ transition: Transition, late: Bool = false) async throws -> Int {
            let ids = push.id...push.id
            return try await store.stores.queue.settle(
                [Settlement(ids, transition, overrulesSilence: late)], app: .default)[0].count
        }
        // A gateway returns one push and accepts the other. It reports a push that its silence had accepted as lost.
        #expect(try await settle(pushes[5], wait) == 0)
        #expect(try await settle(pushes[6], Transition(.sent, adding: attempt)) == 1)
        #expect(try await settle(pushes[0], wait, late: true) == 1)
        _ = try store.query(
            "UPDATE push_queue SET state = 'pending', not_before = \(store.now().milliseconds) WHERE state = 'failed'")
        store.advance(.seconds(60))
        try await store.notice()
        let again = try await store.lease()
        #expect(Set(again.map(\.id)) == [pushes[0].id, pushes[2].id])
        for push in again {
            #expect(push.obstacle == .messageDeleted)
            let end = try #require(PushLifeCycle().obstacle(to: push, at: store.now()))
            try await store.settle([push], end)
        }
        #expect(try states(in: store) == [deleted, "sent", deleted, deleted, "expired Expired", deleted, "sent"])
        try await store.restart()
        #expect(try await store.lease().isEmpty)
    }

    @Test("A message that retention removes keeps its pushes and their text", arguments: StoreKind.allCases)
    func retainedPushes(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...3, in: store)
        try await post(1, in: store)
        try await store.settle([try #require(try await store.lease(1).first)], Transition(.failed(reason: "Bad")))
        store.advance(.seconds(100))
        let ages = (messages: Duration.seconds(10), queue: Duration.seconds(1000))
        #expect(try await store.stores.upkeep.applyRetention(messages: ages.messages, queue: ages.queue).messages == 1)
        #expect(try await store.queue().retry(.matching(QueueFilter()), progress: Self.nobody) == 1)
        try await store.restart()
        let pushes = try await store.lease()
        #expect(pushes.map(\.obstacle) == [nil, nil])
        #expect(pushes.allSatisfy { $0.payload?.isEmpty == false })
    }

    @Test(
        "A deleted message does not keep skip_unchanged from seeing the same earlier notification",
        arguments: StoreKind.allCases)
    func skippedDespiteDeletion(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        let request = NotificationRequest(
            audience: .all, payload: #"{"aps":{"alert":"news"}}"#, skipsUnchanged: true)
        let sent = Transition(.sent, adding: PushHistory(attempts: 1))
        _ = try await store.stores.notifications.send(request)
        try await store.settle(try await store.lease(), sent)
        let message = try await post(1, in: store)
        try await store.settle(try await store.lease(), sent)
        try await store.stores.moderation.delete(message, by: Self.moderator)
        let second = try await store.stores.notifications.send(request)
        #expect(try await store.stores.notifications.notification(second.id).skipped == 2)
    }

    // MARK: - Rows of rooms

    @Test(
        "A room has a row from its first join or message until nothing is left of it; its id is never reused",
        arguments: StoreKind.allCases)
    func rows(kind: StoreKind) async throws {
        let store = try await kind.make()
        func rows() throws -> [[String]] {
            try store.query("SELECT room_id, secret_code FROM rooms ORDER BY room_id")
        }
        func retain() async throws {
            _ = try await store.stores.upkeep.applyRetention(messages: .seconds(3600), queue: .seconds(3600))
        }
        try await join(1...2, in: store)
        try await join(1...1, in: store)
        _ = try await store.stores.rooms.post(program("hi", room: "ops"))
        _ = try await store.stores.rooms.post(program("again", room: "ops"))
        for room in ["left", "banned", "chosen"] { try await join(3...3, room, in: store) }
        try await post(2, in: store)
        _ = try await store.stores.moderation.ban(
            BanRequest(.udid(StoreFixture.member(9), room: code("banned"))), by: Self.moderator)
        _ = try store.query("UPDATE rooms SET history = 'all' WHERE secret_code = 'chosen'")
        _ = try await store.stores.rooms.leave(StoreFixture.member(3))
        #expect(try rows().map { $0[1] } == ["room", "ops", "left", "banned", "chosen"])
        #expect(try rows().map { $0[0] } == ["1", "2", "3", "4", "5"])
        try await retain()
        #expect(try rows().map { $0[1] } == ["room", "ops", "banned", "chosen"])
        store.advance(.seconds(7200))
        try await retain()
        #expect(try rows().map { $0[1] } == ["room", "banned", "chosen"])
        try await join(3...3, "left", in: store)
        #expect(try rows().last == ["6", "left"])
        // Rooms that get no row, because all ids are used up, still work.
        _ = try store.query("INSERT INTO rooms (room_id, secret_code) VALUES (2147483647, 'last')")
        if kind != .sqlite { _ = try store.query("SELECT setval('rooms_room_id_seq', 2147483647)") }
        try await join(4...4, "beyond", in: store)
        _ = try await store.stores.rooms.post(program("beyond", room: "further"))
        #expect(try rows().last == ["2147483647", "last"])
        #expect(try await names("beyond", in: store) == ["name4"])
    }

    @Test("A ban of only an address closes no room", arguments: StoreKind.allCases)
    func addressAlone(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try store.query("INSERT INTO bans (secret_code, address) VALUES ('room', '198.51.100.1')")
        try await join(1...1, in: store)
        _ = try await store.stores.rooms.post(program("hi"))
        #expect(
            try await store.stores.moderation.bans(in: code(), before: nil, limit: 9).items.map(\.isClosed) == [false])
    }

    // MARK: - A new code

    private func recode(_ old: String = "room", to new: String = "new", in store: TestedStore) async throws
        -> RecodedRoom
    {
        try await store.stores.moderation.recode(code(old), to: code(new), by: Self.moderator)
    }

    @Test(
        "A new code moves members, history, tokens and bans, but not banned members, and closes the old code",
        arguments: StoreKind.allCases)
    func newCode(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, moderation) = (store.stores.rooms, store.stores.moderation)
        try await join(1...5, in: store)
        try await join(6...6, "other", in: store)
        let message = try await post(1, "before", in: store)
        _ = try await rooms.post(program("known", key: "k"))
        _ = try await rooms.messages(for: StoreFixture.member(5), since: nil, limit: 9)
        _ = try await rooms.leave(StoreFixture.member(5))
        let token = try await store.stores.tokens.create(
            AccessToken.name("cron"), AccessGrant(scopes: [.post], room: code()), expiresAt: nil)
        _ = try await moderation.ban(BanRequest(.udid(StoreFixture.member(9), room: code())), by: Self.moderator)
        // Members whom a ban concerns must leave the room. A ban that a script inserted has not removed its members
        // yet.
        for condition in [
            "udid) VALUES ('room', '\(try StoreFixture.member(4).text)')", "address) VALUES (NULL, '192.0.2.3')",
        ] {
            _ = try store.query("INSERT INTO bans (secret_code, " + condition)
        }
        #expect(try await recode(in: store) == RecodedRoom(members: 2, removed: 2))

        #expect(try await names("room", in: store).isEmpty)
        #expect(try await names("new", in: store) == ["name1", "name2"])
        #expect(try await names("other", in: store) == ["name6"])
        let page = try await rooms.messages(for: StoreFixture.member(2), since: nil, limit: 9)
        #expect(page.messages.map(\.text) == ["before", "known"] && page.room == code("new"))
        #expect(try await store.stores.records.progress(of: message).readers == 2)
        let pushes = try await store.lease()
        #expect(pushes.filter { $0.obstacle == nil }.count == 5 && pushes.count == 9)
        #expect(try await store.stores.tokens.token(of: token.secret)?.grant.room == code("new"))
        #expect(await refusal { try await join(9...9, "new", in: store) } == "You are banned from this room")
        #expect(await refusal { try await join(4...4, "new", in: store) } == "You are banned from this room")
        let closed = "This room has a new code: ask its members or the operator for it"
        #expect(await refusal { try await join(2...2, in: store) } == closed)
        #expect(await refusal { _ = try await rooms.post(program("no")) } == closed)
        #expect(try await names("new", in: store) == ["name1", "name2"], "a refused join leaves a member where it is")
        try await post(1, "after", in: store)
        #expect(try await texts(for: 2, in: store) == ["before", "known", "after"])
        #expect(try store.query("SELECT room_id FROM rooms WHERE secret_code IN ('room', 'new')") == [["1"]])
        let records = try await moderation.records(before: nil, limit: 9).items
        #expect(records.map(\.action) == ["recode", "remove", "remove", "ban"])
        #expect(records[0].room == code("new") && records[0].subject == "room")
        let feed = store.stores.feed
        #expect(try await feed.hasMoved(code(), to: code("new")))
        for (old, new) in [("room", "other"), ("new", "room")] {
            #expect(try await !feed.hasMoved(code(old), to: code(new)))
        }
        // Change the code again: a client that missed the first change still finds the room.
        #expect(try await recode("new", to: "newer", in: store) == RecodedRoom(members: 2, removed: 0))
        #expect(try await feed.hasMoved(code(), to: code("newer")))
    }

    @Test(
        "A room that does not exist or is closed, or whose new code is in use, gets no new code",
        arguments: StoreKind.allCases)
    func noNewCode(kind: StoreKind) async throws {
        let store = try await kind.make()
        let moderation = store.stores.moderation
        try await join(1...1, in: store)
        try await join(2...2, "other", in: store)
        _ = try await store.stores.rooms.post(program("hi", room: "ops"))
        for room in ["shut", "closed"] {
            _ = try await moderation.ban(BanRequest(.room(code(room))), by: Self.moderator)
        }
        func problem(_ old: String, _ new: String) async -> ChatError.Code? {
            do {
                _ = try await recode(old, to: new, in: store)
                return nil
            } catch let error as ChatError {
                return error.code
            } catch {
                return .internalError
            }
        }
        #expect(await problem("nowhere", "new") == .notFound)
        for new in ["other", "ops", "shut"] { #expect(await problem("room", new) == .conflict, "\(new)") }
        #expect(await problem("closed", "new") == .conflict)
        #expect(await problem("ops", "new") == nil)
        #expect(await problem("ops", "newer") == .conflict, "it is closed now")
        #expect(await problem("room", "ops") == .conflict)
        #expect(try await names(in: store) == ["name1"])
    }

    @Test(
        "A change of the code loses no message, join or ban; of two concurrent changes, one succeeds",
        arguments: StoreKind.allCases)
    func newCodeMeanwhile(kind: StoreKind) async throws {
        let store = try await kind.make()
        let stores = store.stores
        try await join(1...4, in: store)
        try await join(11...40, in: store)
        let banned = try await id(4, in: store)
        let large = try await post(11, "large", in: store)
        let (posted, recoded) = try await withThrowingTaskGroup(of: (Int, Int).self) { group in
            for number in 1...3 {
                group.addTask {
                    for index in 0..<10 {
                        _ = try await stores.rooms.post(StoreFixture.post(number, "\(number) \(index)"))
                    }
                    return (10, 0)
                }
            }
            for new in ["x", "y"] {
                group.addTask {
                    let moved = try? await stores.moderation.recode(
                        SecretCode(stored: "room"), to: SecretCode(stored: new), by: Self.moderator)
                    return (0, moved == nil ? 0 : 1)
                }
            }
            group.addTask {
                _ = try await stores.moderation.ban(BanRequest(.member(banned, everywhere: false)), by: Self.moderator)
                return (0, 0)
            }
            group.addTask {
                // These members join before or after the change, or never, but they are never in the old room.
                for number in 50...60 { _ = try? await stores.rooms.join(StoreFixture.join(number)) }
                return (0, 0)
            }
            return try await group.reduce((0, 0)) { ($0.0 + $1.0, $0.1 + $1.1) }
        }
        #expect(posted == 30 && recoded == 1)
        let new = try await stores.rooms.messages(for: StoreFixture.member(1), since: nil, limit: 100)
        #expect(["x", "y"].contains(new.room.text))
        #expect(new.messages.count == 31 && new.messages.first?.id == large)
        #expect(try await names(in: store).isEmpty)
        let present = try await names(new.room.text, in: store)
        #expect(!present.contains("name4") && present.count >= 33)
        #expect(await refusal { try await join(4...4, new.room.text, in: store) } == "You are banned from this room")
        // Pushes that were not queued yet go to the present members.
        try await withUpkeep(store) {
            let end = ContinuousClock.now + .seconds(60)
            while try store.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
                try #require(ContinuousClock.now < end)
                try await Task.sleep(for: .milliseconds(20))
            }
        }
        let pushed = try store.query("SELECT DISTINCT member FROM push_queue WHERE chat_message = \(large)").count
        #expect((32...33).contains(pushed), "\(pushed)")
    }

    // MARK: - Addresses

    @Test(
        "A ban may include the address: members from it are removed, and joins from it are rejected",
        arguments: StoreKind.allCases)
    func address(kind: StoreKind) async throws {
        let store = try await kind.make()
        let moderation = store.stores.moderation
        func join(_ number: Int, from address: String, _ room: String = "room") async throws {
            var request = try StoreFixture.join(number, room)
            request.client.address = address
            try await store.stores.rooms.join(request)
        }
        try await join(1, from: "2001:db8:0:1::1")
        try await join(2, from: "2001:db8:0:1:ffff::2")
        try await join(3, from: "2001:db8:0:2::3")
        try await join(4, from: "2001:db8:0:1::4", "other")
        try await join(5, from: "192.0.2.5")
        try await post(3, in: store)
        let ban = try await moderation.ban(
            BanRequest(.member(id(1, in: store), everywhere: false), includesAddress: true), by: Self.moderator)
        #expect(ban.address == "2001:db8:0:1::/64" && ban.name == "name1" && !ban.isClosed)
        #expect(try await names(in: store) == ["name3", "name5"])
        #expect(try await names("other", in: store) == ["name4"])
        let pushes = try await store.lease()
        #expect(pushes.count == 3 && pushes.filter { $0.obstacle == .memberRemoved }.count == 2)
        let text = "You are banned from this room"
        #expect(await refusal { try await join(8, from: "2001:db8:0:1:9::8") } == text)
        try await join(8, from: "2001:db8:0:1:9::8", "other")
        try await join(9, from: "2001:db8:0:3::9")
        let update = await refusal {
            try await store.stores.rooms.update(
                StoreFixture.member(9), token: StoreFixture.token(9), app: .current(otherwise: nil),
                client: ClientInfo(address: "2001:db8:0:1::"), user: nil)
        }
        #expect(update == text)
        #expect(try await moderation.bans(in: nil, before: nil, limit: 9).items.map(\.address) == [ban.address])
        let everywhere = try await moderation.ban(
            BanRequest(.address(BannedAddress(parsing: "192.0.2.5", proxies: []), room: nil)), by: Self.moderator)
        #expect(everywhere.address == "192.0.2.5" && everywhere.name == "name5" && everywhere.room == nil)
        #expect(await refusal { try await join(10, from: "192.0.2.5", "x") } == "You are banned from every room")
        try await moderation.endBan(everywhere.id, by: Self.moderator)
        try await join(10, from: "192.0.2.5", "x")
        await #expect(throws: ChatError.self) {
            try await join(11, from: "127.0.0.1")
            _ = try await moderation.ban(
                BanRequest(.member(id(11, in: store), everywhere: false), includesAddress: true), by: Self.moderator)
        }
    }

    @Test("A ban of an address covers the address of a post that was just accepted", arguments: StoreKind.allCases)
    func addressOfPost(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, moderation) = (store.stores.rooms, store.stores.moderation)
        for number in 1...3 {
            try await rooms.join(StoreFixture.join(number))
            var post = try StoreFixture.post(number, "hi")
            post.client.address = "198.51.100.\(number)"
            _ = try await rooms.post(post)
        }
        _ = try await moderation.ban(
            BanRequest(.address(BannedAddress(parsing: "198.51.100.1", proxies: []), room: nil)), by: Self.moderator)
        #expect(try await names(in: store) == ["name2", "name3"])
        let ban = try await moderation.ban(
            BanRequest(.member(id(2, in: store), everywhere: false), includesAddress: true), by: Self.moderator)
        #expect(ban.address == "198.51.100.2")
        #expect(try await names(in: store) == ["name3"])
    }

    @Test("A member that joins from an address during its ban is out after it", arguments: StoreKind.allCases)
    func addressMeanwhile(kind: StoreKind) async throws {
        let store = try await kind.make()
        let stores = store.stores
        try await withThrowingTaskGroup(of: Void.self) { group in
            for task in 0..<4 {
                group.addTask {
                    for number in 0..<25 {
                        var request = try StoreFixture.join(1 + task * 25 + number)
                        request.client.address = "192.0.2.77"
                        _ = try? await stores.rooms.join(request)
                    }
                }
            }
            group.addTask {
                _ = try await stores.moderation.ban(
                    BanRequest(
                        .address(BannedAddress(parsing: "192.0.2.77", proxies: []), room: SecretCode(stored: "room"))),
                    by: Self.moderator)
            }
            try await group.waitForAll()
        }
        #expect(try await names(in: store).isEmpty)
    }
}

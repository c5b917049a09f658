import Foundation
import Testing

@testable import PushChatCore

@Suite("A room of an app", .timeLimit(.minutes(1))) struct ChatRoomTests {
    private static let url = URL(string: "https://relay.example/chat/")!
    private static let member = ChatMemberID("00112233-4455-6677-8899-aabbccddeeff")!

    private static func room(
        _ relay: ScriptedRelay, _ storage: any ChatStorage = MemoryStorage()
    ) async throws -> ChatRoom {
        try await ChatRoom.open(
            "tea & cake", as: "Ann", member: member, api: PushChatAPI(url: url, transport: relay), storage: storage)
    }

    /// Runs the room while `body` reads its events.
    private static func running(
        _ room: ChatRoom, _ body: (inout ChatRoom.Events.Iterator) async throws -> Void
    ) async throws {
        let run = Task { try await room.run() }
        var events = room.events.makeAsyncIterator()
        try await body(&events)
        run.cancel()
        _ = await run.result
    }

    @Test("Joining sends the tutorial's form, with the push token if there is one")
    func join() async throws {
        let relay = ScriptedRelay()
        let room = try await Self.room(relay)
        try await room.join()
        try await room.setDeviceToken(Data([0xAB, 0x01]))
        try await room.join()
        let requests = await relay.requests
        #expect(requests.map(\.url.absoluteString) == Array(repeating: "https://relay.example/chat/api.php", count: 2))
        let start = "cmd=join&udid=00112233445566778899aabbccddeeff&token="
        #expect(requests.map(\.form) == ["0", "ab01"].map { start + $0 + "&name=Ann&code=tea%20%26%20cake" })
    }

    @Test("Each message comes once, from the history and from the streams; a lost stream is reopened after the last")
    func receiving() async throws {
        let relay = ScriptedRelay()
        await relay.add(1...3)
        try await Self.running(try await Self.room(relay)) { events in
            for id in 1...3 { #expect(try await events.next()?.messageID == Int64(id)) }
            await relay.add(4...5)
            for id in 4...5 { #expect(try await events.next()?.messageID == Int64(id)) }
            await relay.cut()
            guard case .disconnected = try await events.next() else {
                Issue.record("the outage was not reported")
                return
            }
            await relay.add(6...6)
            #expect(try await events.next() == .connected)
            #expect(try await events.next()?.messageID == 6)
        }
        #expect(await relay.streamStarts == [3, 5])
    }

    @Test("After a restart, events that the app has not handled come again, and handled ones do not")
    func restart() async throws {
        let (relay, storage) = (ScriptedRelay(), MemoryStorage())
        await relay.add(1...3)
        try await Self.running(try await Self.room(relay, storage)) { events in
            _ = try await events.next()
            // The app asks for the second message, so it has handled the first one.
            _ = try await events.next()
        }
        let room = try await Self.room(relay, storage)
        try await Self.running(room) { events in
            let ids = [try await events.next()?.messageID, try await events.next()?.messageID]
            // The app has handled one message in the first run and one in this.
            #expect(ids == [2, 3])
            #expect(await room.unread == 2)
        }
    }

    @Test("A storage of another room starts over with the same member; a room with a changed code does not")
    func otherRoom() async throws {
        let (relay, storage) = (ScriptedRelay(), MemoryStorage())
        let api = PushChatAPI(url: Self.url, transport: relay)
        let first = try await ChatRoom.open("tea", as: "Ann", api: api, storage: storage)
        try await first.post("one")
        var state = try #require(try await ChatRoomState.load(from: storage))
        state.handle(ReceivedEvent(.code("coffee")))
        try await storage.save(JSONEncoder().encode(state))
        for code in ["tea", "coffee"] {
            let room = try await ChatRoom.open(code, as: "Ann", api: api, storage: storage)
            #expect(await room.code == "coffee")
            #expect(await room.outbox.map(\.text) == ["one"])
        }
        let other = try await ChatRoom.open("water", as: "Ann", api: api, storage: storage)
        #expect(await other.code == "water")
        let members = [await first.member, await other.member]
        #expect(members[0] == members[1])
        #expect(await other.outbox.isEmpty)
    }

    @Test("A member that leaves takes its unsent messages back")
    func leave() async throws {
        let storage = MemoryStorage()
        let room = try await Self.room(ScriptedRelay(), storage)
        try await room.post("one")
        try await room.leave()
        let saved = try #require(try await ChatRoomState.load(from: storage))
        #expect(saved.outbox.messages.isEmpty)
    }

    @Test("The outbox survives a restart, and each message is posted with its key until the relay accepts it")
    func outbox() async throws {
        let (relay, storage) = (ScriptedRelay(), MemoryStorage())
        let first = try await Self.room(relay, storage)
        let written = [try await first.post("one"), try await first.post("two")]
        // The relay stores the first message, but its response is lost.
        await relay.lose(1)
        let room = try await Self.room(relay, storage)
        #expect(await room.outbox == written)
        try await Self.running(room) { events in
            var sent: [OutboxMessage] = []
            while sent.count < 2 {
                if case .sent(let message) = try await events.next() { sent.append(message) }
            }
            #expect(sent == written)
        }
        #expect(await room.outbox.isEmpty)
        #expect(await relay.posts.map(\.text) == ["one", "two"])
        let keys = await relay.requests.compactMap { $0.headers["Idempotency-Key"] }
        #expect(keys == [written[0].id, written[0].id, written[1].id])
    }

    @Test("A message that the relay rejects for good leaves the outbox; the next one is sent")
    func rejected() async throws {
        let relay = ScriptedRelay()
        let room = try await Self.room(relay)
        try await room.post("too long")
        let second = try await room.post("short")
        try await Self.running(room) { events in
            var seen: [ChatEvent] = []
            while seen.count < 2 {
                let event = try #require(try await events.next())
                if case .rejected = event { seen.append(event) }
                if case .sent = event { seen.append(event) }
            }
            guard case .rejected(let message, let rejection) = seen[0] else {
                Issue.record("\(seen)")
                return
            }
            #expect(message.text == "too long" && rejection.field == "text" && rejection.status == 400)
            #expect(seen[1] == .sent(second))
        }
    }

    @Test("The relay learns a push token once, also over restarts")
    func token() async throws {
        let (relay, storage) = (ScriptedRelay(), MemoryStorage())
        for token in [Data([1]), Data([1]), Data([2])] {
            let room = try await Self.room(relay, storage)
            try await room.setDeviceToken(token)
            try await room.post("x")
            try await Self.running(room) { events in
                while true { if case .sent = try await events.next() { return } }
            }
        }
        #expect(
            await relay.requests.map(\.form).filter { $0.hasPrefix("cmd=update") }.map { $0.suffix(2) } == ["01", "02"])
    }

    @Test("A push token is sent again after a day, after the clock was set back, and to another database")
    func tokenRenewal() {
        var state = ChatRoomState(code: "tea", name: "Ann", member: Self.member)
        let (token, start) = (Data([1]), Date(timeIntervalSince1970: 1_000_000))
        state.token.received(token)
        #expect(state.token.due(at: start) == token)
        state.token.stored(token, at: start)
        #expect(state.token.due(at: start + 86_399) == nil)
        #expect(state.token.due(at: start + 86_400) == token)
        #expect(state.token.due(at: start - 1) == token)
        state.handle(ReceivedEvent(.databaseReplaced))
        #expect(state.token.due(at: start) == token)
    }

    @Test("Saves follow one another, so that an older state never replaces a newer one")
    func saves() async throws {
        let storage = SlowStorage()
        let room = try await Self.room(ScriptedRelay(), storage)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 1...20 { group.addTask { _ = try await room.post("\(number)") } }
            try await group.waitForAll()
        }
        #expect(await storage.mostAtOnce == 1)
        #expect(try await ChatRoomState.load(from: storage)?.outbox.messages.count == 20)
    }

    @Test("The response of a proxy, or of a network that asks for a login, ends nothing")
    func otherServers() async throws {
        let relay = ScriptedRelay()
        await relay.add(1...1)
        let room = try await Self.room(relay)
        let written = try await room.post("one")
        await relay.hide([(404, "<h1>Not found</h1>"), (200, "<h1>Log in</h1>"), (400, "")])
        try await Self.running(room) { events in
            var seen: [ChatEvent] = []
            while !seen.contains(.sent(written)) || !seen.contains(where: { $0.messageID == 1 }) {
                seen.append(try #require(try await events.next()))
            }
        }
        #expect(await relay.posts.map(\.text) == ["one"])
    }

    @Test("A stream that starts earlier than requested is reopened from there")
    func otherDatabase() throws {
        var reception = Reception(after: 1000, joins: false)
        _ = reception.received(ChatPage(messages: [], next: 900, code: nil))
        _ = reception.opened(after: 1000)
        #expect(try reception.received(.began(900)) == [ReceivedEvent(.databaseReplaced)])
        #expect(reception.call == .stream(after: 900))
    }

    private static func message(_ id: Int64, _ text: String = "x", own: Bool = false) -> ChatMessage {
        ChatMessage(id: id, name: "Bob", text: text, sentAt: Date(timeIntervalSince1970: 0), isOwn: own)
    }

    private static func page(_ messages: [Int64], _ changes: [(Int64, String, Int64)]) throws -> ChatPage {
        func json(_ id: Int64, _ text: String) -> String {
            #"{"id":\#(id),"name":"Bob","text":"\#(text)","sent_at":"1970-01-01T00:00:00.000Z","own":false}"#
        }
        let list = messages.map { json($0, "x") }.joined(separator: ",")
        let changed = changes.map {
            #"{"id":\#($0),"event":"\#($1)","message":\#($1 == "deleted" ? #"{"id":\#($2)}"# : json($2, "new"))}"#
        }
        let text = #"{"messages":[\#(list)],"changes":[\#(changed.joined(separator: ","))],"next":0}"#
        return try JSONDecoder().decode(ChatPage.self, from: Data(text.utf8))
    }

    @Test(
        "Changes come in the order of their numbers, and once; a message of the same page has its newest form already")
    func changes() throws {
        var reception = Reception(after: 5, joins: false)
        let page = try Self.page(
            [7, 9], [(8, "edited", 3), (10, "resolved", 7), (11, "deleted", 2), (12, "novel", 4)])
        #expect(
            reception.received(page) == [
                ReceivedEvent(.message(Self.message(7)), at: 7), ReceivedEvent(.edited(Self.message(3, "new")), at: 8),
                ReceivedEvent(.message(Self.message(9)), at: 9), ReceivedEvent(.deleted(2), at: 11),
            ])
        #expect(reception.call == .stream(after: 12))
        _ = reception.opened(after: 12)
        let edited = Self.message(3, "newest")
        #expect(try reception.received(.changed(edited, .edited, number: 12)) == [])
        #expect(
            try reception.received(.changed(edited, .cleared, number: 14)) == [ReceivedEvent(.cleared(edited), at: 14)])
        #expect(try reception.received(.deleted(3, number: 14)) == [])
        #expect(try reception.received(.deleted(3, number: 15)) == [ReceivedEvent(.deleted(3), at: 15)])
        // An older relay gives deletions no number.
        #expect(try reception.received(.deleted(9, number: nil)) == [ReceivedEvent(.deleted(9))])
        #expect(reception.call == .stream(after: 15))
    }

    @Test("A page that changes fill is followed by another one")
    func fullPage() throws {
        var reception = Reception(after: 0, joins: false)
        let changes = (2...Int64(Reception.page)).map { ($0, "edited", Int64(1)) }
        #expect(reception.received(try Self.page([1], changes)).count == 1)
        #expect(reception.call == .page(after: Int64(Reception.page)) && !reception.historyIsRead)
    }

    @Test("A change that the app has handled does not come again after a restart, and is not unread")
    func handledChanges() throws {
        var state = ChatRoomState(code: "tea", name: "Ann", member: Self.member)
        state.handle(ReceivedEvent(.message(Self.message(3)), at: 3))
        state.handle(ReceivedEvent(.edited(Self.message(3, "new")), at: 8))
        #expect(state.handled == 8 && state.unread == 1)
        state.handle(ReceivedEvent(.deleted(3), at: 9))
        #expect(state.handled == 9 && state.unread == 0)
    }

    @Test("A removed member's room ends with that reason")
    func removed() async throws {
        let relay = ScriptedRelay()
        await relay.remove()
        let room = try await Self.room(relay)
        let run = Task { try await room.run() }
        var events = room.events.makeAsyncIterator()
        await #expect(throws: PushChatError.left(wasRemoved: false)) { _ = try await events.next() }
        #expect(await run.result.failure as? PushChatError == .left(wasRemoved: false))
    }

    @Test("Unread messages of others count until the user has read them; own messages do not")
    func unread() throws {
        var state = ChatRoomState(code: "tea", name: "Ann", member: Self.member)
        func message(_ id: Int64, own: Bool = false) -> ReceivedEvent {
            ReceivedEvent(.message(Self.message(id, own: own)), at: id)
        }
        for id in 1...3 { state.handle(message(Int64(id))) }
        #expect(state.unread == 3)
        state.read(upTo: 1)
        #expect(state.unread == 2)
        state.handle(ReceivedEvent(.deleted(2), at: 9))
        #expect(state.unread == 1)
        state.read(upTo: 3)
        #expect(state.unread == 0)
        state.handle(message(4))
        state.handle(message(5, own: true))
        #expect(state.unread == 0 && state.read == 5)
        let copy = try JSONDecoder().decode(ChatRoomState.self, from: JSONEncoder().encode(state))
        #expect(copy == state)
    }

    @Test(
        "An id of a member is 32 or 40 hexadecimal digits", arguments: ["", "xyz", String(repeating: "g", count: 40)])
    func memberID(text: String) {
        #expect(ChatMemberID(text) == nil)
        #expect(ChatMemberID.random() != ChatMemberID.random() && ChatMemberID.random().text.utf8.count == 40)
        let uuid = UUID()
        #expect(ChatMemberID(uuid) == ChatMemberID(uuid.uuidString))
    }
}

extension ChatEvent {
    fileprivate var messageID: Int64? { if case .message(let message) = self { message.id } else { nil } }
}

extension Result {
    fileprivate var failure: Failure? { if case .failure(let error) = self { error } else { nil } }
}

extension RelayRequest {
    var form: String { String(decoding: body ?? Data(), as: UTF8.self) }
}

/// Counts the saves that are in progress at the same time.
private actor SlowStorage: ChatStorage {
    private var data: Data?
    private var atOnce = 0
    private(set) var mostAtOnce = 0

    func load() -> Data? { data }

    func save(_ data: Data) async {
        atOnce += 1
        mostAtOnce = max(mostAtOnce, atOnce)
        for _ in 0..<100 { await Task.yield() }
        self.data = data
        atOnce -= 1
    }
}

/// A relay with one room, in memory.
private actor ScriptedRelay: RelayTransport {
    struct Post {
        let key: String
        let text: String
    }

    private(set) var requests: [RelayRequest] = []
    private(set) var posts: [Post] = []
    private(set) var streamStarts: [Int64] = []
    private var messages: [Int64] = []
    private var stream: AsyncThrowingStream<Data, any Error>.Continuation?
    private var lost = 0
    private var isRemoved = false
    private var others: [(status: Int, text: String)] = []

    /// Lets another server give the next responses.
    func hide(_ responses: [(status: Int, text: String)]) { others = responses }

    func add(_ ids: ClosedRange<Int64>) {
        messages += ids
        for id in ids { stream?.yield(Data("event: message\nid: \(id)\ndata: \(Self.message(id))\n\n".utf8)) }
    }

    /// Ends the open stream.
    func cut() {
        stream?.finish(throwing: TransportError.lost("cut"))
        stream = nil
    }

    /// Loses the responses to the next posts.
    func lose(_ count: Int) { lost = count }

    func remove() { isRemoved = true }

    private static func message(_ id: Int64) -> String {
        #"{"id":\#(id),"name":"Bob","text":"x","sent_at":"2026-11-22T12:00:00.000Z","own":false}"#
    }

    private static func error(_ status: Int, _ code: String, field: String) -> RelayResponse {
        RelayResponse(
            status: status,
            body: Data(#"{"error":{"code":"\#(code)","message":"No","field":"\#(field)"}}"#.utf8))
    }

    func response(to request: RelayRequest) throws -> RelayResponse {
        let fields = URLComponents(string: "?\(request.form)")?.queryItems ?? []
        func field(_ name: String) -> String { fields.first { $0.name == name }?.value ?? "" }
        if !others.isEmpty {
            let (status, text) = others.removeFirst()
            return RelayResponse(status: status, body: Data(text.utf8))
        }
        if isRemoved { return Self.error(404, "not_joined", field: "udid") }
        guard request.url.path.hasSuffix("/api.php") else {
            return RelayResponse(status: 200, body: Data(#"{"ticket":"t","expires_in":30}"#.utf8))
        }
        requests.append(request)
        switch field("cmd") {
        case "messages":
            let found = messages.filter { $0 > Int64(field("since")) ?? 0 }
            let json =
                #"{"messages":[\#(found.map(Self.message).joined(separator: ","))],"next":\#(found.last ?? 0),"code":"tea"}"#
            return RelayResponse(status: 200, body: Data(json.utf8))
        case "message" where field("text") == "too long": return Self.error(400, "invalid_field", field: "text")
        case "message":
            let key = request.headers["Idempotency-Key"] ?? ""
            if !posts.contains(where: { $0.key == key }) { posts.append(Post(key: key, text: field("text"))) }
            if lost > 0 {
                lost -= 1
                throw TransportError.lost("the response")
            }
            return RelayResponse(status: 200, body: Data(#"{"ok":true,"id":7}"#.utf8))
        default: return RelayResponse(status: 200, body: Data(#"{"ok":true}"#.utf8))
        }
    }

    func stream(of request: RelayRequest) throws -> RelayStream {
        let start = Int64(request.headers["Last-Event-ID"] ?? "") ?? 0
        streamStarts.append(start)
        let (body, continuation) = AsyncThrowingStream.makeStream(of: Data.self)
        stream = continuation
        continuation.yield(Data("retry: 2000\nid: \(start)\n\n".utf8))
        for id in messages where id > start {
            continuation.yield(Data("event: message\nid: \(id)\ndata: \(Self.message(id))\n\n".utf8))
        }
        return RelayStream(status: 200, body: body)
    }
}

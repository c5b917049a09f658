import Foundation
import PushChatNotificationService
import Testing

@testable import PushChatCore

@Suite("The notification of a message", .timeLimit(.minutes(1))) struct NotificationCompleterTests {
    private static let png = Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 1, 2, 3])
    private static let original = PushContent(body: "Bob: Have you s…", threadID: "r1")

    /// The storage of a room whose member has handled the messages up to `handled`.
    private static func storage(_ member: Character, handled: Int64, unread: Int = 0) throws -> MemoryStorage {
        let id = try #require(ChatMemberID(String(repeating: member, count: 40)))
        var state = ChatRoomState(code: "tea", name: "Ann", member: id)
        state.handled = handled
        for later in (0..<Int64(unread)).reversed() {
            let message = ChatMessage(id: handled - later, name: "Bob", text: "x", sentAt: Date())
            state.handle(ReceivedEvent(.message(message), at: message.id))
        }
        return MemoryStorage(try JSONEncoder().encode(state))
    }

    private static func completer(
        _ relay: FakeRelay, _ storages: [MemoryStorage]? = nil, clock: any Clock<Duration> = HeldClock()
    ) throws -> NotificationCompleter {
        NotificationCompleter(
            api: PushChatAPI(url: try #require(URL(string: "http://relay.example")), transport: relay),
            storages: try storages ?? [storage("1", handled: 4, unread: 2)], roomName: { "The \($0.code) room" },
            pictureLimit: 100, clock: clock)
    }

    /// Returns all that the completer delivers.
    private static func delivered(
        _ completer: NotificationCompleter, _ content: PushContent = original, details: PushDetails,
        meanwhile: (NotificationDelivery) async throws -> Void = { _ in }
    ) async throws -> [PushContent] {
        let (contents, continuation) = AsyncStream.makeStream(of: PushContent.self)
        let delivery = completer.start(content, details) { continuation.yield($0) }
        try await meanwhile(delivery)
        var all: [PushContent] = []
        for await content in contents {
            all.append(content)
            // A second delivery would follow the first one here.
            delivery.expire()
            continuation.finish()
        }
        return all
    }

    @Test("It has the whole text, the writer, the room, the unread messages and the picture, and is reported as shown")
    func complete() async throws {
        let relay = FakeRelay([5: "one", 6: "Have you seen it?"], pictures: ["https://cdn.example/a": Self.png])
        let details = PushDetails(
            message: 6, room: "42", sender: "b7", image: URL(string: "https://cdn.example/a"))
        let all = try await Self.delivered(try Self.completer(relay), details: details)
        let content = try #require(all.first)
        #expect(all.count == 1)
        #expect(content.title == "Bob" && content.subtitle.isEmpty && content.body == "Have you seen it?")
        #expect(content.badge == 4, "two from before, and two that were missed")
        #expect(content.missed.map(\.id) == [5, 6] && content.threadID == "r1")
        #expect(
            content.sender
                == PushSender(handle: "b7", name: "Bob", conversationID: "42", conversationName: "The tea room"))
        let picture = try #require(content.picture)
        #expect(picture.pathExtension == "png")
        #expect(try Data(contentsOf: picture) == Self.png)
        try FileManager.default.removeItem(at: picture)
        let udid = String(repeating: "1", count: 40)
        #expect(
            await relay.forms.sorted() == [
                "cmd=messages&udid=\(udid)&since=4&limit=500&peek=1", "cmd=shown&udid=\(udid)&id=6",
            ])
        #expect(await relay.headersOfPictures == [["Accept": "image/*"]])
    }

    @Test("It is the original one if the relay does not respond within the time limit")
    func timeLimit() async throws {
        let (relay, clock) = (FakeRelay([:], hangs: true), HeldClock())
        let completer = try Self.completer(relay, clock: clock)
        let all = try await Self.delivered(completer, details: PushDetails(message: 6)) { _ in clock.pass() }
        #expect(all == [Self.original])
    }

    @Test("It has the push's plain text of a message in Markdown", arguments: ["Bob: a bold word", "a bold word"])
    func markdown(body: String) async throws {
        let relay = FakeRelay([6: "a **bold** word"], title: "Build", isMarkdown: true)
        let all = try await Self.delivered(
            try Self.completer(relay), PushContent(title: "Build", body: body), details: PushDetails(message: 6))
        #expect(all.map(\.body) == ["a bold word"] && all.first?.title == "Build" && all.first?.subtitle == "Bob")
    }

    @Test("If the system wants it before the picture has arrived, it has the text and no picture")
    func expiry() async throws {
        let relay = FakeRelay([6: "Have you seen it?"], pictures: ["https://cdn.example/a": nil])
        let details = PushDetails(message: 6, image: URL(string: "https://cdn.example/a"))
        let all = try await Self.delivered(try Self.completer(relay), details: details) { delivery in
            // The completer sends the report after it knows the text.
            await relay.waitForReport()
            delivery.expire()
        }
        #expect(all.map(\.body) == ["Have you seen it?"] && all.first?.picture == nil)
    }

    @Test(
        "Pictures that are too large, of another kind, unencrypted from elsewhere, or missing are left out",
        arguments: [
            ("https://cdn.example/large", png + Data(count: 100)), ("https://cdn.example/page", Data("<html>".utf8)),
            ("http://cdn.example/plain", png), ("file:///etc/passwd", png), ("https://cdn.example/none", Data()),
        ])
    func pictures(url: String, data: Data) async throws {
        let relay = FakeRelay([6: "six"], pictures: data.isEmpty ? [:] : [url: data])
        let details = PushDetails(message: 6, image: URL(string: url))
        let all = try await Self.delivered(try Self.completer(relay), details: details)
        #expect(all.map(\.body) == ["six"] && all.first?.picture == nil)
    }

    @Test("A picture on the relay itself may be unencrypted, as in development")
    func ownPicture() async throws {
        let relay = FakeRelay([6: "six"], pictures: ["http://relay.example/files/a": Self.png])
        let details = PushDetails(message: 6, image: URL(string: "http://relay.example/files/a"))
        let picture = try #require(
            try await Self.delivered(try Self.completer(relay), details: details).first?.picture)
        try FileManager.default.removeItem(at: picture)
    }

    @Test(
        "The message is found in any of the device's rooms, also if the app has handled it; the payload's badge stays")
    func rooms() async throws {
        let relay = FakeRelay([6: "six"], member: "2")
        let storages = [
            MemoryStorage(), try Self.storage("1", handled: 9, unread: 3), try Self.storage("2", handled: 7),
        ]
        var content = Self.original
        content.badge = 17
        let all = try await Self.delivered(
            try Self.completer(relay, storages), content, details: PushDetails(message: 6))
        #expect(all.map(\.body) == ["six"] && all.first?.badge == 17 && all.first?.missed == [])
        #expect(all.first?.sender?.conversationID == "r1")
        let counted = try await Self.delivered(try Self.completer(relay, storages), details: PushDetails(message: 6))
        #expect(counted.map(\.badge) == [3])
    }

    @Test("A program's message has its title, and no writer to answer")
    func program() async throws {
        let relay = FakeRelay([6: "Disk full"], title: "Alert")
        let all = try await Self.delivered(try Self.completer(relay), details: PushDetails(message: 6, room: "42"))
        #expect(all.map(\.title) == ["Alert"] && all.map(\.subtitle) == ["Bob"] && all.first?.sender == nil)
    }

    @Test(
        "A push without a message, or whose message was deleted, stays unchanged", arguments: [nil, 5, 7] as [Int64?])
    func others(message: Int64?) async throws {
        let relay = FakeRelay([6: "six"])
        let all = try await Self.delivered(try Self.completer(relay), details: PushDetails(message: message))
        #expect(all == [Self.original])
        #expect(await !relay.forms.contains { $0.hasPrefix("cmd=shown") })
    }

    @Test("The relay's members of a payload are read, and wrong ones are ignored")
    func details() throws {
        let payload = #"{"aps":{},"message_id":7,"room_id":42,"sender":"b7","image":"https://cdn.example/a"}"#
        let json = try #require(try JSONSerialization.jsonObject(with: Data(payload.utf8)) as? [String: Any])
        #expect(
            PushDetails(userInfo: json)
                == PushDetails(
                    message: 7, room: "42", sender: "b7", image: URL(string: "https://cdn.example/a")))
        #expect(PushDetails(userInfo: ["message_id": "7"]).message == 7)
        #expect(PushDetails(userInfo: ["message_id": 7, "type": "clear"]) == PushDetails(message: 7, isClear: true))
        #expect(PushDetails(userInfo: ["message_id": "x", "room_id": "", "sender": [1]]) == PushDetails())
    }
}

/// A clock that stands still until the test lets the time pass.
private struct HeldClock: Clock {
    private let time = AsyncStream.makeStream(of: Void.self)

    var now: ContinuousClock.Instant { .now }
    var minimumResolution: Duration { .zero }

    /// Ends all sleeps.
    func pass() { time.continuation.finish() }

    func sleep(until deadline: ContinuousClock.Instant, tolerance: Duration?) async throws {
        for await _ in time.stream {}
        try Task.checkCancellation()
    }
}

/// A relay with one room, and a server of pictures.
private actor FakeRelay: RelayTransport {
    private let messages: [Int64: String]
    private let title: String?
    private let isMarkdown: Bool
    private let member: Character?
    private let hangs: Bool
    /// By address. `nil` for one that never arrives.
    private let pictures: [String: Data?]
    private(set) var forms: [String] = []
    private(set) var headersOfPictures: [[String: String]] = []
    private let reports = AsyncStream.makeStream(of: Void.self)

    /// - Parameters:
    ///   - title: The title of the messages, which a program has written. `nil` for messages of a member.
    ///   - isMarkdown: Whether the texts are Markdown.
    ///   - member: The digit of the only member who is in the room. `nil` for any.
    ///   - hangs: Whether the relay never responds.
    init(
        _ messages: [Int64: String], title: String? = nil, isMarkdown: Bool = false, member: Character? = nil,
        hangs: Bool = false,
        pictures: [String: Data?] = [:]
    ) {
        self.messages = messages
        self.title = title
        self.isMarkdown = isMarkdown
        self.member = member
        self.hangs = hangs
        self.pictures = pictures
    }

    nonisolated func waitForReport() async { for await _ in reports.stream { return } }

    func response(to request: RelayRequest) async throws -> RelayResponse {
        if hangs {
            // Ends when the task is cancelled.
            for await _ in AsyncStream.makeStream(of: Void.self).stream {}
            throw CancellationError()
        }
        forms.append(request.form)
        let fields = URLComponents(string: "?\(request.form)")?.queryItems ?? []
        func field(_ name: String) -> String { fields.first { $0.name == name }?.value ?? "" }
        if let member, field("udid").first != member { return RelayResponse(status: 404) }
        switch field("cmd") {
        case "shown":
            reports.continuation.yield()
            return RelayResponse(status: 200, body: Data("OK\n".utf8))
        case "messages":
            let found = messages.filter { $0.key > Int64(field("since")) ?? 0 }.sorted { $0.key < $1.key }
                .prefix(Int(field("limit")) ?? 0)
            let page: [[String: Any]] = found.map { id, text in
                var message: [String: Any] = [
                    "id": id, "name": "Bob", "text": text, "sent_at": "2026-11-22T12:00:00.000Z", "own": false,
                ]
                if isMarkdown { message["markdown"] = true }
                if let title { (message["title"], message["program"]) = (title, true) }
                return message
            }
            let json: [String: Any] = ["messages": page, "next": 0, "code": "tea"]
            return RelayResponse(status: 200, body: try JSONSerialization.data(withJSONObject: json))
        default:
            Issue.record("unexpected \(request.form)")
            return RelayResponse(status: 400)
        }
    }

    func stream(of request: RelayRequest) async throws -> RelayStream {
        headersOfPictures.append(request.headers)
        let (body, pieces) = AsyncThrowingStream.makeStream(of: Data.self)
        guard let picture = pictures[request.url.absoluteString] else {
            pieces.finish()
            return RelayStream(status: 404, body: body)
        }
        if let picture {
            for byte in picture { pieces.yield(Data([byte])) }
            pieces.finish()
        }
        return RelayStream(status: 200, body: body)
    }
}

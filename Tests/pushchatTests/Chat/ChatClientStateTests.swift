import ChatDomain
import Foundation
import PushChatCore
import Testing

@testable import pushchat

@Suite("The steps of pushchat chat") struct ChatClientStateTests {
    private typealias Report = ChatClientState.Report

    private static func message(_ id: Int64, _ text: String = "x") -> ChatMessage {
        ChatMessage(id: id, name: "Ann", text: text, sentAt: Date(timeIntervalSince1970: 1_795_348_800))
    }

    private static func page(_ ids: some Sequence<Int64>, next: Int64, code: String? = nil) -> ChatPage {
        ChatPage(messages: ids.map { message($0) }, next: next, code: code)
    }

    private static func event(_ id: Int64) -> ServerSentEvent {
        let json = #"{"id":\#(id),"name":"Ann","text":"x","sent_at":"2026-11-22T12:00:00.000Z","own":false}"#
        return ServerSentEvent(id: "\(id)", data: json)
    }

    private static func room(_ members: Int) -> ServerSentEvent {
        ServerSentEvent(name: "room", data: #"{"members":\#(members)}"#)
    }

    /// Returns a client in a room with a history of messages.
    private static func joined(_ ids: [Int64] = [], shownHistory: Int? = nil, endsWithInput: Bool = true) throws
        -> ChatClientState
    {
        var state = ChatClientState(relay: "http://relay", shownHistory: shownHistory, endsWithInput: endsWithInput)
        state.joined()
        _ = state.received(page(ids, next: ids.last ?? 0))
        return state
    }

    private static func ids(_ reports: [Report]) -> [Int64] {
        reports.compactMap { if case .message(let message) = $0 { message.id } else { nil } }
    }

    private static let lost = PushChatError.connectionLost("")

    private static func refused(_ status: Int, _ code: String?, _ message: String, _ seconds: Int64? = nil)
        -> PushChatError
    {
        .rejected(
            RelayRejection(status: status, code: code, message: message, retryAfter: seconds.map { .seconds($0) }))
    }

    // MARK: - Receiving

    private static func change(_ number: Int64, _ kind: String, of id: Int64, _ text: String) -> ServerSentEvent {
        let json = #"{"id":\#(id),"name":"Ann","text":"\#(text)","sent_at":"2026-11-22T12:00:00.000Z","own":false}"#
        return ServerSentEvent(name: kind, id: "\(number)", data: json)
    }

    @Test("A change is shown once, and the stream continues after it", arguments: ["edited", "cleared", "resolved"])
    func changes(kind: String) throws {
        var state = try Self.joined([3])
        #expect(try state.received(Self.change(5, kind, of: 3, "new")) == [.changed(Self.message(3, "new"))])
        #expect(try state.received(Self.change(5, kind, of: 3, "new")) == [])
        #expect(state.cursor == 5)
        #expect(try state.received(ServerSentEvent(name: "deleted", id: "6", data: #"{"id":3}"#)) == [.deleted(3)])
    }

    @Test("Of the history, each message is shown in its newest form, and no deletion", arguments: [nil, 1])
    func changedHistory(shownHistory: Int?) throws {
        var state = ChatClientState(relay: "http://relay", shownHistory: shownHistory, endsWithInput: true)
        state.joined()
        #expect(Self.ids(state.received(Self.page(1...500, next: 500))).count == (shownHistory == nil ? 500 : 0))
        let json =
            #"{"messages":[],"changes":[{"id":501,"event":"deleted","message":{"id":7}},{"id":502,"event":"edited","#
            + #""message":{"id":500,"name":"Ann","text":"new","sent_at":"2026-11-22T12:00:00.000Z","own":false}}],"next":502}"#
        let page = try JSONDecoder().decode(ChatPage.self, from: Data(json.utf8))
        let message = Self.message(500, "new")
        #expect(state.received(page) == [shownHistory == nil ? .changed(message) : .message(message)])
    }

    @Test("The client joins, reads the history page by page, and then the stream from the end of the history")
    func start() throws {
        var state = ChatClientState(relay: "http://relay", endsWithInput: true)
        #expect(state.call == .join)
        state.joined()
        #expect(state.call == .page(after: 0))
        #expect(Self.ids(state.received(Self.page(11...510, next: 510))) == Array(11...510))
        #expect(state.call == .page(after: 510))
        #expect(Self.ids(state.received(Self.page(511...512, next: 512))) == [511, 512])
        #expect(state.call == .stream(after: 512))
    }

    @Test("An empty history gives the position where the stream begins")
    func emptyHistory() throws {
        var state = ChatClientState(relay: "http://relay", endsWithInput: true)
        state.joined()
        #expect(state.received(Self.page([], next: 40)) == [])
        #expect(state.call == .stream(after: 40))
    }

    @Test("Each message is shown once, even if pages and streams repeat it")
    func once() throws {
        var state = try Self.joined([1, 2])
        #expect(Self.ids(try state.received(Self.event(3))) == [3])
        // The stream breaks, and the next one begins too early.
        #expect(state.receivingFailed(Self.lost, random: 1).1 == .again(after: .milliseconds(300)))
        #expect(state.call == .stream(after: 3))
        for (id, shown) in [(2, []), (3, []), (4, [4])] as [(Int64, [Int64])] {
            #expect(Self.ids(try state.received(Self.event(id))) == shown)
        }
        // The last page of the history has a message from the stream again, and the stream one from the page.
        #expect(Self.ids(state.received(Self.page([4, 5, 6], next: 6))) == [5, 6])
        #expect(Self.ids(try state.received(Self.event(6))) == [])
        #expect(state.call == .stream(after: 6))
    }

    @Test(
        "On request only the end of a long history is shown",
        arguments: [(0, []), (2, [501, 502]), (9999, nil)])
    func shortHistory(shown: Int, expected: [Int64]?) throws {
        var state = ChatClientState(relay: "http://relay", shownHistory: shown, endsWithInput: true)
        state.joined()
        #expect(state.received(Self.page(1...500, next: 500)) == [])
        #expect(Self.ids(state.received(Self.page(501...502, next: 502))) == expected ?? Array(1...502))
        #expect(Self.ids(try state.received(Self.event(503))) == [503])
    }

    @Test("A stream that begins earlier than requested is from another database: its messages are shown")
    func otherDatabase() throws {
        var state = try Self.joined([50])
        _ = state.opened(after: 50)
        #expect(try state.received(ServerSentEvent(id: "50")) == [])
        let reports = try state.received(ServerSentEvent(id: "0"))
        #expect(reports.count == 1)
        #expect(Self.ids(try state.received(Self.event(7))) == [7])
        #expect(state.call == .stream(after: 7))
    }

    @Test("A page before the stream's beginning does not move the position back: common messages are shown once")
    func overtakenStream() throws {
        var state = try Self.joined()
        _ = state.opened(after: 0)
        #expect(Self.ids(state.received(Self.page(1...2, next: 2))) == [1, 2])
        #expect(try state.received(ServerSentEvent(id: "0")) == [])
        #expect(try state.received(Self.event(1)) == [] && state.received(Self.event(2)) == [])
        #expect(Self.ids(try state.received(Self.event(3))) == [3])
    }

    @Test("A deletion is reported if the message was shown; the position in the stream stays")
    func deleted() throws {
        var state = try Self.joined([50])
        #expect(try state.received(ServerSentEvent(name: "deleted", data: #"{"id":50}"#)) == [.deleted(50)])
        #expect(try state.received(ServerSentEvent(name: "deleted", data: #"{"id":51}"#)) == [])
        #expect(state.call == .stream(after: 50))
    }

    @Test("The number of members is shown when it changes, not at each connection; unknown events are skipped")
    func members() throws {
        var state = try Self.joined()
        #expect(try state.received(Self.room(2)) == [.members(2)])
        #expect(try state.received(Self.room(2)) == [])
        #expect(try state.received(Self.room(3)) == [.members(3)])
        #expect(try state.received(ServerSentEvent(name: "weather", data: "sun")) == [])
        #expect(throws: PushChatError.left(wasRemoved: false)) {
            try state.received(ServerSentEvent(name: "left", data: "{}"))
        }
        let removed = ServerSentEvent(name: "left", data: #"{"reason":"removed"}"#)
        #expect(throws: PushChatError.left(wasRemoved: true)) { try state.received(removed) }
        #expect(
            state.receivingFailed(.left(wasRemoved: true), random: 1)
                == ([.left(wasRemoved: true)], .end(ChatClientState.removed)))
    }

    @Test("A new room code is reported once, whether a page or the stream brings it; the first page reports none")
    func newCode() throws {
        func page(_ code: String) -> ChatPage { Self.page([], next: 7, code: code) }
        var state = ChatClientState(relay: "http://relay", endsWithInput: false)
        state.joined()
        #expect(state.received(page("tea")) == [])
        let event = ServerSentEvent(name: "code", data: #"{"code":"new"}"#)
        #expect(try state.received(event) == [.moved("new")])
        #expect(try state.received(event) == [])
        #expect(state.received(page("new")) == [])
        #expect(state.received(page("newer")) == [.moved("newer")])
    }

    @Test(
        "Data that is no message of a relay is an error",
        arguments: [
            #"{"id":1}"#, "[]", "nonsense", #"{"id":"1","name":"a","text":"b","sent_at":"2026-11-22T12:00:00Z"}"#,
        ])
    func malformed(data: String) throws {
        var state = try Self.joined()
        #expect(throws: PushChatError.self) { try state.received(ServerSentEvent(data: data)) }
    }

    @Test("An outage is reported once, waits grow, and the first event after it resets them")
    func outage() throws {
        var state = try Self.joined([1])
        let (reports, next) = state.receivingFailed(Self.lost, random: 1)
        #expect(reports == [.note("the connection is lost; connecting again")])
        #expect(next == .again(after: .milliseconds(300)))
        let again = state.receivingFailed(.unreachable, random: 1)
        #expect(again.0 == [] && again.1 == .again(after: .milliseconds(600)))
        for _ in 0..<20 { _ = state.receivingFailed(Self.lost, random: 1) }
        #expect(state.receivingFailed(Self.lost, random: 1).1 == .again(after: .seconds(10)))
        #expect(state.opened(after: 1) == [.note("connected again")])
        // A stream that opens and breaks at once does not count as connected: the wait stays long.
        #expect(state.receivingFailed(Self.lost, random: 1).1 == .again(after: .seconds(10)))
        _ = state.opened(after: 1)
        _ = try state.received(Self.room(1))
        #expect(state.receivingFailed(Self.lost, random: 1).1 == .again(after: .milliseconds(300)))
    }

    @Test("At the start the client does not wait for an absent relay")
    func absent() {
        var state = ChatClientState(relay: "http://relay", endsWithInput: true)
        guard case .end(let absent) = state.receivingFailed(.unreachable, random: 1).1,
            case .end(let other) = state.receivingFailed(.unexpectedResponse("<html>"), random: 1).1
        else {
            Issue.record("the chat does not end")
            return
        }
        #expect(absent.hasPrefix("no relay answers at http://relay: "))
        #expect(other == "http://relay does not answer like a PushChat relay: is it one? (<html>)")
        // A lost response is different: it is retried.
        for milliseconds in [300, 600, 1200] {
            #expect(state.receivingFailed(Self.lost, random: 1).1 == .again(after: .milliseconds(milliseconds)))
            #expect(state.call == .join)
        }
        #expect(state.receivingFailed(Self.lost, random: 1).1 == .end("http://relay did not answer"))
    }

    @Test("The client waits for the time that a busy relay asks for")
    func busy() throws {
        var state = try Self.joined()
        let (reports, next) = state.receivingFailed(Self.refused(429, "too_many_requests", "Too many", 12), random: 1)
        #expect(reports == [.note("Too many; trying again in 12 s")] && next == .again(after: .seconds(12)))
        let again = state.receivingFailed(Self.refused(429, "too_many_requests", "Too many", 11), random: 1)
        #expect(again.0 == [] && again.1 == .again(after: .seconds(11)))
        // A proxy answers while the relay restarts.
        for status in [502, 404, 200] {
            let error =
                status == 200
                ? PushChatError.unexpectedResponse("<html>") : Self.refused(status, nil, "status \(status)")
            guard case .again = state.receivingFailed(error, random: 1).1 else {
                Issue.record("\(status) ends the chat")
                continue
            }
        }
    }

    @Test("A permanent error ends the chat with an explanation")
    func over() throws {
        var state = try Self.joined()
        #expect(
            state.receivingFailed(Self.refused(404, "not_joined", "not joined"), random: 1)
                == ([.left(wasRemoved: false)], .end(ChatClientState.gone)))
        #expect(
            state.receivingFailed(Self.refused(401, "unauthorized", "The token has expired"), random: 1).1
                == .end("The token has expired: give a session with --session or PUSHCHAT_SESSION"))
        #expect(state.receivingFailed(Self.refused(403, "forbidden", "Banned"), random: 1).1 == .end("Banned"))
        // At the start, the address may be wrong.
        var fresh = ChatClientState(relay: "http://relay", endsWithInput: true)
        #expect(fresh.receivingFailed(Self.refused(404, nil, "status 404"), random: 1).1 == .end("status 404"))
    }

    @Test("/help shows help to a person; from a script it is a message")
    func help() throws {
        var state = try Self.joined()
        #expect(state.typed(.text(" /help "), isInteractive: true, key: "1") == ChatClientState.help)
        #expect(state.drafts.isEmpty)
        #expect(state.typed(.text("/helpme"), isInteractive: true, key: "2") == [])
        #expect(state.typed(.text("/help"), key: "3") == [])
        #expect(state.drafts.map(\.text) == ["/helpme", "/help"])
    }

    // MARK: - Posting

    @Test("Lines are posted in order after the history is shown, each with its key until the relay accepts it")
    func posting() throws {
        var state = ChatClientState(relay: "http://relay", endsWithInput: true)
        for text in ["a", "  ", "b"] { #expect(state.typed(.text(text), key: "key of \(text)") == []) }
        #expect(state.nextDraft == nil)
        state.joined()
        #expect(state.nextDraft == nil)
        _ = state.received(Self.page([], next: 0))
        let first = try #require(state.nextDraft)
        #expect(first == OutboxMessage(id: "key of a", text: "a", writtenAt: first.writtenAt))
        // The relay is killed: the client sends the same line with the same key.
        let (reports, next) = state.postingFailed(first, Self.lost, random: 1)
        #expect(reports == [.note("not sent yet; trying until the relay is back")])
        #expect(next == .again(after: .milliseconds(300)) && state.nextDraft == first)
        let again = state.postingFailed(first, .unreachable, random: 1)
        #expect(again.0 == [] && again.1 == .again(after: .milliseconds(600)) && state.nextDraft == first)
        state.inputEnded()
        state.posted(first)
        let second = try #require(state.nextDraft)
        #expect(!state.isDone && second.text == "b")
        #expect(state.postingFailed(second, Self.lost, random: 1).1 == .again(after: .milliseconds(300)))
        state.posted(second)
        #expect(state.isDone && state.refused == 0)
    }

    @Test(
        "A text that the relay refuses is reported and skipped",
        arguments: [400, 413, 415, 422])
    func refusedText(status: Int) throws {
        var state = try Self.joined()
        let long = String(repeating: "y", count: 300)
        _ = state.typed(.text(long), key: "1")
        _ = state.typed(.text("short"), key: "2")
        let (reports, next) = state.postingFailed(
            try #require(state.nextDraft),
            Self.refused(status, "invalid_field", "Invalid text: must have at most 190 bytes of UTF-8, has 300"),
            random: 1)
        #expect(next == .goOn && state.refused == 1 && state.nextDraft?.text == "short")
        let shown = String(repeating: "y", count: 39) + "…"
        #expect(
            reports == [.note("not sent (\(shown)): Invalid text: must have at most 190 bytes of UTF-8, has 300")])
    }

    @Test("A text that the relay cannot accept now is posted later", arguments: [(429, 7), (503, 2), (500, nil)])
    func later(status: Int, seconds: Int64?) throws {
        var state = try Self.joined()
        _ = state.typed(.text("a"), key: "1")
        let (reports, next) = state.postingFailed(
            try #require(state.nextDraft), Self.refused(status, "unavailable", "Not now", seconds), random: 1)
        #expect(reports == [.note("not sent yet: Not now; trying again")])
        #expect(next == .again(after: seconds.map { .seconds($0) } ?? .milliseconds(300)))
        #expect(state.nextDraft?.id == "1" && state.refused == 0)
    }

    @Test("A removed member posts nothing more")
    func removed() throws {
        var state = try Self.joined()
        _ = state.typed(.text("a"), key: "1")
        let reaction = state.postingFailed(
            try #require(state.nextDraft), Self.refused(404, "not_joined", "not joined"), random: 1)
        #expect(reaction == ([.left(wasRemoved: false)], .end(ChatClientState.gone)))
    }

    @Test("The chat ends with its input unless it follows, and never before the history is shown")
    func done() throws {
        var state = ChatClientState(relay: "http://relay", endsWithInput: true)
        state.inputEnded()
        state.joined()
        #expect(!state.isDone)
        _ = state.received(Self.page([1], next: 1))
        #expect(state.isDone)
        var following = try Self.joined(endsWithInput: false)
        following.inputEnded()
        #expect(!following.isDone)
    }

    @Test("A fast writer waits; a line that is no text counts as refused")
    func input() throws {
        var state = try Self.joined()
        for number in 0..<100 {
            #expect(!state.isFull)
            _ = state.typed(.text("\(number)"), key: "\(number)")
        }
        #expect(state.isFull)
        state.posted(try #require(state.nextDraft))
        #expect(!state.isFull)
        #expect(state.typed(.unusable("it is not UTF-8"), key: "x") == [.note("a line was not sent: it is not UTF-8")])
        #expect(state.refused == 1)
    }
}

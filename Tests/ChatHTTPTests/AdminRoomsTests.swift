import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("The admin API: rooms, messages and failures")
struct AdminRoomsTests {
    private static let room = SecretCode(stored: "our room/1")
    private static let message = MessageRecord(
        message: Message(
            id: 9, sender: MemberID(stored: "6a45"), nickname: "Ann",
            content: MessageContent(stored: "Hello, world", title: "News"), sentAt: Timestamp(seconds: 1)), room: room)
    private static let answers = AdminResponses(
        deliveries: { Page(items: [Given.delivery], next: 17) },
        rooms: {
            RoomPage(
                rooms: [RoomRecord(code: room, members: 2, lastMessage: 9, lastMessageAt: Timestamp(seconds: 1))],
                next: room)
        },
        members: {
            Page(
                items: [
                    MemberRecord(
                        id: 3, nickname: "Bob", token: nil, app: .default, joinedAt: Timestamp(seconds: 2),
                        lastMessageAt: nil, fetchedTo: 9, fetchedAt: Timestamp(seconds: 3), shownTo: 11)
                ], next: nil)
        },
        messages: { Page(items: [message], next: 9) },
        progress: {
            MessageProgress(
                message: message, isQueueing: true, counts: [.sent: 1], readers: 4, shown: 4, fetched: 3,
                fetchedBy: ["Bob"])
        },
        messageDeliveries: { Page(items: [MessageDelivery(delivery: Given.delivery, isFetched: true)], next: nil) },
        reach: { [MessageReach(sent: 2, readers: 4, shown: 4, fetched: 3)] })

    private func call(_ path: String, _ relay: Relay = Relay(ScriptedStore(admin: answers))) async throws -> (
        TestResponse, [ScriptedStore.Call]
    ) {
        let answer = try await AdminTests.call(.get, path, to: relay)
        return (answer, relay.store.calls)
    }

    @Test("The list of rooms can be filtered by the beginning of the code")
    func rooms() async throws {
        let (answer, calls) = try await call("/v1/rooms?prefix=our%20&cursor=our%20a&limit=1")
        #expect(
            answer.text
                == #"{"rooms":[{"code":"our room/1","members":2,"last_message":9,"#
                + #""last_message_at":"1970-01-01T00:00:01.000Z","history":null,"title":null}],"#
                + #""next":"our room/1"}"#)
        #expect(calls == [.rooms("our ", after: SecretCode(stored: "our a"), limit: 1)])
        // Encoded as browsers' URLSearchParams and forms do.
        #expect(
            try await call("/v1/rooms?prefix=our+%2B&cursor=our+a&limit=%31").1
                == [.rooms("our +", after: SecretCode(stored: "our a"), limit: 1)])
        #expect(try await call("/v1/rooms").1 == [.rooms("", after: nil, limit: 100)])
    }

    @Test("A room's history setting can be chosen and reset", arguments: ["joined", "all", nil] as [String?])
    func history(choice: String?) async throws {
        let history = choice.flatMap(RoomHistory.init(rawValue:))
        let relay = Relay(ScriptedStore(admin: AdminResponses(editRoom: { RoomChoices(history: history) })))
        let json = choice.map { "\"\($0)\"" } ?? "null"
        let answer = try await AdminTests.call(
            .patch, "/v1/rooms", #"{"room":"our room/1","history":\#(json)}"#, to: relay)
        #expect(answer.status == .ok && answer.text == #"{"room":"our room/1","history":\#(json),"title":null}"#)
        #expect(relay.store.calls == [.editRoom(Self.room, RoomEdit(history: history.map { .set($0) } ?? .remove))])
    }

    @Test("A room can get a title, and lose it again")
    func title() async throws {
        let title = RoomTitle(stored: "Our \"kitchen\"")
        let relay = Relay(ScriptedStore(admin: AdminResponses(editRoom: { RoomChoices(history: .all, title: title) })))
        let answer = try await AdminTests.call(
            .patch, "/v1/rooms", #"{"room":"our room/1","title":" Our \"kitchen\" "}"#, to: relay)
        #expect(answer.text == #"{"room":"our room/1","history":"all","title":"Our \"kitchen\""}"#)
        _ = try await AdminTests.call(.patch, "/v1/rooms", #"{"room":"our room/1","title":null}"#, to: relay)
        #expect(
            relay.store.calls == [
                .editRoom(Self.room, RoomEdit(title: .set(title))), .editRoom(Self.room, RoomEdit(title: .remove)),
            ])
    }

    @Test(
        "A wrong history or title is named in the error",
        arguments: [
            ("{}", "room"), (#"{"room":"a"}"#, "history"), (#"{"room":"a","history":"some"}"#, "history"),
            (#"{"room":"a","history":7}"#, "history"), (#"{"room":"","history":"all"}"#, "room"),
            (#"{"history":"all"}"#, "room"), (#"{"room":"a","history":"all","name":"x"}"#, "name"),
            (#"{"room":"a","title":""}"#, "title"), (#"{"room":"a","title":7}"#, "title"),
            (#"{"room":"a","title":"a\nb"}"#, "title"),
            (#"{"room":"a","title":"\#(String(repeating: "x", count: 256))"}"#, "title"),
        ])
    func wrongChoice(body: String, field: String) async throws {
        let relay = Relay(ScriptedStore())
        let answer = try await AdminTests.call(.patch, "/v1/rooms", body, to: relay)
        #expect(answer.status == .badRequest && relay.store.calls.isEmpty)
        #expect(try JSONValue(parsing: answer.text).object?["field"]?.text == field)
    }

    @Test("The API lists a room's members without udids, and its messages without texts")
    func inside() async throws {
        let (members, asked) = try await call("/v1/members?room=our%20room%2F1&cursor=2")
        #expect(
            members.text
                == #"{"members":[{"id":3,"name":"Bob","token":null,"app":"default","joined_at":"1970-01-01T00:00:02.000Z","#
                + #""last_message_at":null,"fetched_to":9,"fetched_at":"1970-01-01T00:00:03.000Z","#
                + #""shown_to":11}],"next":null}"#)
        #expect(asked == [.members(Self.room, after: 2, limit: 100)])
        let (messages, calls) = try await call("/v1/messages?room=our%20room%2F1&limit=2")
        #expect(
            messages.text
                == #"{"messages":[{"id":9,"room":"our room/1","name":"Ann","bytes":12,"sent_at":"1970-01-01T00:00:01.000Z"}],"#
                + #""next":9}"#)
        #expect(calls == [.roomMessages(Self.room, .newestFirst(before: nil), limit: 2)])
        let (found, searches) = try await call("/v1/messages?room=our%20room%2F1&search=HELLO&cursor=12&limit=2")
        #expect(found.text == messages.text)
        let search = MessageSearch(try SearchText(parsing: "hello"), in: .room(Self.room), before: 12)
        #expect(searches == [.search(search, limit: 2)])
        let (reach, asking) = try await call("/v1/messages?room=our%20room%2F1&limit=2&reach=true")
        #expect(reach.text.contains(#""sent_at":"1970-01-01T00:00:01.000Z","sent":2,"readers":4,"fetched":3}]"#))
        #expect(asking.last == .reach([9]))
    }

    @Test("A message's progress shows queued, accepted and fetched")
    func progress() async throws {
        let (answer, calls) = try await call("/v1/messages/9?limit=5")
        #expect(
            answer.text.hasPrefix(
                #"{"id":9,"room":"our room/1","name":"Ann","bytes":12,"sent_at":"1970-01-01T00:00:01.000Z","queueing":true,"#
                    + #""counts":{"pending":0,"sent":1,"failed":0,"expired":0,"cancelled":0},"readers":4,"#
                    + #""shown":4,"fetched":3,"fetched_by":["Bob"],"deliveries":[{"id":17,"#))
        #expect(answer.text.hasSuffix(#""apns_id":"id","fetched":true}],"next":null}"#))
        #expect(calls == [.progress(9), .messageDeliveries(9, after: nil, limit: 5)])
    }

    @Test("The API lists the last failures and the log's last warnings")
    func failures() async throws {
        let (answer, calls) = try await call("/v1/failures?app=98Z3R5XU29.com.51work6.PushChat&cursor=20")
        #expect(answer.text.hasPrefix(#"{"deliveries":[{"id":17,"#) && answer.text.hasSuffix(#""next":17}"#))
        #expect(calls == [.failures(AppName("second"), before: 20, limit: 100)])
        var relay = Relay(ScriptedStore())
        relay.recentWarnings = [.object(["level": .string("warning"), "message": .string("no progress")])]
        let (warnings, _) = try await call("/v1/warnings", relay)
        #expect(warnings.text == #"{"warnings":[{"level":"warning","message":"no progress"}]}"#)
    }

    @Test(
        "The error names an invalid value, and nothing is read",
        arguments: [
            ("/v1/members", "room"), ("/v1/members?room=", "room"), ("/v1/messages", "room"),
            ("/v1/messages?room=a&search=", "search"), ("/v1/messages?room=a&search=b&since=1", "since"),
            ("/v1/messages?room=a&cursor=x", "cursor"), ("/v1/messages?room=a&reach=1", "reach"),
            ("/v1/messages?room=a&reach=true&limit=101", "limit"), ("/v1/messages/x", "room"),
            ("/v1/messages/9?state=sent", "state"),
            ("/v1/rooms?limit=501", "limit"), ("/v1/rooms?cursor=%00", "cursor"),
            ("/v1/rooms?prefix=%FF", "prefix"), ("/v1/rooms?limit", "limit"),
            ("/v1/rooms?prefix=", "prefix"),
            ("/v1/rooms?room=a", "room"), ("/v1/failures?app=no", "app"), ("/v1/warnings?limit=1", "limit"),
        ])
    func refused(path: String, field: String) async throws {
        let (answer, calls) = try await call(path, Relay(ScriptedStore()))
        #expect(answer.status == .badRequest)
        #expect(try JSONValue(parsing: answer.text).object?["field"]?.text == field, "\(answer.text)")
        #expect(calls.isEmpty)
    }
}

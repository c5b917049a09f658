import Foundation
import Testing

@testable import PushChatCore

@Suite("The stream of events") struct ServerSentEventTests {
    @Test("Events are read in pieces of any size", arguments: [1, 2, 7, 1000])
    func events(piece: Int) throws {
        let stream =
            "retry: 2000\nid: 41\n\n:\n\n: comment\nevent: room\r\ndata: {\"members\":3}\r\n\r\n"
            + "event: message\nid: 42\ndata: {\"text\":\ndata: \u{308}\"é\"}\n\nevent: left\ndata\n\nid: 4"
        let bytes = Array(stream.utf8)
        var parser = ServerSentEventParser()
        var events: [ServerSentEvent] = []
        for start in stride(from: 0, to: bytes.count, by: piece) {
            events += try parser.read(bytes[start..<min(start + piece, bytes.count)])
        }
        #expect(
            events == [
                ServerSentEvent(id: "41"), ServerSentEvent(name: "room", data: #"{"members":3}"#),
                ServerSentEvent(id: "42", data: "{\"text\":\n\u{308}\"é\"}"), ServerSentEvent(name: "left"),
            ])
    }

    @Test("A stream whose event does not end, or that is not UTF-8, is refused")
    func endless() {
        var parser = ServerSentEventParser()
        #expect(throws: PushChatError.self) {
            for _ in 0...ServerSentEventParser.maximumEvent / 1000 {
                _ = try parser.read(Array(repeating: UInt8(ascii: "x"), count: 999) + [UInt8(ascii: "\n")] + [0x3A])
            }
        }
        var other = ServerSentEventParser()
        #expect(throws: PushChatError.self) { try other.read([0x64, 0xFF, 0x0A]) }
    }

    @Test("Each event of the relay is read; an unknown one is skipped, a malformed one is an error")
    func meaning() throws {
        func read(_ name: String, _ data: String, id: String? = nil) throws -> RoomStreamEvent {
            try RoomStreamEvent(ServerSentEvent(name: name, id: id, data: data))
        }
        #expect(try read("message", "", id: "41") == .began(41))
        #expect(try read("room", #"{"members":3}"#) == .members(3))
        #expect(try read("deleted", #"{"id":3}"#) == .deleted(3, number: nil))
        #expect(try read("deleted", #"{"id":3}"#, id: "9") == .deleted(3, number: 9))
        let message = ChatMessage(
            id: 3, name: "cron", text: "up", sentAt: Date(timeIntervalSince1970: 1_795_348_800), isFromProgram: true,
            change: .init(.resolved, at: Date(timeIntervalSince1970: 1_795_348_860)))
        let json =
            #"{"id":3,"name":"cron","text":"up","sent_at":"2026-11-22T12:00:00.000Z","own":false,"program":true,"#
            + #""key":"disk","revision":4,"resolved_at":"2026-11-22T12:01:00.000Z"}"#
        for kind in ChatMessage.Change.Kind.allCases {
            #expect(try read(kind.rawValue, json, id: "9") == .changed(message, kind, number: 9))
            // Without a number, a client could not continue after it.
            #expect(try read(kind.rawValue, json) == .unknown)
        }
        #expect(try JSONDecoder().decode(ChatMessage.self, from: JSONEncoder().encode(message)) == message)
        #expect(try read("code", #"{"code":"new"}"#) == .moved("new"))
        #expect(try read("left", "{}") == .left(wasRemoved: false))
        #expect(try read("left", #"{"reason":"removed"}"#) == .left(wasRemoved: true))
        #expect(
            try read("receipt", #"{"id":3,"reached":2,"read":1,"read_by":["Bob"]}"#)
                == .receipt(ChatReceipt(id: 3, reached: 2, read: 1, readBy: ["Bob"])))
        #expect(try read("weather", "sun") == .unknown)
        for (name, data) in [("room", "{}"), ("message", "nonsense"), ("code", #"{"code":1}"#)] {
            #expect(throws: PushChatError.self) { try read(name, data) }
        }
    }
}

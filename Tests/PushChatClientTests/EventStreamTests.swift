import Testing

@testable import PushChatClient

@Suite("The stream of events") struct EventStreamTests {
    @Test("Events are read in pieces of any size", arguments: [1, 2, 7, 1000])
    func events(piece: Int) throws {
        let stream =
            "retry: 2000\nid: 41\n\n:\n\n: comment\nevent: room\r\ndata: {\"members\":3}\r\n\r\n"
            + "event: message\nid: 42\ndata: {\"text\":\ndata: \u{308}\"é\"}\n\nevent: left\ndata\n\nid: 4"
        let bytes = Array(stream.utf8)
        var parser = EventStreamParser()
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
        var parser = EventStreamParser()
        #expect(throws: CallFailure.self) {
            for _ in 0...EventStreamParser.maximumEvent / 1000 {
                _ = try parser.read(Array(repeating: UInt8(ascii: "x"), count: 999) + [UInt8(ascii: "\n")] + [0x3A])
            }
        }
        var other = EventStreamParser()
        #expect(throws: CallFailure.self) { try other.read([0x64, 0xFF, 0x0A]) }
    }
}

import Foundation
import Testing

@testable import PushChatCore

@Suite("The attributes of a Live Activity")
struct PushChatActivityAttributesTests {
    typealias State = PushChatActivityAttributes.ContentState

    @Test("A default decoder reads what the relay sends")
    func decoding() throws {
        let json =
            #"{"title":"Order","text":"Baking","progress":0.5,"steps":{"done":2,"total":4},"ends_at":1800000000,"x":1}"#
        let state = try JSONDecoder().decode(State.self, from: Data(json.utf8))
        #expect(
            state
                == State(
                    title: "Order", text: "Baking", progress: 0.5, steps: .init(done: 2, total: 4),
                    endsAt: Date(timeIntervalSince1970: 1_800_000_000)))
        #expect(try JSONDecoder().decode(State.self, from: Data("{}".utf8)) == State())
        let attributes = try JSONDecoder().decode(
            PushChatActivityAttributes.self, from: Data(#"{"number":17,"tag":"order-17"}"#.utf8))
        #expect(attributes == PushChatActivityAttributes(tag: "order-17"))
    }

    @Test("Encoding and decoding keeps the state")
    func encoding() throws {
        let state = State(title: "Order", endsAt: Date(timeIntervalSince1970: 1_800_000_000.5))
        let json = try JSONEncoder().encode(state)
        #expect(try JSONDecoder().decode(State.self, from: json) == state)
        let object = try #require(try JSONSerialization.jsonObject(with: json) as? [String: Any])
        #expect(object["ends_at"] as? Double == 1_800_000_000.5)
        #expect(object.count == 2)
    }

    @Test("The name is that of the type")
    func name() {
        #expect(PushChatActivityAttributes.typeName == "\(PushChatActivityAttributes.self)")
    }
}

import Foundation

/// An event of a room's stream, as the relay sends it.
package enum RoomStreamEvent: Sendable, Hashable {
    /// The stream begins after this message.
    case began(Int64)
    case message(ChatMessage)
    case members(Int)
    /// A message has another form. `number` is the change's.
    case changed(ChatMessage, ChatMessage.Change.Kind, number: Int64)
    /// - Parameter number: The change's. `nil` from relays before 0.6.
    case deleted(Int64, number: Int64?)
    case receipt(ChatReceipt)
    case moved(String)
    case left(wasRemoved: Bool)
    case unknown

    private struct Members: Decodable { let members: Int }
    private struct Deleted: Decodable { let id: Int64 }
    private struct Moved: Decodable { let code: String }
    private struct Left: Decodable { let reason: String? }

    package init(_ event: ServerSentEvent) throws(PushChatError) {
        switch event.name {
        case "message" where event.data.isEmpty:
            // A comment or an event without a position says nothing.
            guard let start = event.position else {
                self = .unknown
                return
            }
            self = .began(start)
        case "message": self = .message(try Self.read(event))
        case "room": self = .members((try Self.read(event) as Members).members)
        case "edited", "cleared", "resolved":
            guard let number = event.position, let kind = ChatMessage.Change.Kind(rawValue: event.name) else {
                self = .unknown
                return
            }
            self = .changed(try Self.read(event), kind, number: number)
        case "deleted": self = .deleted((try Self.read(event) as Deleted).id, number: event.position)
        case "receipt": self = .receipt(try Self.read(event))
        case "code": self = .moved((try Self.read(event) as Moved).code)
        case "left": self = .left(wasRemoved: (try Self.read(event) as Left).reason == "removed")
        default: self = .unknown
        }
    }

    private static func read<Value: Decodable>(_ event: ServerSentEvent) throws(PushChatError) -> Value {
        do {
            return try JSONDecoder().decode(Value.self, from: Data(event.data.utf8))
        } catch {
            throw .unexpectedResponse("the event \(event.name): \(event.data.prefix(200))")
        }
    }
}

extension ServerSentEvent {
    fileprivate var position: Int64? { id.flatMap { Int64($0) } }
}

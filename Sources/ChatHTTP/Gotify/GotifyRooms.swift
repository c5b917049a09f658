import ChatDomain
import Hummingbird
import WebAssets

/// Gotify's applications. Each is a room.
extension GotifyAPI {
    /// The maximum number of rooms in the list.
    static let maxRooms = 200
    /// The path of the rooms' image below `/gotify`. Apps load it without a credential.
    static let image = "static/defaultapp.png"
    static let imageFile = WebFile("/" + image, "image/png", WebFile.embedded("icon-192.png"))

    /// `GET /gotify/application`: the rooms that the caller may read.
    func rooms(_ request: Request, _ context: ChatContext) async throws -> Response {
        let caller = try admitted(request, context)
        let rooms =
            if let room = caller.onlyRoom { [try await clients.room(room)] } else {
                try await clients.rooms(after: nil, limit: Self.maxRooms).items
            }
        return Responses.json(rooms.map(Self.json))
    }

    private static func json(_ room: ClientRoom) -> JSONObject {
        [
            "id": .number(room.id),
            // Some apps require this member.
            "token": .string(""), "name": .string(room.title?.text ?? room.code.text), "description": .string(""),
            "internal": .bool(false), "image": .string(image), "defaultPriority": .number(usualPriority),
            "createdAt": .time(room.createdAt), "lastUsed": .null, "sortKey": .string(sortKey(room.id)),
        ]
    }

    /// Returns a text that sorts like the number.
    private static func sortKey(_ id: Int64) -> String {
        let digits = String(id)
        return String(repeating: "0", count: max(0, 10 - digits.count)) + digits
    }

    /// `POST`, `PUT` and `DELETE /gotify/application`
    func rejectChange(_ request: Request, _ context: ChatContext) throws -> Response {
        _ = try admitted(request, context)
        throw ChatError(
            .forbidden,
            "An application is a room here: join a room to create it, and create a token for it (pushchat token create)"
        )
    }

    /// Returns a room that the caller may read. A foreign room is as unknown as one that does not exist.
    func room(_ id: Int64, of caller: Caller) async throws(ChatError) -> ClientRoom {
        guard let room = try await clients.room(id: id), caller.reads(room.code) else {
            throw ChatError.notFound("application")
        }
        return room
    }
}

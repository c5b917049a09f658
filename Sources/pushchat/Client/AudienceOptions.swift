import ArgumentParser
import ChatDomain

/// Whom a notification is for, as flags: one of the ways.
struct AudienceOptions: ParsableArguments {
    @Option(help: ArgumentHelp("A device; repeatable.", valueName: "token"))
    var token: [String] = []

    @Option(help: ArgumentHelp("All devices of a user; repeatable.", valueName: "reference"))
    var user: [String] = []

    @Option(help: ArgumentHelp("All devices with a tag; repeatable.", valueName: "tag"))
    var tag: [String] = []

    @Option(help: ArgumentHelp("The members of a chat room.", valueName: "code"))
    var room: String?

    @Flag(help: "Every device.")
    var all = false

    func validate() throws {
        let ways = [!token.isEmpty, !user.isEmpty, !tag.isEmpty, room != nil, all].filter { $0 }.count
        guard ways == 1 else {
            throw ValidationError("Say whom it is for with one of --token, --user, --tag, --room, --all.")
        }
    }

    /// The member `to` of the admin API.
    var json: JSONObject {
        func list(_ texts: [String]) -> JSONValue { .array(texts.map { .string($0) }) }
        if !token.isEmpty { return ["tokens": list(token)] }
        if !user.isEmpty { return ["users": list(user)] }
        if !tag.isEmpty { return ["tags": list(tag)] }
        if let room { return ["room": .string(room)] }
        return ["all": .bool(true)]
    }
}

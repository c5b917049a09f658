import ArgumentParser
import ChatDomain

/// `pushchat rooms`
struct Rooms: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the rooms that somebody is in, by their codes.", discussion: "With --json an object a line.")

    @Argument(help: .value("prefix", "Only those whose code begins so.")) var prefix: String?
    @OptionGroup var list: ListOptions
    @Flag(help: "As JSON, an object a line.") var json = false
    @OptionGroup(title: "The relay") var caller: CallerOptions

    func run() async throws {
        try await list.print(
            ["ROOM", "MEMBERS", "MESSAGE", "AT"], json: json, of: caller, "/v1/rooms", "rooms", [("prefix", prefix)]
        ) { room in
            ["code", "members", "last_message", "last_message_at"].map { room.cell($0) }
        }
    }
}

/// `pushchat members`
struct Members: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the members of a room, in the order of their coming.",
        discussion: "FETCHED is the last message that a member has fetched. With --json an object a line.")

    @Argument(help: .value("code", "The room's secret code.")) var code: String
    @OptionGroup var list: ListOptions
    @Flag(help: "As JSON, an object a line.") var json = false
    @OptionGroup(title: "The relay") var caller: CallerOptions

    func run() async throws {
        try await list.print(
            ["NAME", "TOKEN", "APP", "JOINED", "FETCHED", "AT"], json: json, of: caller, "/v1/members", "members",
            [("room", code)]
        ) { member in
            ["name", "token", "app", "joined_at", "fetched_to", "fetched_at"].map { member.cell($0) }
        }
    }
}

/// `pushchat messages`
struct Messages: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the messages of a room, the newest first, without their texts.",
        discussion: "What was said is for the members: pushchat chat. With --json an object a line.")

    @Argument(help: .value("code", "The room's secret code.")) var code: String
    @OptionGroup var list: ListOptions
    @Flag(help: "As JSON, an object a line.") var json = false
    @OptionGroup(title: "The relay") var caller: CallerOptions

    func run() async throws {
        try await list.print(
            ["ID", "NAME", "BYTES", "SENT"], json: json, of: caller, "/v1/messages", "messages", [("room", code)]
        ) { message in
            ["id", "name", "bytes", "sent_at"].map { message.cell($0) }
        }
    }
}

extension ListOptions {
    /// Prints a list of the admin API.
    /// - Parameter member: the member of the answer that has the items.
    fileprivate func print(
        _ header: [String], json: Bool, of caller: CallerOptions, _ path: String, _ member: String,
        _ query: [(String, String?)], row: (JSONObject) -> [String]
    ) async throws {
        let client = try caller.client()
        try await print(header, json: json, row: row) { cursor, size in
            let path = path.adding(query + [("limit", "\(size)"), ("cursor", cursor)])
            return try await client.call(.GET, path).page(of: member)
        }
    }
}

extension JSONObject {
    /// A text or a number in a table; empty where there is none.
    fileprivate func cell(_ name: String) -> String {
        self[name]?.text ?? self[name]?.integer.map(String.init) ?? ""
    }
}

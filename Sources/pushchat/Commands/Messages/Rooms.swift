import ArgumentParser
import ChatDomain

/// `pushchat rooms`
struct Rooms: AsyncParsableCommand, ListingCommands {
    static let configuration = CommandConfiguration(
        abstract: "The rooms by code; close one, open it again, choose its title or history, or give it a new code.",
        discussion: """
            pushchat rooms tea lists the rooms whose code begins with tea. If a code is the name of
            a command, put list before it: pushchat rooms list open
            """, subcommands: [List.self, Close.self, Open.self, Set.self, History.self, Recode.self],
        defaultSubcommand: List.self)

    /// `pushchat rooms list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the rooms that have members or messages.",
            discussion: "With --json, one object per line.")

        @Argument(help: .value("prefix", "Only rooms whose code begins with this.")) var prefix: String?
        @OptionGroup var list: ListOptions
        @Flag(help: "As JSON, one object per line.") var json = false
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            try await list.print(
                ["ROOM", "MEMBERS", "MESSAGE", "AT", "TITLE"], json: json, of: caller, "/v1/rooms", "rooms",
                [("prefix", prefix)]
            ) { room in
                room.cells("code", "members", "last_message", "last_message_at", "title")
            }
        }
    }

    /// `pushchat rooms close`
    struct Close: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Close a room: remove all members, and refuse joins and posts.")

        @Argument(help: .value("code", "The room's secret code.")) var code: String
        @OptionGroup var ban: BanOptions
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            let closed = try await ban.make(["closed": .bool(true), "room": .string(code)], by: caller)
            Output.note("the room is closed\(closed.cell("ends_at", after: " until "))")
        }
    }

    /// `pushchat rooms history`
    struct History: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Choose which messages new members of a room may read.",
            discussion: """
                all: all stored messages, for example in an operations room. joined: messages
                that are posted after they joined. default: as the setting messages.history says.
                """)

        enum Choice: String, ExpressibleByArgument, CaseIterable {
            case all, joined, `default`
        }

        @Argument(help: .value("code", "The room's secret code.")) var code: String
        @Argument(help: .value("history", "all, joined or default.")) var history: Choice
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            let choice: JSONValue = history == .default ? .null : .string(history.rawValue)
            _ = try await caller.client().call(.PATCH, "/v1/rooms", ["room": .string(code), "history": choice])
            Output.note("the history of the room is set: \(history.rawValue)")
        }
    }

    /// `pushchat rooms set`
    struct Set: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Choose a room's title, which people see instead of its code.",
            discussion: "The members' pages show a new title at once. The room need not have members.")

        @Argument(help: .value("code", "The room's secret code.")) var code: String
        @Option(help: .value("text", "The title.")) var title: String?
        @Flag(help: "Remove the title, so that people see the code.") var noTitle = false
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func validate() throws {
            guard (title != nil) != noTitle else { throw ValidationError("name --title or --no-title") }
        }

        func run() async throws {
            _ = try await caller.client().call(
                .PATCH, "/v1/rooms", ["room": .string(code), "title": .optional(title)])
            Output.note(title == nil ? "the room has no title" : "the title of the room is set")
        }
    }

    /// `pushchat rooms open`
    struct Open: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Open a room that was closed.")

        @Argument(help: .value("code", "The room's secret code.")) var code: String
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            let client = try caller.client()
            var closed: [Int64] = []
            var cursor: String?
            repeat {
                let path = "/v1/bans".adding([("room", code), ("limit", "500"), ("cursor", cursor)])
                let page = try await client.call(.GET, path).page(of: "bans")
                closed += page.items.filter { $0["closed"] == .bool(true) && $0["ended"] == .bool(false) }
                    .compactMap { $0["id"]?.integer }
                cursor = page.next
            } while cursor != nil
            guard !closed.isEmpty else { throw Failure("the room is not closed") }
            for id in closed { _ = try await client.call(.DELETE, "/v1/bans/\(id)", isRepeatable: false) }
            Output.note("the room is open")
        }
    }
}

extension Rooms {
    /// `pushchat rooms recode`
    struct Recode: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Give a room a new code, and close the old one.",
            discussion: """
                Members who are not banned, the history, bans and tokens move to the new code.
                Connected members learn the new code from the relay. You have to tell it to the others.
                """)

        @Argument(help: .value("code", "The room's secret code.")) var code: String
        @Argument(help: .value("new-code", "The new code; by default one that cannot be guessed.")) var newCode: String?
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            var body: JSONObject = ["room": .string(code)]
            body["code"] = newCode.map { .string($0) }
            let response = try await caller.client().call(.POST, "/v1/rooms:recode", body, isRepeatable: false)
            guard let room = response.object else { throw Failure("unexpected response from the relay") }
            print(room.cell("code").oneLine)
            Output.note("the room has a new code; members in it: \(room.cell("members"))")
        }
    }
}

/// `pushchat members`
struct Members: AsyncParsableCommand, ListingCommands {
    static let configuration = CommandConfiguration(
        abstract: "The members of a room; remove or ban one.",
        discussion: """
            pushchat members tea lists the members of the room tea. If a code is the name of a
            command, put list before it: pushchat members list remove
            """, subcommands: [List.self, Remove.self, Ban.self], defaultSubcommand: List.self)

    /// `pushchat members list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the members of a room, in the order in which they joined.",
            discussion: "FETCHED is the last message that a member has fetched. With --json, one object per line.")

        @Argument(help: .value("code", "The room's secret code.")) var code: String
        @OptionGroup var list: ListOptions
        @Flag(help: "As JSON, one object per line.") var json = false
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            try await list.print(
                ["ID", "NAME", "TOKEN", "APP", "JOINED", "FETCHED", "AT"], json: json, of: caller, "/v1/members",
                "members", [("room", code)]
            ) { member in
                member.cells("id", "name", "token", "app", "joined_at", "fetched_to", "fetched_at")
            }
        }
    }

    /// `pushchat members remove`
    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove a member from its room. It may join again; to prevent that, ban it.")

        @Argument(help: "The member's id, from pushchat members CODE.") var id: Int64
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            _ = try await caller.client().call(.DELETE, "/v1/members/\(id)", isRepeatable: false)
            Output.note("the member is removed")
        }
    }

    /// `pushchat members ban`
    struct Ban: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove a member, and keep its udid and its device out of the room.",
            discussion: "With --address, also keep out all clients from its address (with IPv6, from its /64 network).")

        @Argument(help: "The member's id, from pushchat members CODE.") var id: Int64
        @Flag(help: "Ban it from every room, not only from this one.") var everywhere = false
        @Flag(help: "Also ban the address of its last request.") var address = false
        @OptionGroup var ban: BanOptions
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            let made = try await ban.make(
                ["member": .number(id), "everywhere": .bool(everywhere), "address": .bool(address)], by: caller)
            Output.note("ban \(made.cell("id"))\(made.cell("ends_at", after: " until "))")
        }
    }
}

/// `pushchat messages`
struct Messages: AsyncParsableCommand, ListingCommands {
    static let configuration = CommandConfiguration(
        abstract: "The messages of a room, and those for later; delete one.",
        discussion: """
            pushchat messages tea lists the messages of the room tea, and with --scheduled those
            that the relay will post later. If a code is the name of a
            command, put list before it: pushchat messages list delete
            """, subcommands: [List.self, Delete.self], defaultSubcommand: List.self)

    /// `pushchat messages list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the messages of a room, the newest first, without their texts.",
            discussion: """
                Shows texts, which are meant for the members, only with --text. With --json,
                one object per line.

                With --scheduled, lists the messages of post --at that are not posted yet:
                those of the token, or for the operator all. DUE is empty for one that was due
                before a restore; it waits until a post gives it another time.
                """)

        @Argument(help: .value("code", "The room's secret code.")) var code: String
        @OptionGroup var list: ListOptions
        @Flag(help: "Only the messages for later, in the order in which they were given.") var scheduled = false
        @Option(help: .value("text", "Only messages that contain this, in upper or lower case.")) var search: String?
        @Flag(help: "Show the texts, as the last column.") var text = false
        @Flag(help: "As JSON, one object per line.") var json = false
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func validate() throws {
            guard !scheduled || search == nil else { throw ValidationError("--search has no meaning with --scheduled") }
        }

        func run() async throws {
            if scheduled { return try await printScheduled() }
            try await list.print(
                ["ID", "NAME", "BYTES", "SENT"] + (text ? ["TEXT"] : []), json: json, of: caller, "/v1/messages",
                "messages", [("room", code), ("search", search), ("text", text ? "true" : nil)]
            ) { message in
                message.cells("id", "name", "bytes", "sent_at") + (text ? [message.cell("text")] : [])
            }
        }

        /// The fields of a message for later that are for its readers.
        private static let content = ["text", "title", "link", "tags", "markdown", "icon"]

        private func printScheduled() async throws {
            try await list.print(
                ["ID", "KEY", "NAME", "DUE"] + (text ? ["TEXT"] : []), json: json, of: caller, "/v1/messages",
                "scheduled", [("scheduled", "true"), ("room", code)], without: text ? [] : Self.content
            ) { message in
                let due = message["held"] == .bool(true) ? "" : message.cell("not_before")
                return message.cells("id", "key", "name") + [due] + (text ? [message.cell("text")] : [])
            }
        }
    }

    /// `pushchat messages delete`
    struct Delete: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Delete a message from the history, the streams and all pushes that are not sent yet.",
            discussion: "Cancels a message that post --at has given for later.")

        @Argument(help: .value("id", "The message's id; with --room also the name that post --update gave it."))
        var message: String
        @Option(help: .value("code", "The secret code of the message's room.")) var room: String?
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func validate() throws {
            let reference = try validated { () throws(ChatError) in
                try MessageReference(parsing: message, field: "<id>")
            }
            if case .key = reference, room == nil {
                throw ValidationError("\(message) is a name, not an id: a name needs --room")
            }
        }

        func run() async throws {
            // A valid name has no characters that a path would have to escape.
            let path = "/v1/messages/\(message)".adding([("room", room)])
            _ = try await caller.client().call(.DELETE, path, isRepeatable: false)
            Output.note("the message is deleted")
        }
    }
}

/// `pushchat bans`
struct Bans: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Bans from rooms, and rooms that are closed.", subcommands: [List.self, End.self],
        defaultSubcommand: List.self)

    /// `pushchat bans list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List bans, the newest first, including ended ones.",
            discussion: "STATE is banned, closed or ended. With --json, one object per line.")

        @Option(help: .value("code", "Only bans from this room.")) var room: String?
        @OptionGroup var list: ListOptions
        @Flag(help: "As JSON, one object per line.") var json = false
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            try await list.print(
                ["ID", "ROOM", "STATE", "NAME", "DEVICE", "REASON", "MADE", "ENDS", "ADDRESS"], json: json, of: caller,
                "/v1/bans",
                "bans", [("room", room)]
            ) { ban in
                let state =
                    ban["ended"] == .bool(true) ? "ended" : ban["closed"] == .bool(true) ? "closed" : "banned"
                return ban.cells("id", "room") + [state]
                    + ban.cells("name", "device", "reason", "created_at", "ends_at", "address")
            }
        }
    }

    /// `pushchat bans end`
    struct End: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "End a ban now. This opens a closed room.")

        @Argument(help: "The ban's id.") var id: Int64
        @OptionGroup(title: "The relay") var caller: CallerOptions

        func run() async throws {
            _ = try await caller.client().call(.DELETE, "/v1/bans/\(id)", isRepeatable: false)
            Output.note("the ban has ended")
        }
    }
}

/// The duration of a ban, and its reason.
struct BanOptions: ParsableArguments {
    @Option(name: .customLong("for"), help: .value("duration", "The duration, like 7d; by default it never ends."))
    var time: String?
    @Option(help: .value("text", "The reason, which lists of bans show.")) var reason: String?

    func validate() throws {
        guard let time else { return }
        guard let duration = DurationText.duration(time), duration <= Timestamp.longestTerm else {
            throw ValidationError("--for \(time): must be a duration like 7d, at most ten years")
        }
    }

    /// Creates a ban, or closes a room.
    ///
    /// - Returns: The ban, as the relay returns it.
    fileprivate func make(_ subject: JSONObject, by caller: CallerOptions) async throws -> JSONObject {
        var body = subject
        body["ends_at"] = time.flatMap(DurationText.duration).map { .time(Timestamp.now() + $0) }
        body["reason"] = reason.map { .string($0) }
        let response = try await caller.client().call(.POST, "/v1/bans", body, isRepeatable: false)
        return response.object ?? JSONObject()
    }
}

extension ListOptions {
    /// Prints a list of the admin API.
    ///
    /// - Parameters:
    ///   - member: The member of the response that contains the items.
    ///   - hidden: The members of the items that are not printed.
    fileprivate func print(
        _ header: [String], json: Bool, of caller: CallerOptions, _ path: String, _ member: String,
        _ query: [(String, String?)], without hidden: [String] = [], row: (JSONObject) -> [String]
    ) async throws {
        let client = try caller.client()
        try await print(header, json: json, row: row) { cursor, size in
            let path = path.adding(query + [("limit", "\(size)"), ("cursor", cursor)])
            var page = try await client.call(.GET, path).page(of: member)
            for index in page.items.indices { for name in hidden { page.items[index][name] = nil } }
            return page
        }
    }
}

import ArgumentParser
import ChatDomain
import Foundation

/// `pushchat token`
struct Token: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Tokens with which programs call the relay.",
        discussion: "In the database, beside a running relay or without one. The relay notices every change at once.",
        subcommands: [Create.self, List.self, Revoke.self], defaultSubcommand: List.self)

    /// `pushchat token create`
    struct Create: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Make a token, and print it: the only time that it can be seen.",
            discussion: """
                What it may do:
                  post     write messages; only to --room, where that is given
                  read     read messages; only those of --room, where that is given
                  send     send notifications; only to --room, --user or --tag, where these are given
                  metrics  read totals, the queue's depth and metrics
                  admin    everything

                For example: pushchat token create --name backup --room kitchen --may post
                """)

        @Option(help: .value("name", "What it is called; it also signs the messages.")) var name: String
        @Option(
            help: .value("scope", "What it may do; repeatable."), completion: .list(Scope.allCases.map(\.rawValue)))
        var may: [String]
        @Option(help: .value("code", "Only in this room.")) var room: String?
        @Option(help: .value("reference", "Sends only to this user; repeatable.")) var user: [String] = []
        @Option(help: .value("tag", "Sends only to devices with this tag; repeatable.")) var tag: [String] = []
        @Option(help: .value("duration", "Ends after this time, as 90d; unless given, never.")) var expires: String?
        @Flag(help: "The token and what is known of it, as JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let (name, grant, end) = try request()
            let (token, secret) = try await options.withStores { stores in
                try await stores.tokens.create(name, grant, expiresAt: end)
            }
            guard json else { return print(secret) }
            var object = token.json
            object["token"] = .string(secret)
            Output.print(json: .object(object))
        }

        private func request() throws -> (Nickname, AccessGrant, Timestamp?) {
            do throws(ChatError) {
                guard user.isEmpty || tag.isEmpty else {
                    throw .invalid("--user", "cannot go together with --tag")
                }
                var audience: Audience?
                if !user.isEmpty {
                    audience = .users(
                        try user.map { text throws(ChatError) in try UserReference(parsing: text, field: "--user") })
                } else if !tag.isEmpty {
                    audience = .tags(try tag.map { text throws(ChatError) in try Tag(parsing: text, field: "--tag") })
                }
                let grant = try AccessGrant(
                    scopes: Set(may.map { text throws(ChatError) in try Scope(parsing: text, field: "--may") }),
                    room: room.map { text throws(ChatError) in try SecretCode(parsing: text, field: "--room") },
                    audience: audience)
                return (try AccessToken.name(name, field: "--name"), grant, try end())
            } catch {
                throw ValidationError(error.message)
            }
        }

        private func end() throws(ChatError) -> Timestamp? {
            guard let expires else { return nil }
            guard let duration = DurationText.duration(expires), duration > .zero, duration <= Timestamp.longestTerm
            else { throw .invalid("--expires", "must be a duration like 90d, at most ten years") }
            return Timestamp.now() + duration
        }
    }

    /// `pushchat token list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List tokens: what they may do, and when and from where they were used.",
            discussion: "With --json an object a line.")

        @OptionGroup var list: ListOptions
        @Flag(help: "As JSON, an object a line.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let header = ["ID", "NAME", "MAY", "ROOM", "TO", "EXPIRES", "LAST USED", "FROM"]
            try await options.withStores { stores in
                try await list.print(header, json: json) { token in
                    [
                        token["id"]?.integer.map(String.init) ?? "", token["name"]?.text ?? "",
                        token["scopes"]?.array?.compactMap(\.text).joined(separator: ",") ?? "",
                        token["room"]?.text ?? "", token["to"].flatMap { $0 == .null ? nil : "\($0)" } ?? "",
                        token["expires_at"]?.text ?? "", token["last_used_at"]?.text ?? "",
                        token["last_used_from"]?.text ?? "",
                    ]
                } page: { cursor, size in
                    let page = try await stores.tokens.tokens(after: cursor, limit: size)
                    return (page.items.map(\.json), page.next)
                }
            }
        }
    }

    /// `pushchat token revoke`
    struct Revoke: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "End a token at once.")

        @Argument(help: "The token's name, or its id.") var token: String
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let name = try await options.withStores { stores in
                var cursor: Int64?
                repeat {
                    let page = try await stores.tokens.tokens(after: cursor, limit: 500)
                    // A name may look like a number. Names take precedence over ids.
                    if let named = page.items.first(where: { $0.name.text == token }) {
                        return try await stores.tokens.revoke(named.id)
                    }
                    cursor = page.next
                } while cursor != nil
                guard let id = Int64(token) else { return nil }
                return try await stores.tokens.revoke(id)
            }
            guard let name else { throw Failure("there is no token \(token)") }
            Output.note("\(name.text) is revoked")
        }
    }
}

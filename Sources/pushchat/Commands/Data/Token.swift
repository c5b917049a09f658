import ArgumentParser
import ChatDomain
import Foundation

extension AccessToken.Form: ExpressibleByArgument {}

/// `pushchat token`
struct Token: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Access tokens of programs that call the relay.",
        discussion:
            "Works on the database, whether a relay is running or not. A running relay notices every change at once.",
        subcommands: [Create.self, List.self, Revoke.self], defaultSubcommand: List.self)

    /// `pushchat token create`
    struct Create: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create a token and print it. It cannot be shown again later.",
            discussion: """
                The scopes:
                  post     write messages; only to --room, if given
                  read     read messages; only those of --room, if given
                  send     send notifications; only to --room, --user or --tag, if given
                  figures  read totals, the queue's depth and metrics
                  admin    everything

                For example: pushchat token create --name backup --room kitchen --may post
                """)

        @Option(help: .value("name", "The token's name, which also signs its messages.")) var name: String
        @Option(
            help: .value("scope", "A scope of the token; repeatable."),
            completion: .list(Scope.allCases.map(\.rawValue)))
        var may: [String]
        @Option(help: .value("code", "Only in this room.")) var room: String?
        @Option(help: .value("reference", "Sends only to this user; repeatable.")) var user: [String] = []
        @Option(help: .value("tag", "Sends only to devices with this tag; repeatable.")) var tag: [String] = []
        @Option(help: .value("duration", "The lifetime, like 90d; by default it never expires.")) var expires: String?
        @Option(
            help: .value(
                "form",
                "relay, or gotify for programs that accept only a token of Gotify: 15 characters, the first one A."))
        var form = AccessToken.Form.relay
        @Flag(help: "Print the token and its properties as JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let (name, grant, end) = try request()
            let (token, secret) = try await options.withStores { stores in
                try await stores.tokens.create(
                    name, stores.records.grant(grant, field: "--room"), expiresAt: end, form: form)
            }
            guard json else { return print(secret) }
            var object = token.json
            object["token"] = .string(secret)
            Output.print(json: .object(object))
        }

        private func request() throws -> (Nickname, AccessGrant, Timestamp?) {
            try validated { () throws(ChatError) in
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
            abstract: "List tokens with their scopes, and the time and address of their last use.",
            discussion: "With --json, one object per line.")

        @OptionGroup var list: ListOptions
        @Flag(help: "As JSON, one object per line.") var json = false
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
        static let configuration = CommandConfiguration(abstract: "Revoke a token at once.")

        @Argument(help: "The token's name, or its id.") var token: String
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let name = try await options.withStores { stores in
                var cursor: Int64?
                repeat {
                    let page = try await stores.tokens.tokens(after: cursor, limit: 500)
                    // A name may look like a number. Names take precedence over ids.
                    if let named = page.items.first(where: { $0.name.text == token }) {
                        return try await stores.tokens.revoke(named.id, by: .commandLine)
                    }
                    cursor = page.next
                } while cursor != nil
                guard let id = Int64(token) else { return nil }
                return try await stores.tokens.revoke(id, by: .commandLine)
            }
            guard let name else { throw Failure("there is no token \(token)") }
            Output.note("\(name.text) is revoked")
        }
    }
}

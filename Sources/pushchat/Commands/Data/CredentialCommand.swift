import ArgumentParser
import ChatDomain

/// `pushchat credential`
struct CredentialCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "credential",
        abstract: "Credentials of other apps: clients of ntfy and Gotify that members use.",
        discussion: """
            Members create them on the chat page, under "Use another app".
            Works on the database, whether a relay is running or not. A running relay notices every change at once.
            """,
        subcommands: [List.self, Revoke.self], defaultSubcommand: List.self)

    /// `pushchat credential list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List credentials with their owners, and the time and address of their last use.",
            discussion: """
                The owner is a member, or a token with which an app has made its credential.
                With --json, one object per line.
                """)

        @Option(help: .value("code", "Only credentials of this room's members.")) var room: String?
        @OptionGroup var list: ListOptions
        @Flag(help: "As JSON, one object per line.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let header = ["ID", "NAME", "MEMBER", "TOKEN", "ROOM", "CREATED", "LAST USED", "FROM", "USER"]
            let named = try parsedRoom()
            try await options.withStores { stores in
                var code = named
                if let named { code = try await stores.records.room(named: named, field: "--room") }
                try await list.print(header, json: json) { credential in
                    credential.cells(
                        "id", "name", "nickname", "token", "room", "created_at", "last_used_at", "last_used_from",
                        "user_reference")
                } page: { cursor, size in
                    let page = try await stores.clients.credentials(ofMembersOf: code, after: cursor, limit: size)
                    return (page.items.map(\.json), page.next)
                }
            }
        }

        private func parsedRoom() throws -> SecretCode? {
            try room.map { room in
                try validated { () throws(ChatError) in try SecretCode(parsing: room, field: "--room") }
            }
        }
    }

    /// `pushchat credential revoke`
    struct Revoke: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Revoke a credential, or all of a user, at once.",
            discussion: "Names are not unique. The id is in the first column of the list.")

        @Argument(help: "The credential's id.") var id: Int64?
        @Option(help: .value("user", "All credentials of this user, the `sub` of its session tokens.")) var user:
            String?
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func validate() throws {
            guard (id == nil) != (user == nil) else { throw ValidationError("Name either a credential's id or --user") }
        }

        func run() async throws {
            if let id {
                let name = try await options.withStores { stores in
                    try await stores.clients.revokeCredential(id, of: nil)
                }
                guard let name else { throw Failure("there is no credential \(id)") }
                Output.note("\(name.text) is revoked")
            } else if let user {
                let reference = try UserReference(parsing: user, field: "--user")
                let count = try await options.withStores { stores in
                    try await stores.clients.revokeCredentials(ofUser: reference)
                }
                Output.note("\(count) credentials are revoked")
            }
        }
    }
}

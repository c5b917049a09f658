import ArgumentParser
import ChatDomain
import ChatHTTP
import ChatHooks
import Foundation
import HTTPTypes

extension AccessToken.Form: ExpressibleByArgument {}

/// `pushchat token`
struct Token: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Access tokens of programs that call the relay.",
        discussion:
            "Works on the database, whether a relay is running or not. A running relay notices every change at once.",
        subcommands: [Create.self, List.self, Revoke.self, Try.self], defaultSubcommand: List.self)

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

                With --hook, the token is valid only in an address that another program gets as its webhook. Prints
                that address: pushchat token create --name alerts --room ops --hook alertmanager
                """)

        @Option(help: .value("name", "The token's name, which also signs its messages.")) var name: String
        @Option(
            help: .value("scope", "A scope of the token; repeatable."),
            completion: .list(Scope.allCases.map(\.rawValue)))
        var may: [String] = []
        @Option(help: .value("code", "Only in this room.")) var room: String?
        @Option(help: .value("reference", "Sends only to this user; repeatable.")) var user: [String] = []
        @Option(help: .value("tag", "Sends only to devices with this tag; repeatable.")) var tag: [String] = []
        @Option(help: .value("duration", "The lifetime, like 90d; by default it never expires.")) var expires: String?
        @Option(
            help: .value(
                "form",
                "relay, or gotify for programs that accept only a token of Gotify: 15 characters, the first one A."))
        var form = AccessToken.Form.relay
        @OptionGroup var hook: HookOptions
        @Option(
            help: .value(
                "secret", "The webhook's sender signs with this: new for a new one, @ and a file, or - for input."))
        var secret: String?
        @Flag(help: "Print the token and its properties as JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let settings = try hook.settings(secret: secret)
            let (name, grant, end) = try request(settings)
            let (token, value) = try await options.withStores { stores in
                try await stores.tokens.create(
                    name, stores.records.grant(grant, field: "--room"), expiresAt: end, form: form)
            }
            let url = try settings.map { settings in
                let configuration = try options.configuration()
                let base = configuration.http.publicURL ?? DevFolder.address ?? configuration.localAddress
                return base + HookAddress.path(of: value, settings.format)
            }
            // This is the only time that a new secret is shown.
            let made = secret == HookOptions.newSecret ? settings?.secret : nil
            guard json else {
                print(url ?? value)
                if let made { print(made) }
                return
            }
            var object = token.json
            object["token"] = .string(value)
            object["secret"] = made.map { .string($0) }
            object["url"] = url.map { .string($0) }
            Output.print(json: .object(object))
        }

        private func request(_ hook: HookSettings?) throws -> (Nickname, AccessGrant, Timestamp?) {
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
                guard hook != nil || !may.isEmpty else { throw .missing("--may") }
                guard hook == nil || form == .relay else { throw .invalid("--form", "must be relay for a webhook") }
                let scopes = try may.map { text throws(ChatError) in try Scope(parsing: text, field: "--may") }
                let grant = try AccessGrant(
                    scopes: may.isEmpty ? [.post] : Set(scopes),
                    room: room.map { text throws(ChatError) in try SecretCode(parsing: text, field: "--room") },
                    audience: audience, hook: hook.flatMap { HookGrant(stored: $0.stored) })
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
            let header = ["ID", "NAME", "MAY", "ROOM", "TO", "WEBHOOK", "EXPIRES", "LAST USED", "FROM"]
            try await options.withStores { stores in
                try await list.print(header, json: json) { token in
                    let scopes = token["scopes"]?.array?.compactMap(\.text).joined(separator: ",")
                    let audience = token["to"].flatMap { $0 == .null ? nil : "\($0)" }
                    return token.cells("id", "name") + [scopes ?? "", token.cell("room"), audience ?? ""]
                        + [token["hook"]?.object?.cell("format") ?? ""]
                        + token.cells("expires_at", "last_used_at", "last_used_from")
                } page: { cursor, size in
                    let page = try await stores.tokens.tokens(after: cursor, limit: size)
                    return (page.items.map(\.json), page.next)
                }
            }
        }
    }

    /// `pushchat token try`
    struct Try: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show the messages that a delivery to a webhook would become.",
            discussion: """
                Reads the delivery's body from standard input, posts nothing, and exits with 1 if it cannot be read.
                For example: pushchat token try --hook json --template template.json < body.json
                """)

        @Argument(help: "The name of a token for a webhook, whose format and template to use.") var token: String?
        @OptionGroup var hook: HookOptions
        @Option(
            name: .customLong("header"),
            help: .value("header", "A header of the delivery, like \"X-GitHub-Event: push\"; repeatable."))
        var headers: [String] = []
        @Option(help: .value("query", "The query of the delivery's address.")) var query = ""
        @OptionGroup(title: "The database, for a token") var options: DatabaseOptions

        func run() async throws {
            guard let settings = try await settings(), let format = HookFormats.named(settings.format) else {
                throw Failure("name a token for a webhook, or a format with --hook")
            }
            let body = Array(try FileHandle.standardInput.read(upToCount: HookRequest.bodyLimit + 1) ?? Data())
            guard body.count <= HookRequest.bodyLimit else {
                throw Failure("standard input has more than \(HookRequest.bodyLimit) bytes")
            }
            var fields = HTTPFields()
            for header in headers {
                let parts = header.split(separator: ":", maxSplits: 1).map { FieldText.trimmed(String($0)) }
                guard parts.count == 2, let name = HTTPField.Name(parts[0]) else {
                    throw Failure("--header must be a name, a colon and a value")
                }
                fields.append(HTTPField(name: name, value: parts[1]))
            }
            let result = format.trial(HookRequest(fields, query: query, body: body), settings)
            Output.print(json: .object(result))
            if result["unreadable"] != nil { throw ExitCode(1) }
        }

        private func settings() async throws -> HookSettings? {
            guard let token else { return try hook.settings() }
            guard hook.hook == nil else { throw Failure("name a token or a format, not both") }
            let own = try await options.withStores { stores in
                try await stores.tokens.find { $0.name.text == token }?.grant.hook
            }
            guard let own else { throw Failure("there is no token \(token) for a webhook") }
            let stored = try validated { () throws(ChatError) in try HookFormats.settings(stored: own.stored) }
            guard let template = try hook.template() else { return stored }
            return HookSettings(format: stored.format, secret: nil, template: template)
        }
    }

    /// `pushchat token revoke`
    struct Revoke: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Revoke a token at once.")

        @Argument(help: "The token's name, or its id.") var token: String
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let name = try await options.withStores { stores in
                // A name may look like a number. Names take precedence over ids.
                if let named = try await stores.tokens.find({ $0.name.text == token }) {
                    return try await stores.tokens.revoke(named.id, by: .commandLine)
                }
                guard let id = Int64(token) else { return nil }
                return try await stores.tokens.revoke(id, by: .commandLine)
            }
            guard let name else { throw Failure("there is no token \(token)") }
            Output.note("\(name.text) is revoked")
        }
    }
}

/// The settings of a webhook.
struct HookOptions: ParsableArguments {
    @Option(
        help: .value(
            "format", "For a webhook of this program: \(HookFormats.all.map { $0.name }.joined(separator: ", "))."),
        completion: .list(HookFormats.all.map { $0.name }))
    var hook: String?
    @Option(
        name: .customLong("template"),
        help: .value("file", "A file with the template of the format json."), completion: .file())
    var templateFile: String?

    func template() throws -> HookTemplate? {
        guard let templateFile else { return nil }
        let text = try Self.text(templateFile, of: "--template")
        return try validated { () throws(ChatError) in try HookTemplate(parsing: text) }
    }

    /// Returns the checked settings. `nil` without `--hook`.
    func settings(secret given: String? = nil) throws -> HookSettings? {
        let template = try template()
        guard let hook else {
            guard template == nil, given == nil else { throw Failure("--template and --secret need --hook") }
            return nil
        }
        if given == Self.newSecret, let format = HookFormats.named(hook), format.makesSecret {
            throw Failure("\(format.title) makes the secret: give it with --secret @FILE")
        }
        let secret = try given.map(Self.secret)
        return try validated { () throws(ChatError) in
            try HookFormats.settings(format: hook, secret: secret, template: template)
        }
    }
}

extension HookOptions {
    static let newSecret = "new"
    /// The maximum number of bytes of a file with a template or a secret. Both are far smaller.
    private static let maxFileSize = 64 * 1024

    /// Secrets do not belong on a command line, which other users of the machine can read.
    private static func secret(_ given: String) throws -> String {
        switch given.first {
        case _ where given == newSecret: WebhookSecret.random().text
        case "-" where given.count == 1:
            FieldText.trimmed(String(decoding: try FileHandle.standardInput.readToEnd() ?? Data(), as: UTF8.self))
        case "@": FieldText.trimmed(try text(String(given.dropFirst()), of: "--secret"))
        default: throw Failure("--secret must be new, - or @FILE: other users can read a command line")
        }
    }

    private static func text(_ path: String, of option: String) throws -> String {
        do throws(ReadableFile.Problem) {
            return try ReadableFile.text(path, limit: maxFileSize)
        } catch {
            throw Failure("\(option) names \(path), \(error)")
        }
    }
}

extension TokenStore {
    /// Returns the first token that satisfies a condition.
    fileprivate func find(_ isWanted: (AccessToken) -> Bool) async throws(ChatError) -> AccessToken? {
        var cursor: Int64?
        repeat {
            let page = try await tokens(after: cursor, limit: 500)
            if let found = page.items.first(where: isWanted) { return found }
            cursor = page.next
        } while cursor != nil
        return nil
    }
}

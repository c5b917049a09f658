import ArgumentParser
import ChatDomain

/// `pushchat webhooks`
struct WebhooksCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "webhooks", abstract: "Webhooks, which tell other programs what happens in rooms.",
        discussion:
            "Works on the database, whether a relay is running or not. A running relay notices every change within a second.",
        subcommands: [
            List.self, Create.self, Change.self, Delete.self, Rotate.self, Test.self, Deliveries.self, Redeliver.self,
        ], defaultSubcommand: List.self)

    /// `pushchat webhooks list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List webhooks with their state and the number of waiting events.",
            discussion: "With --json, one object per line.")

        @Flag(help: "As JSON, one object per line.") var json = false
        @OptionGroup var list: ListOptions
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let header = ["ID", "STATE", "ROOM", "BOT", "WAITING", "FAILURES", "LAST SUCCESS", "URL", "REASON"]
            try await options.withStores { stores in
                try await list.print(header, json: json) { webhook in
                    [webhook.cell("id"), WebhooksCommand.health(webhook)]
                        + webhook.cells("room", "bot", "waiting", "failures", "last_success_at", "url", "reason")
                } page: { (_: Int64?, _) in
                    (try await stores.webhooks.webhooks().map(\.json), nil)
                }
            }
        }
    }

    /// `pushchat webhooks create`
    struct Create: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create a webhook and print its secret. The secret cannot be shown again later.",
            discussion: """
                The events: \(WebhookEventKind.allCases.map(\.rawValue).joined(separator: ", ")).
                Without --event, all of messages and members; for a bot, message.posted.

                For example: pushchat webhooks create https://example.org/hook --room kitchen
                """)

        @Argument(help: "The address that gets the events.") var url: String
        @Option(help: .value("code", "Only events of this room.")) var room: String?
        @Option(help: .value("id", "Only messages that were posted with this token.")) var token: Int64?
        @Option(
            help: .value("type", "An event to send; repeatable."),
            completion: .list(WebhookEventKind.allCases.map(\.rawValue)))
        var event: [String] = []
        @Option(help: .value("name", "Post the receiver's answers under this name.")) var bot: String?
        @Flag(help: "Send a bot only messages with @ and its name.") var onlyMentions = false
        @Flag(help: "Print the webhook and its secret as JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let settings = try validated { () throws(ChatError) in
                try WebhookSettings(
                    url: url,
                    room: try room.map { text throws(ChatError) in try SecretCode(parsing: text, field: "--room") },
                    token: token, events: event.isEmpty ? nil : WebhooksCommand.events(event),
                    bot: try bot.map { text throws(ChatError) in try Nickname(parsing: text, field: "--bot") },
                    onlyMentions: onlyMentions)
            }
            let rules = try options.configuration().webhookRules
            try validated { () throws(ChatError) in try rules.check(webhook: url) }
            let secret = WebhookSecret.random()
            let webhook = try await options.withStores { stores in
                var settings = settings
                if let room = settings.room {
                    settings.room = try await stores.records.room(named: room, field: "--room")
                }
                return try await stores.webhooks.create(settings, secret: secret, by: .commandLine)
            }
            guard json else {
                Output.note("webhook \(webhook.id) is created")
                return print(secret.text)
            }
            Output.print(json: .object(webhook.json(with: secret)))
        }
    }

    /// `pushchat webhooks change`
    struct Change: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Pause or resume a webhook, or change its address or events.",
            discussion: "While a webhook is paused, its events wait, for three days at most.")

        @Argument(help: "The webhook's id.") var id: Int64
        @Flag(help: "Send nothing for now.") var pause = false
        @Flag(help: "Send again, also after the receiver was gone.") var resume = false
        @Option(help: .value("url", "Another address.")) var url: String?
        @Option(help: .value("type", "An event to send, instead of the previous ones; repeatable.")) var event:
            [String] = []
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func validate() throws {
            guard !(pause && resume) else { throw ValidationError("--pause: cannot go together with --resume") }
            guard pause || resume || url != nil || !event.isEmpty else {
                throw ValidationError("nothing to change: give --pause, --resume, --url or --event")
            }
        }

        func run() async throws {
            let rules = try options.configuration().webhookRules
            if let url { try validated { () throws(ChatError) in try rules.check(webhook: url) } }
            let events =
                try event.isEmpty ? nil : validated { () throws(ChatError) in try WebhooksCommand.events(event) }
            let changed = try await options.withWebhook(id) { webhooks -> Webhook? in
                guard let old = try await webhooks.webhook(id)?.settings else { return nil }
                let settings = try WebhookSettings(
                    url: url ?? old.url, room: old.room, token: old.token, events: events ?? old.events, bot: old.bot,
                    onlyMentions: old.onlyMentions)
                return try await webhooks.change(
                    id, to: WebhookEdit(settings: settings, state: pause ? .paused : resume ? .active : nil),
                    by: .commandLine)
            }
            Output.note("webhook \(id) is \(changed.state.rawValue)")
        }
    }

    /// `pushchat webhooks delete`
    struct Delete: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Delete a webhook and its events.")

        @Argument(help: "The webhook's id.") var id: Int64
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            try await options.withWebhook(id) { try await $0.delete(id, by: .commandLine) ? () : nil }
            Output.note("webhook \(id) is deleted")
        }
    }

    /// `pushchat webhooks rotate`
    struct Rotate: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print a new secret of a webhook. For a day, the old one signs as well.")

        @Argument(help: "The webhook's id.") var id: Int64
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let secret = WebhookSecret.random()
            _ = try await options.withWebhook(id) { try await $0.rotate(id, to: secret, by: .commandLine) }
            print(secret.text)
        }
    }

    /// `pushchat webhooks test`
    struct Test: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Let a running relay send an event without content.",
            discussion: "`pushchat webhooks deliveries` shows the response.")

        @Argument(help: "The webhook's id.") var id: Int64
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let event = try await options.withWebhook(id) { try await $0.test(id) }
            Output.note("event \(event) waits to be sent")
        }
    }

    /// `pushchat webhooks deliveries`
    struct Deliveries: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List a webhook's events with the last response, newest first.",
            discussion: "With --json, one object per line.")

        @Argument(help: "The webhook's id.") var id: Int64
        @Option(
            help: .value("state", "Only events that are waiting, delivered, failed or held."),
            completion: .list(WebhookEvent.State.allCases.map(\.rawValue)))
        var state: String?
        @Flag(help: "As JSON, one object per line.") var json = false
        @OptionGroup var list: ListOptions
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let state = try state.map { text in
                try validated { () throws(ChatError) in try WebhookEvent.State(parsing: text, field: "--state") }
            }
            let header = ["ID", "TYPE", "STATE", "ATTEMPTS", "STATUS", "CREATED", "NEXT ATTEMPT", "ERROR"]
            try await options.withWebhook(id) { webhooks -> Void? in
                guard try await webhooks.webhook(id) != nil else { return nil }
                return try await list.print(header, json: json) { event in
                    event.cells(
                        "id", "type", "state", "attempts", "status", "created_at", "next_attempt_at", "error")
                } page: { cursor, size in
                    let page = try await webhooks.deliveries(of: id, in: state, before: cursor, limit: size)
                    return (page.items.map(\.json), page.next)
                }
            }
        }
    }

    /// `pushchat webhooks redeliver`
    struct Redeliver: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send events again.",
            discussion: """
                After the restore of a backup, events that waited in it are held, because they may have been sent since.
                For example: pushchat webhooks redeliver 1 --state held
                """)

        @Argument(help: "The webhook's id.") var id: Int64
        @Argument(help: "Ids of events.") var events: [Int64] = []
        @Option(help: .value("state", "The oldest events that are failed or held, up to 1000.")) var state: String?
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func validate() throws {
            guard events.isEmpty != (state == nil) else { throw ValidationError("give ids of events, or --state") }
        }

        func run() async throws {
            let chosen =
                try validated { () throws(ChatError) in
                    try state.map { state throws(ChatError) in try .all(in: state, field: "--state") }
                        ?? .events(events)
                } as WebhookRedelivery
            let count = try await options.withWebhook(id) { webhooks in
                try await webhooks.webhook(id) == nil ? nil : webhooks.redeliver(chosen, of: id)
            }
            Output.note("events that wait to be sent again: \(count)")
        }
    }

    // MARK: - Parts

    /// The state of a webhook, or `failing` for an active one whose last requests have failed.
    private static func health(_ webhook: JSONObject) -> String {
        let state = webhook.cell("state")
        let isFailing = webhook["failures"]?.integer ?? 0 >= WebhookLifeCycle.orderedAttempts
        return isFailing && state == Webhook.State.active.rawValue ? "failing" : state
    }

    private static func events(_ texts: [String]) throws(ChatError) -> Set<WebhookEventKind> {
        Set(
            try texts.map { text throws(ChatError) in try WebhookEventKind(parsing: text, field: "--event") })
    }
}

extension DatabaseOptions {
    /// Returns the result of a call for a webhook. Fails if it is `nil`, because there is no such webhook.
    fileprivate func withWebhook<Value>(
        _ id: Int64, _ call: (any WebhookStore) async throws -> Value?
    ) async throws -> Value {
        guard let value = try await withStores({ try await call($0.webhooks) }) else {
            throw Failure("there is no webhook \(id)")
        }
        return value
    }
}

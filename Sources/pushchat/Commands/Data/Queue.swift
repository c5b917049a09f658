import ArgumentParser
import ChatDomain
import Foundation

/// `pushchat queue`
struct Queue: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "The push queue in the database, whether a relay is running or not.",
        discussion: "A running relay notices every change at once.",
        subcommands: [List.self, Show.self, Retry.self, Cancel.self, Purge.self, Pause.self, Resume.self],
        defaultSubcommand: List.self)

    /// The flags that select pushes.
    struct FilterOptions: ParsableArguments {
        @Option(help: .value("name", "Only pushes of this app.")) var app: String?

        @Option(
            help: .value("state", "Only pushes in this state; repeatable."),
            completion: .list(PushState.allCases.map(\.rawValue)))
        var state: [PushState] = []

        @Option(help: .value("token", "Only pushes to this device.")) var token: String?
        @Option(help: .value("id", "Only pushes of this notification.")) var notification: Int64?

        @Option(help: .value("reason", "Only pushes with this reason.")) var reason: String?
        @Option(help: .value("duration", "Only pushes that were queued longer ago, like 1h.")) var minAge: String?
        @Option(help: .value("duration", "Only pushes that were queued less long ago, like 1d.")) var maxAge: String?

        var isEmpty: Bool {
            app == nil && state.isEmpty && token == nil && notification == nil && reason == nil && minAge == nil
                && maxAge == nil
        }

        func filter() throws -> QueueFilter {
            try validated { () throws(ChatError) in
                QueueFilter(
                    app: app.map { AppName($0) }, states: state.isEmpty ? nil : Set(state),
                    token: try token.map { text throws(ChatError) in try DeviceToken(parsing: text, field: "--token") },
                    notification: notification, reason: reason,
                    queuedBefore: try Self.time(minAge, ago: "--min-age"),
                    queuedAfter: try Self.time(maxAge, ago: "--max-age"))
            }
        }

        private static func time(_ age: String?, ago option: String) throws(ChatError) -> Timestamp? {
            guard let age else { return nil }
            guard let duration = DurationText.duration(age) else {
                throw .invalid(option, "must be a duration like 1h")
            }
            return Timestamp.now() - duration
        }
    }

    /// `pushchat queue list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List pushes, the oldest first.", discussion: "With --json, one object per line.")

        @OptionGroup(title: "Which pushes") var which: FilterOptions
        @OptionGroup var list: ListOptions
        @Flag(help: "As JSON, one object per line.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            let filter = try which.filter()
            let header = [DeliveryCells.header[0], "TOKEN"] + DeliveryCells.header.dropFirst()
            try await options.withQueue { queue in
                try await list.print(header, json: json) { delivery in
                    let cells = DeliveryCells.cells(delivery)
                    return [cells[0], delivery["token"]?.text ?? ""] + cells.dropFirst()
                } page: { cursor, size in
                    let page = try await queue.pushes(filter, after: cursor, limit: size)
                    return (page.items.map(\.json), page.next)
                }
            }
        }
    }

    /// `pushchat queue show`
    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Show a push with its payload.")

        @Argument(help: "The push id.") var id: Int64
        @Flag(help: "As JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            guard let push = try await options.withQueue({ try await $0.push(id) }) else {
                throw Failure("the queue has no push \(id)")
            }
            var object = push.delivery.json
            object["push_type"] = .optional(push.pushType)
            object["expiration"] = .optional(push.expiration)
            object["priority"] = .optional(push.priority.map(Int64.init))
            object["collapse_id"] = .optional(push.collapseID)
            object["payload"] = .string(push.payload)
            if json { Output.print(json: .object(object)) } else { Output.print(fields: Array(object.members)) }
        }
    }

    /// `pushchat queue retry`
    struct Retry: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send failed, expired and cancelled pushes again, and waiting retries at once.",
            discussion: """
                pushchat queue retry 4711
                pushchat queue retry --state failed --app default
                """)

        @OptionGroup var change: Change

        func run() async throws {
            try await change.run(.retry, "retried") { queue in
                var deleted: [String] = []
                for id in change.ids where try await queue.push(id)?.hasNoContent == true { deleted.append("\(id)") }
                let list = deleted.joined(separator: " ")
                return deleted.isEmpty ? nil : "not retried, because the message was deleted: \(list)"
            }
        }
    }

    /// `pushchat queue cancel`
    struct Cancel: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Cancel pushes that have not been sent to a gateway yet.")

        @OptionGroup var change: Change

        func run() async throws {
            try await change.run(.cancel, "cancelled")
        }
    }

    /// `pushchat queue purge`
    struct Purge: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Delete pushes that are settled: sent, failed, expired or cancelled.",
            discussion: """
                The relay does the same after queue.retention.

                pushchat queue purge --all --older-than 1d
                """)

        @OptionGroup var change: Change
        @Option(help: .value("duration", "Only pushes that were settled longer ago.")) var olderThan: String?

        func validate() throws {
            if let olderThan, DurationText.duration(olderThan) == nil {
                throw ValidationError("--older-than \(olderThan): must be a duration like 1d")
            }
        }

        func run() async throws {
            let age = olderThan.flatMap(DurationText.duration)
            try await change.run(.purge(olderThan: age), "purged")
        }
    }

    /// The pushes to change, by push id or by a filter, and the output format.
    struct Change: ParsableArguments {
        @Argument(help: "Push ids.") var ids: [Int64] = []
        @Flag(help: "All pushes that can be changed.") var all = false
        @OptionGroup(title: "Which pushes") var which: FilterOptions
        @Flag(help: "Only print the number of pushes, and change nothing.") var dryRun = false
        @Flag(help: "The result as JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func validate() throws {
            guard [!ids.isEmpty, all, !which.isEmpty].filter({ $0 }).count == 1 else {
                throw ValidationError(
                    "Select pushes: give push ids, or a filter like --app or --state, or --all.")
            }
        }

        /// Changes the selected pushes and prints their number.
        ///
        /// - Parameters:
        ///   - verb: The past participle for the output: `retried`.
        ///   - explain: Returns the reason why named pushes were not changed. `nil` if no reason is known.
        /// - Throws: ``ExitCode`` 1 if a named push was not changed.
        func run(
            _ kind: QueueChange, _ verb: String,
            explain: (any QueueAdministration) async throws -> String? = { _ in nil }
        ) async throws {
            let selection: QueueSelection = ids.isEmpty ? .matching(try which.filter()) : .ids(ids)
            var line = ProgressLine()
            defer { line.end() }
            let (count, explanation) = try await options.withQueue { queue -> (Int, String?) in
                if dryRun { return (try await queue.dryRun(kind, selection).count, nil) }
                let count = try await queue.perform(kind, selection, by: .commandLine) { line.show("\($0) \(verb)") }
                    .count
                return (count, count < Set(ids).count ? try await explain(queue) : nil)
            }
            line.end()
            if json {
                let result: JSONObject = [verb: .number(count)]
                Output.print(json: .object(dryRun ? ["dry_run": .bool(true), verb: .number(count)] : result))
            } else {
                let pushes = "\(count) \(count == 1 ? "push" : "pushes")"
                print(dryRun ? "\(pushes) would be \(verb)" : "\(pushes) \(verb)")
            }
            if let explanation { Output.note(explanation) }
            // Named pushes are expected to exist. A filter may match none.
            if count < Set(ids).count { throw ExitCode(1) }
        }
    }

    // MARK: - Pauses

    /// `pushchat queue pause`
    struct Pause: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Hold back an app's pushes until `pushchat queue resume`.",
            discussion: """
                All relays of the database keep accepting messages, and send none of the app's pushes. The pause lasts
                across restarts. Pushes that expire in the meantime are not sent.
                """)

        @Argument(help: "The app's name.") var app: String
        @Option(help: .value("text", "Why, for the record.")) var reason: String?
        @OptionGroup var result: PauseResult

        func validate() throws { _ = try checkedReason() }

        private func checkedReason() throws -> String? {
            try reason.map { text in
                try validated { () throws(ChatError) in try QueuePause.reason(text, field: "--reason") }
            }
        }

        func run() async throws {
            let reason = try checkedReason()
            let app = try result.configured(app)
            try await result.run(app, "paused") { queue in
                _ = try await queue.pause(app, reason: reason, by: .commandLine)
            }
        }
    }

    /// `pushchat queue resume`
    struct Resume: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "End the pause of an app.")

        @Argument(help: "The app's name.") var app: String
        @OptionGroup var result: PauseResult

        func run() async throws {
            // An app that is no longer configured may still be paused.
            let app = (try? result.configured(app)) ?? AppName(app)
            try await result.run(app, "resumed") { queue in
                let pause = try await queue.pauses().first { $0.app == app }
                guard pause != nil else { throw Failure("the app \(app) is not paused") }
                if !result.dryRun { _ = try await queue.resume(app, by: .commandLine) }
            }
        }
    }

    /// The options and the output of pause and resume.
    struct PauseResult: ParsableArguments {
        @Flag(help: "Only print the number of waiting pushes, and change nothing.") var dryRun = false
        @Flag(help: "The result as JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        /// Returns the app with a name.
        func configured(_ name: String) throws -> AppName {
            let configuration = try options.configuration()
            let known = configuration.apps.map(\.name) + [.web]
            if let app = known.first(where: { $0.text == name }) { return app }
            // The rows of the default app may have the name `default`.
            if name == AppName.default.text, let first = configuration.apps.first { return first.name }
            let names = known.map(\.text).joined(separator: ", ")
            throw Failure("the configuration has no app \(JSONValue.string(name)); its apps are \(names)")
        }

        func run(
            _ app: AppName, _ verb: String, _ change: (any QueueAdministration) async throws -> Void
        ) async throws {
            let waiting = try await options.withQueue { queue in
                if verb == "resumed" || !dryRun { try await change(queue) }
                return try await queue.dryRun(.cancel, .matching(QueueFilter(app: app))).count
            }
            if json {
                Output.print(
                    json: .object(["app": .string(app.text), "pushes": .number(waiting), "dry_run": .bool(dryRun)]))
            } else {
                let pushes = "\(waiting) \(waiting == 1 ? "push" : "pushes")"
                print(dryRun ? "\(app) would be \(verb); \(pushes) waiting" : "\(app) \(verb); \(pushes) waiting")
            }
        }
    }
}

extension PushState: ExpressibleByArgument {}

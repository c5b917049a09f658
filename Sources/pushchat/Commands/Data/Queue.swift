import ArgumentParser
import ChatDomain
import Foundation

/// `pushchat queue`
struct Queue: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "The push queue in the database, whether a relay is running or not.",
        discussion: "A running relay notices every change at once.",
        subcommands: [List.self, Show.self, Retry.self, Cancel.self, Purge.self], defaultSubcommand: List.self)

    /// The flags that select pushes.
    struct FilterOptions: ParsableArguments {
        @Option(help: .value("name", "Only pushes of this app.")) var app: String?

        @Option(
            help: .value("state", "Only pushes in this state; repeatable."),
            completion: .list(PushState.allCases.map(\.rawValue)))
        var state: [PushState] = []

        @Option(help: .value("token", "Only pushes to this device.")) var token: String?
        @Option(help: .value("id", "Only pushes of this notification.")) var notification: Int64?

        var isEmpty: Bool { app == nil && state.isEmpty && token == nil && notification == nil }

        func filter() throws -> QueueFilter {
            do throws(ChatError) {
                return QueueFilter(
                    app: app.map { AppName($0) }, states: state.isEmpty ? nil : Set(state),
                    token: try token.map { text throws(ChatError) in try DeviceToken(parsing: text, field: "--token") },
                    notification: notification)
            } catch {
                throw ValidationError(error.message)
            }
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
            try await change.run("retried") {
                try await $0.retry($1, progress: $2)
            } explain: { queue in
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
            try await change.run("cancelled") { try await $0.cancel($1, progress: $2) }
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
            try await change.run("purged") { try await $0.purge($1, olderThan: age, progress: $2) }
        }
    }

    /// The pushes to change, by push id or by a filter, and the output format.
    struct Change: ParsableArguments {
        @Argument(help: "Push ids.") var ids: [Int64] = []
        @Flag(help: "All pushes that can be changed.") var all = false
        @OptionGroup(title: "Which pushes") var which: FilterOptions
        @Flag(help: "The result as JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func validate() throws {
            guard [!ids.isEmpty, all, !which.isEmpty].filter({ $0 }).count == 1 else {
                throw ValidationError(
                    "Select pushes: give push ids, or --app, --state, --token, --notification, or --all.")
            }
        }

        /// Changes the selected pushes and prints their number.
        ///
        /// - Parameters:
        ///   - verb: The past participle for the output: `retried`.
        ///   - explain: Returns the reason why named pushes were not changed. `nil` if no reason is known.
        /// - Throws: ``ExitCode`` 1 if a named push was not changed.
        func run(
            _ verb: String,
            _ change: (any QueueAdministration, QueueSelection, (Int) -> Void) async throws -> Int,
            explain: (any QueueAdministration) async throws -> String? = { _ in nil }
        ) async throws {
            let selection: QueueSelection = ids.isEmpty ? .matching(try which.filter()) : .ids(ids)
            var line = ProgressLine()
            defer { line.end() }
            let (count, explanation) = try await options.withQueue { queue in
                let count = try await change(queue, selection) { line.show("\($0) \(verb)") }
                return (count, count < Set(ids).count ? try await explain(queue) : nil)
            }
            line.end()
            if json {
                Output.print(json: .object([verb: .number(count)]))
            } else {
                print("\(count) \(count == 1 ? "push" : "pushes") \(verb)")
            }
            if let explanation { Output.note(explanation) }
            // Named pushes are expected to exist. A filter may match none.
            if count < Set(ids).count { throw ExitCode(1) }
        }
    }
}

extension PushState: ExpressibleByArgument {}

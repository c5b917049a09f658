import ArgumentParser
import ChatDomain
import Foundation

/// `pushchat queue`
struct Queue: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "The push queue: in the database, beside a running relay or without one.",
        discussion: "A running relay notices every change at once.",
        subcommands: [List.self, Show.self, Retry.self, Cancel.self, Purge.self], defaultSubcommand: List.self)

    /// The flags that select pushes.
    struct FilterOptions: ParsableArguments {
        @Option(help: .value("name", "Of an app.")) var app: String?

        @Option(help: .value("state", "In a state; repeatable."), completion: .list(PushState.allCases.map(\.rawValue)))
        var state: [PushState] = []

        @Option(help: .value("token", "To a device.")) var token: String?
        @Option(help: .value("id", "Of a notification.")) var notification: Int64?

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
            abstract: "List entries, the oldest first.", discussion: "With --json an object a line.")

        @OptionGroup(title: "Which") var which: FilterOptions
        @OptionGroup var list: ListOptions
        @Flag(help: "As JSON, an object a line.") var json = false
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
        static let configuration = CommandConfiguration(abstract: "Show an entry with its payload.")

        @Argument(help: "The entry's id.") var id: Int64
        @Flag(help: "As JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func run() async throws {
            guard let push = try await options.withQueue({ try await $0.push(id) }) else {
                throw Failure("the queue has no entry \(id)")
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
            abstract: "Send failed, expired and cancelled entries again, and waiting repeats at once.",
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
            abstract: "Cancel entries that were not sent to a gateway yet.")

        @OptionGroup var change: Change

        func run() async throws {
            try await change.run("cancelled") { try await $0.cancel($1, progress: $2) }
        }
    }

    /// `pushchat queue purge`
    struct Purge: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Delete entries that are settled: sent, failed, expired, cancelled.",
            discussion: """
                The relay does so by itself after queue.retention.

                pushchat queue purge --all --older-than 1d
                """)

        @OptionGroup var change: Change
        @Option(help: .value("duration", "Only those that were settled longer ago.")) var olderThan: String?

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
        @Argument(help: "Entries' ids.") var ids: [Int64] = []
        @Flag(help: "All that can be changed.") var all = false
        @OptionGroup(title: "Which") var which: FilterOptions
        @Flag(help: "The result as JSON.") var json = false
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func validate() throws {
            guard [!ids.isEmpty, all, !which.isEmpty].filter({ $0 }).count == 1 else {
                throw ValidationError("Say which: ids, or --app, --state, --token, --notification, or --all.")
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
                print("\(count) \(count == 1 ? "entry" : "entries") \(verb)")
            }
            if let explanation { Output.note(explanation) }
            // Named pushes are expected to exist. A filter may match none.
            if count < Set(ids).count { throw ExitCode(1) }
        }
    }
}

extension PushState: ExpressibleByArgument {}

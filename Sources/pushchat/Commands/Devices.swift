import ArgumentParser
import ChatDomain
import Foundation
import NIOHTTP1

/// `pushchat devices`
struct Devices: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "The devices that the running relay knows.",
        subcommands: [List.self, Show.self, Add.self, Remove.self, SetTags.self], defaultSubcommand: List.self)

    /// The relay, and how the answer looks: of every command about devices.
    struct Common: ParsableArguments {
        @Option(help: ArgumentHelp("Of this app; needed where a token belongs to several.", valueName: "name"))
        var app: String?

        @Flag(help: "The result as JSON.")
        var json = false

        @OptionGroup(title: "The relay") var relay: RelayOptions

        func call(
            _ method: HTTPMethod, _ path: String, _ query: [(String, String?)] = [], body: JSONObject? = nil
        ) async throws -> JSONValue {
            try await relay.client().call(method, path.adding(query), body)
        }

        /// The path of a device.
        static func path(_ token: String) throws -> String {
            do throws(ChatError) {
                return "/v1/devices/\(try DeviceToken(parsing: token))"
            } catch {
                throw ValidationError(error.message)
            }
        }
    }

    /// `pushchat devices list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List devices, the oldest first.", discussion: "With --json an object a line.")

        @Option(help: ArgumentHelp("Only those of a user.", valueName: "reference"))
        var user: String?

        @Option(help: ArgumentHelp("Only those with a tag.", valueName: "tag"))
        var tag: String?

        @Flag(inversion: .prefixedNo, help: "Only those that pushes go to, or only those that none go to any more.")
        var active: Bool?

        @Option(help: ArgumentHelp("At most so many; 0 for all.", valueName: "number"))
        var limit = 100

        @OptionGroup var common: Common

        func validate() throws {
            guard limit >= 0 else { throw ValidationError("--limit \(limit): must be 0 or more") }
        }

        func run() async throws {
            var table = OutputTable(["TOKEN", "APP", "USER", "TAGS", "REGISTERED", "STATE"])
            let complete = try await PagedList(
                json: common.json, limit: limit, member: "devices",
                page: { cursor, size in
                    try await common.call(
                        .GET, "/v1/devices",
                        [
                            ("app", common.app), ("user_reference", user), ("tag", tag),
                            ("active", active.map { $0 ? "true" : "false" }), ("limit", String(size)),
                            ("cursor", cursor.map(String.init)),
                        ])
                }
            ).run { device in
                table.add([
                    device["token"]?.text ?? "", device["app"]?.text ?? "", device["user_reference"]?.text ?? "",
                    (device["tags"]?.array ?? []).compactMap(\.text).joined(separator: ","),
                    device["registered_at"]?.text ?? "", Self.state(device),
                ])
            }
            if !common.json { table.end() }
            if !complete { Output.note("only the first \(limit) are shown; --limit 0 shows all") }
        }

        static func state(_ device: JSONObject) -> String {
            device["active"] == .bool(true) ? "active" : device["deactivated_reason"]?.text ?? "inactive"
        }
    }

    /// `pushchat devices show`
    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Show a device, and what was sent to it last.")

        @Argument(help: "The device's token.")
        var token: String

        @Option(help: ArgumentHelp("At most so many pushes.", valueName: "number"))
        var limit = 20

        @OptionGroup var common: Common

        func run() async throws {
            let answer = try await common.call(
                .GET, Common.path(token), [("app", common.app), ("limit", String(limit))])
            guard !common.json, let device = answer.object else { return Output.print(json: answer) }
            Output.print(fields: device.members.filter { !["deliveries", "next", "active"].contains($0.0) })
            var table = OutputTable(DeliveryCells.head)
            for case .object(let delivery) in device["deliveries"]?.array ?? [] {
                table.add(DeliveryCells.cells(delivery))
            }
            table.end()
        }
    }

    /// `pushchat devices add`
    struct Add: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Register a device, or change what is known of it.",
            discussion: "What is not given stays as it was.")

        @Argument(help: "The device's token.")
        var token: String

        @Option(help: ArgumentHelp("Whose it is; an empty one for nobody's.", valueName: "reference"))
        var user: String?

        @Option(help: ArgumentHelp("A text about it, as the app would send it.", valueName: "text"))
        var clientInfo: String?

        @Option(help: ArgumentHelp("A text of the server about it.", valueName: "text"))
        var serverInfo: String?

        @Option(help: ArgumentHelp("A tag; repeatable; replaces those it had.", valueName: "tag"))
        var tag: [String] = []

        @OptionGroup var common: Common

        func run() async throws {
            var body = JSONObject()
            if let app = common.app { body["app"] = .string(app) }
            if let user { body["user_reference"] = user.isEmpty ? .null : .string(user) }
            if let clientInfo { body["client_info"] = .string(clientInfo) }
            if !tag.isEmpty { body["tags"] = .array(tag.map { .string($0) }) }
            let path = try Common.path(token)
            let answer = try await common.call(.PUT, path, body: body)
            if let serverInfo {
                _ = try await common.call(
                    .PATCH, path, [("app", answer.object?["app"]?.text)], body: ["server_info": .string(serverInfo)])
            }
            if common.json { Output.print(json: answer) } else { print(answer.object?["result"]?.text ?? "") }
        }
    }

    /// `pushchat devices remove`
    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Forget a device; pushes to it that wait are cancelled.")

        @Argument(help: "The device's token.")
        var token: String

        @OptionGroup var common: Common

        func run() async throws {
            // Not repeated when an answer got lost: the second would be told that there is no such device.
            _ = try await common.relay.client().call(
                .DELETE, Common.path(token).adding([("app", common.app)]), isRepeatable: false)
            if common.json { Output.print(json: .object(["removed": .bool(true)])) } else { print("removed") }
        }
    }

    /// `pushchat devices tag`
    struct SetTags: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "tag", abstract: "Add tags to a device, or take some away.",
            discussion: """
                pushchat devices tag 0f744707… beta
                pushchat devices tag 0f744707… --remove beta
                """)

        @Argument(help: "The device's token.")
        var token: String

        @Argument(help: "Tags that it gets.")
        var tags: [String] = []

        @Option(help: ArgumentHelp("A tag that it loses; repeatable.", valueName: "tag"))
        var remove: [String] = []

        @OptionGroup var common: Common

        func validate() throws {
            guard !tags.isEmpty || !remove.isEmpty else { throw ValidationError("Say which tags.") }
            if let both = tags.first(where: remove.contains) {
                throw ValidationError("\(both) cannot be both added and removed.")
            }
        }

        func run() async throws {
            let path = try Common.path(token)
            let device = try await common.call(.GET, path, [("app", common.app), ("limit", "1")])
            let had = (device.object?["tags"]?.array ?? []).compactMap(\.text)
            let wanted = had.filter { !remove.contains($0) } + tags.filter { !had.contains($0) }
            let answer = try await common.call(
                .PATCH, path, [("app", device.object?["app"]?.text)],
                body: ["tags": .array(wanted.map { .string($0) })])
            if common.json {
                Output.print(json: answer)
            } else {
                let now = (answer.object?["tags"]?.array ?? []).compactMap(\.text)
                print(now.isEmpty ? "no tags" : now.joined(separator: ","))
            }
        }
    }
}

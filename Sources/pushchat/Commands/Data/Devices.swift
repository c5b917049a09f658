import ArgumentParser
import ChatDomain
import Foundation
import NIOHTTP1

/// `pushchat devices`
struct Devices: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "The devices that are registered with the relay.",
        subcommands: [List.self, Show.self, Add.self, Remove.self, SetTags.self, Export.self, Import.self],
        defaultSubcommand: List.self)

    /// The options and calls that all `devices` commands share.
    struct Common: ParsableArguments {
        @Option(help: .value("name", "Only in this app; required if several apps have the token.")) var app: String?
        @Flag(help: "The result as JSON.") var json = false
        @OptionGroup(title: "The relay") var relay: RelayOptions

        func call(
            _ method: HTTPMethod, _ path: String, _ query: [(String, String?)] = [], body: JSONObject? = nil
        ) async throws -> JSONValue {
            try await relay.client().call(method, path.adding(query), body)
        }

        /// The API path of the device with this token.
        ///
        /// - Throws: A ``ValidationError`` if the token is invalid.
        static func path(_ token: String) throws -> String {
            try "/v1/devices/\(validated { () throws(ChatError) in try DeviceToken(parsing: token) })"
        }
    }

    /// `pushchat devices list`
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List devices, the oldest first.", discussion: "With --json, one object per line.")

        @Option(help: .value("reference", "Only devices of this user.")) var user: String?
        @Option(help: .value("tag", "Only devices with this tag.")) var tag: String?

        @Flag(inversion: .prefixedNo, help: "Only devices that receive pushes, or only devices that no longer do.")
        var active: Bool?

        @OptionGroup var list: ListOptions
        @OptionGroup var common: Common

        func run() async throws {
            try await list.print(["TOKEN", "APP", "USER", "TAGS", "REGISTERED", "STATE"], json: common.json) { device in
                device.cells("token", "app", "user_reference")
                    + [device.tags.joined(separator: ","), device.cell("registered_at"), Self.state(device)]
            } page: { cursor, size in
                let query = [
                    ("app", common.app), ("user_reference", user), ("tag", tag),
                    ("active", active.map { $0 ? "true" : "false" }), ("limit", String(size)),
                    ("cursor", cursor),
                ]
                return try await common.call(.GET, "/v1/devices", query).page(of: "devices")
            }
        }

        static func state(_ device: JSONObject) -> String {
            device["active"] == .bool(true) ? "active" : device["deactivated_reason"]?.text ?? "inactive"
        }
    }

    /// `pushchat devices show`
    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Show a device, and the last pushes to it.")

        @Argument(help: "The device's token.") var token: String
        @Option(help: .value("number", "The maximum number of pushes.")) var limit = 20
        @OptionGroup var common: Common

        func run() async throws {
            let response = try await common.call(
                .GET, Common.path(token), [("app", common.app), ("limit", String(limit))])
            guard !common.json, let device = response.object else { return Output.print(json: response) }
            Output.print(fields: device.members.filter { !["deliveries", "next", "active"].contains($0.0) })
            var table = OutputTable(DeliveryCells.header)
            for delivery in response.page(of: "deliveries").items { table.add(DeliveryCells.cells(delivery)) }
            table.end()
        }
    }

    /// `pushchat devices add`
    struct Add: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Register a device, or change its fields.",
            discussion: "Fields that are not given keep their values.")

        @Argument(help: "The device's token.") var token: String
        @Option(help: .value("reference", "Its user; empty for none.")) var user: String?
        @Option(help: .value("text", "A text about the device, as the app would send it.")) var clientInfo: String?
        @Option(help: .value("text", "A text of your server about the device.")) var serverInfo: String?
        @Option(help: .value("tag", "A tag; repeatable. Replaces all tags of the device.")) var tag: [String] = []
        @OptionGroup var common: Common

        func run() async throws {
            var body = JSONObject()
            if let app = common.app { body["app"] = .string(app) }
            if let user { body["user_reference"] = user.isEmpty ? .null : .string(user) }
            if let clientInfo { body["client_info"] = .string(clientInfo) }
            if !tag.isEmpty { body["tags"] = .array(tag.map { .string($0) }) }
            let path = try Common.path(token)
            let response = try await common.call(.PUT, path, body: body)
            if let serverInfo {
                _ = try await common.call(
                    .PATCH, path, [("app", response.object?["app"]?.text)], body: ["server_info": .string(serverInfo)])
            }
            if common.json { Output.print(json: response) } else { print(response.object?["result"]?.text ?? "") }
        }
    }

    /// `pushchat devices remove`
    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Delete a device and cancel its queued pushes.")

        @Argument(help: "The device's token.") var token: String
        @OptionGroup var common: Common

        func run() async throws {
            // Do not retry after a lost response: the second call would not find the device.
            _ = try await common.relay.client().call(
                .DELETE, Common.path(token).adding([("app", common.app)]), isRepeatable: false)
            if common.json { Output.print(json: .object(["removed": .bool(true)])) } else { print("removed") }
        }
    }

    /// `pushchat devices tag`
    struct SetTags: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "tag", abstract: "Add tags to a device, or remove some.",
            discussion: """
                pushchat devices tag 0f744707… beta
                pushchat devices tag 0f744707… --remove beta
                """)

        @Argument(help: "The device's token.") var token: String
        @Argument(help: "Tags to add.") var tags: [String] = []
        @Option(help: .value("tag", "A tag to remove; repeatable.")) var remove: [String] = []
        @OptionGroup var common: Common

        func validate() throws {
            guard !tags.isEmpty || !remove.isEmpty else { throw ValidationError("Name the tags to add or to remove.") }
            if let both = tags.first(where: remove.contains) {
                throw ValidationError("\(both) cannot be both added and removed.")
            }
        }

        func run() async throws {
            let path = try Common.path(token)
            let device = try await common.call(.GET, path, [("app", common.app), ("limit", "1")])
            let had = device.object?.tags ?? []
            let wanted = had.filter { !remove.contains($0) } + tags.filter { !had.contains($0) }
            let response = try await common.call(
                .PATCH, path, [("app", device.object?["app"]?.text)],
                body: ["tags": .array(wanted.map { .string($0) })])
            if common.json {
                Output.print(json: response)
            } else {
                let now = response.object?.tags ?? []
                print(now.isEmpty ? "no tags" : now.joined(separator: ","))
            }
        }
    }
}

extension JSONObject {
    fileprivate var tags: [String] { (self["tags"]?.array ?? []).compactMap(\.text) }
}

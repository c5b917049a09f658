import APNSGateway
import ArgumentParser
import ChatDomain
import Foundation
import PushWire

/// `pushchat send`
struct Send: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Send a notification: through the running relay, or straight to a gateway.",
        discussion: """
            pushchat send --user alice --alert 'Tea is ready' --badge 1 --wait
            pushchat send --all --payload @payload.json --expires 1h
            pushchat send --direct --certificate app.p12 --token 0f744707… --alert Hello

            With --wait the status is 1 unless every device's push was accepted.
            """)

    @OptionGroup(title: "Audience") var audience: AudienceOptions

    @Option(help: .value("name", "Only devices of this app; with --direct, the app whose gateway is used."))
    var app: String?

    @OptionGroup(title: "Content") var content: ContentOptions
    @Flag(help: "Leave out devices whose last push had the same payload.") var skipUnchanged = false

    @Option(help: .value("key", "A second call with the same key sends nothing; random by default."))
    var idempotencyKey: String?

    @Flag(help: "Wait until every push is sent or has failed, and print the counts.") var wait = false
    @Option(help: .value("duration", "The longest time to wait, with --wait or --direct.")) var timeout = "60s"
    @Flag(help: "The result as JSON.") var json = false
    @OptionGroup(title: "The relay") var relay: RelayOptions
    @OptionGroup(title: "With --direct") var direct: DirectOptions

    func validate() throws {
        guard let duration = DurationText.duration(timeout), duration > .zero else {
            throw ValidationError("--timeout \(timeout): must be a duration like 60s")
        }
        if idempotencyKey != nil, content.isRelative {
            throw ValidationError(
                "--idempotency-key: a second call must be the same, so give --expires and --not-before as times.")
        }
        if direct.direct {
            guard !audience.token.isEmpty else {
                throw ValidationError("--direct sends to tokens only, not to users, tags or rooms: give --token.")
            }
            let others = [
                (relay.relay != nil, "--relay"), (skipUnchanged, "--skip-unchanged"),
                (content.notBefore != nil, "--not-before"), (idempotencyKey != nil, "--idempotency-key"),
            ]
            if let flag = others.first(where: \.0)?.1 {
                throw ValidationError("\(flag) needs a relay: leave out --direct.")
            }
        } else if let flag = direct.given {
            throw ValidationError("\(flag) is for --direct.")
        }
    }

    private var timeLimit: Duration { DurationText.duration(timeout) ?? .seconds(60) }

    func run() async throws {
        let fields = try content.fields(now: .now()) {
            Array(try FileHandle.standardInput.readToEnd() ?? Data())
        }
        if direct.direct {
            try await sendDirectly(fields)
            return
        }
        let client = try relay.client()
        let key = idempotencyKey ?? UUID().uuidString
        let receipt = try await client.call(
            .POST, "/v1/notifications", body(fields), headers: ["Idempotency-Key": key])
        guard let id = receipt.object?["id"]?.integer, let devices = receipt.object?["devices"]?.integer else {
            throw Failure("unexpected response from the relay: \(receipt)")
        }
        if let warning = receipt.object?["warning"]?.text { Output.note("warning: " + warning) }
        guard wait else {
            if json { Output.print(json: receipt) } else { print("notification \(id): \(Self.devices(devices))") }
            return
        }
        let watch = NotificationWatch(id: id, base: client.base, json: json) { try await client.call(.GET, $0) }
        try await watch.run(within: timeLimit)
    }

    /// The request body that the flags describe.
    func body(_ fields: JSONObject) -> JSONObject {
        var body: JSONObject = ["to": .object(audience.json)]
        if let app { body["app"] = .string(app) }
        for (name, value) in fields.members { body[name] = value }
        if skipUnchanged { body["skip_unchanged"] = .bool(true) }
        return body
    }

    static func devices(_ count: Int64) -> String { count == 1 ? "1 device" : "\(count) devices" }

    private func sendDirectly(_ fields: JSONObject) async throws {
        let content = try NotificationContent(fields, now: .now())
        var tokens: [DeviceToken] = []
        try validated { () throws(ChatError) in
            for text in audience.token {
                let token = try DeviceToken(parsing: text, field: "--token")
                if !tokens.contains(token) { tokens.append(token) }
            }
        }
        let gateway = try direct.app(named: app, relay)
        let composed: ComposedNotification
        do throws(ChatError) {
            let format = gateway.gatewayKind.format(sound: "default", threads: nil)
            composed = try format.compose(content, for: gateway.name)
        } catch {
            throw Failure(error.message)
        }
        let results = try await DirectSending(
            app: gateway, content: content, composed: composed, tokens: tokens, timeLimit: timeLimit
        ).run()
        if json {
            Output.print(json: .array(results.map(\.json)))
        } else {
            for result in results { print(result.line) }
        }
        guard results.allSatisfy({ $0.outcome == .accepted }) else { throw ExitCode(1) }
    }
}

/// The audience of a notification, as flags. Exactly one kind must be given.
struct AudienceOptions: ParsableArguments {
    @Option(help: .value("token", "A device; repeatable.")) var token: [String] = []
    @Option(help: .value("reference", "All devices of a user; repeatable.")) var user: [String] = []
    @Option(help: .value("tag", "All devices with a tag; repeatable.")) var tag: [String] = []
    @Option(help: .value("code", "The members of a chat room.")) var room: String?
    @Flag(help: "Every device.") var all = false

    func validate() throws {
        guard [!token.isEmpty, !user.isEmpty, !tag.isEmpty, room != nil, all].filter({ $0 }).count == 1 else {
            throw ValidationError("Choose the audience with one of --token, --user, --tag, --room, --all.")
        }
    }

    /// The member `to` of the admin API.
    var json: JSONObject {
        func list(_ texts: [String]) -> JSONValue { .array(texts.map { .string($0) }) }
        if !token.isEmpty { return ["tokens": list(token)] }
        if !user.isEmpty { return ["users": list(user)] }
        if !tag.isEmpty { return ["tags": list(tag)] }
        if let room { return ["room": .string(room)] }
        return ["all": .bool(true)]
    }
}

/// The content of a notification and its delivery, as flags for the fields of the admin API.
struct ContentOptions: ParsableArguments {
    @Option(parsing: .unconditional, help: .value("text", "The text that is shown.")) var alert: String?
    @Option(parsing: .unconditional, help: .value("text", "A title above the text.")) var title: String?
    @Option(parsing: .unconditional, help: .value("text", "A subtitle.")) var subtitle: String?

    @Option(parsing: .unconditional, help: .value("number", "The number on the app's icon; 0 removes it."))
    var badge: Int?

    @Option(help: .value("name", "A sound file in the app, or default.")) var sound: String?
    @Option(help: .value("name", "Apple's category.")) var category: String?
    @Option(help: .value("name", "Apple's thread-id, by which the device groups notifications.")) var threadID: String?
    @Option(help: .value("url", "The page that a click opens in browsers; apps find it beside aps.")) var link: String?
    @Flag(help: "Wake the app in the background.") var contentAvailable = false
    @Flag(help: "Let the app's service extension change the notification first.") var mutableContent = false

    @Option(
        help: .value("level", "Apple's interruption level: passive, active, time-sensitive or critical."),
        completion: .list(NotificationContent.InterruptionLevel.allCases.map(\.rawValue)))
    var interruptionLevel: String?

    @Option(help: .value("number", "The place in the summary, from 0 to 1; the highest comes first."))
    var relevanceScore: Double?

    @Option(help: .value("id", "The app's window that comes forward.")) var targetContentID: String?
    @Option(help: .value("url", "A picture; an app's service extension finds it beside aps.")) var image: String?
    @Flag(help: "Break through Focus and the summary; the priority is then 10.") var urgent = false

    @Option(
        parsing: .unconditional,
        help: .value("json", "An object whose members go beside aps: JSON, @FILE, or - for standard input."))
    var custom: String?

    @Option(
        parsing: .unconditional,
        help: .value("json", "The whole payload, in place of these flags: JSON, @FILE, or - for standard input."))
    var payload: String?

    @Option(help: .value("when", "The latest time to send: a duration like 1h, a time, or 0 for one attempt."))
    var expires: String?

    @Option(
        help: .value("when", "The earliest time to send: a duration like 10m, or a time like 2026-12-24T18:00:00Z."))
    var notBefore: String?

    @Option(help: .value("number", "10, 5 or 1."), completion: .list(["10", "5", "1"])) var priority: Int?
    @Option(help: .value("id", "Of notifications with the same id, the device shows the last.")) var collapseID: String?

    @Option(
        help: .value("type", "Apple's push type; by default derived from the content."),
        completion: .list(PushType.documented.map(\.key.rawValue)))
    var pushType: String?

    /// The fields of `POST /v1/notifications`, checked by the same rules as in the relay.
    ///
    /// - Parameter input: Reads standard input, for a flag that is `-`.
    /// - Throws: A ``ValidationError``.
    func fields(now: Timestamp, input: () throws -> [UInt8]) throws -> JSONObject {
        var fields = JSONObject()
        if title != nil || subtitle != nil {
            var object = JSONObject()
            if let title { object["title"] = .string(title) }
            if let subtitle { object["subtitle"] = .string(subtitle) }
            if let alert { object["body"] = .string(alert) }
            fields["alert"] = .object(object)
        } else if let alert {
            fields["alert"] = .string(alert)
        }
        if let badge { fields["badge"] = .number(badge) }
        if let sound { fields["sound"] = .string(sound) }
        if let category { fields["category"] = .string(category) }
        if let threadID { fields["thread_id"] = .string(threadID) }
        if let link { fields["link"] = .string(link) }
        if contentAvailable { fields["content_available"] = .bool(true) }
        if mutableContent { fields["mutable_content"] = .bool(true) }
        if let interruptionLevel { fields["interruption_level"] = .string(interruptionLevel) }
        if let relevanceScore { fields["relevance_score"] = .number("\(relevanceScore)") }
        if let targetContentID { fields["target_content_id"] = .string(targetContentID) }
        if let image { fields["image"] = .string(image) }
        if urgent { fields["urgent"] = .bool(true) }
        if let custom { fields["custom"] = try Self.json(custom, "--custom", input) }
        if let payload { fields["payload"] = try Self.json(payload, "--payload", input) }
        if let expires { fields["expiration"] = try Self.moment(expires, "--expires", now) }
        if let notBefore { fields["not_before"] = try Self.moment(notBefore, "--not-before", now) }
        if let priority { fields["priority"] = .number(priority) }
        if let collapseID { fields["collapse_id"] = .string(collapseID) }
        if let pushType { fields["push_type"] = .string(pushType) }
        try validated { () throws(ChatError) in
            let content = try NotificationContent(fields, now: now)
            // The relay checks payloads for browsers and for Android, which have none of Apple's members.
            let isForApple = content.payload.map { $0["aps"] != nil || $0["mdm"] != nil } ?? true
            if isForApple { _ = try APNSFormat.composed(content) }
        }
        return fields
    }

    /// The size limit in bytes of a file with a payload. It is far above the limit of any gateway.
    private static let maxFile = 1 << 20

    private static func json(_ text: String, _ flag: String, _ input: () throws -> [UInt8]) throws -> JSONValue {
        let bytes: [UInt8]
        if text == "-" {
            bytes = try input()
        } else if text.hasPrefix("@") {
            let path = String(text.dropFirst())
            do throws(ReadableFile.Problem) {
                bytes = try ReadableFile.read(path, limit: maxFile)
            } catch {
                throw ValidationError("\(flag) names \(path), \(error)")
            }
        } else {
            bytes = Array(text.utf8)
        }
        do throws(JSONValue.Malformed) {
            return try JSONValue(parsing: bytes)
        } catch {
            throw ValidationError("\(flag) is not JSON: \(error)")
        }
    }

    private static let maxTime = Duration.seconds(3650 * 86_400)

    /// Whether a time is given as a duration from now. The request then differs from run to run.
    var isRelative: Bool { [expires, notBefore].contains { $0.flatMap(DurationText.duration) != nil } }

    /// The value of a time flag in UNIX seconds.
    private static func moment(_ text: String, _ flag: String, _ now: Timestamp) throws -> JSONValue {
        if text == "0" { return .number(0) }
        if let duration = DurationText.duration(text) {
            guard duration <= maxTime else { throw ValidationError("\(flag) \(text): must be at most ten years") }
            // Round up to a whole second.
            return .number((now + duration).seconds + 1)
        }
        if let time = Timestamp(rfc3339: text) { return .number(time.seconds) }
        throw ValidationError("\(flag) \(text): must be a duration like 1h, or a time like 2026-12-24T18:00:00Z")
    }
}

import ArgumentParser
import ChatDomain
import Foundation

/// `pushchat send`
struct Send: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Send a notification: through the running relay, or straight to a gateway.",
        discussion: """
            pushchat send --user alice --alert 'Tea is ready' --badge 1 --wait
            pushchat send --all --payload @payload.json --expires 1h
            pushchat send --direct --certificate app.p12 --token 0f744707… --alert Hello

            With --wait the status is 1 unless every device's push was taken.
            """)

    @OptionGroup(title: "Whom it is for") var audience: AudienceOptions

    @Option(
        help: ArgumentHelp("Only devices of this app; with --direct, the app whose gateway is used.", valueName: "name")
    )
    var app: String?

    @OptionGroup(title: "Content") var content: ContentOptions

    @Flag(help: "Leave out devices whose last push had the same payload.")
    var skipUnchanged = false

    @Option(help: ArgumentHelp("A repeat with the same key is not sent again; made up unless given.", valueName: "key"))
    var idempotencyKey: String?

    @Flag(help: "Wait until every push has come to its end, and say what became of them.")
    var wait = false

    @Option(help: ArgumentHelp("How long to wait, with --wait and --direct.", valueName: "duration"))
    var timeout = "60s"

    @Flag(help: "The result as JSON.")
    var json = false

    @OptionGroup(title: "The relay") var relay: RelayOptions

    @OptionGroup(title: "With --direct") var direct: DirectOptions

    func validate() throws {
        guard let duration = DurationText.duration(timeout), duration > .zero else {
            throw ValidationError("--timeout \(timeout): must be a duration like 60s")
        }
        if idempotencyKey != nil, content.isRelative {
            throw ValidationError(
                "--idempotency-key: a repeat has to say the same, so give --expires and --not-before as times.")
        }
        if direct.direct {
            guard !audience.token.isEmpty else {
                throw ValidationError("--direct knows no users, tags and rooms: give --token.")
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

    private var patience: Duration { DurationText.duration(timeout) ?? .seconds(60) }

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
            throw Failure("the relay's answer is not understood: \(receipt)")
        }
        guard wait else {
            if json { Output.print(json: receipt) } else { print("notification \(id): \(Self.devices(devices))") }
            return
        }
        try await NotificationWatch(client: client, id: id, json: json).run(within: patience)
    }

    /// The request, from the flags.
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
        let tokens: [DeviceToken]
        do throws(ChatError) {
            var parsed: [DeviceToken] = []
            for text in audience.token {
                let token = try DeviceToken(parsing: text, field: "--token")
                if !parsed.contains(token) { parsed.append(token) }
            }
            tokens = parsed
        } catch {
            throw ValidationError(error.message)
        }
        let gateway = try direct.app(named: app, relay)
        let composed: ComposedNotification
        do throws(ChatError) {
            composed = try gateway.format().compose(content, for: gateway.name)
        } catch {
            throw Failure(error.message)
        }
        let results = try await DirectSending(
            app: gateway, content: content, composed: composed, tokens: tokens, patience: patience
        ).run()
        if json {
            Output.print(json: .array(results.map(\.json)))
        } else {
            for result in results { print(result.line) }
        }
        guard results.allSatisfy({ $0.outcome == .accepted }) else { throw ExitCode(1) }
    }
}

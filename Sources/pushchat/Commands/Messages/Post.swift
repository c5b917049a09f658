import ArgumentParser
import ChatDomain
import Foundation

/// The flags that name the running relay and the token for it: a program's or the operator's.
struct CallerOptions: ParsableArguments {
    @Option(
        help: .value(
            "token", "A token from `pushchat token create`.",
            discussion: "By default the value of PUSHCHAT_TOKEN, which other users of the machine cannot see, "
                + "or else the operator's token."))
    var token: String?

    @OptionGroup var relay: RelayOptions

    func client() throws -> RelayClient {
        let kept = ProcessInfo.processInfo.environment[ConfigurationVariables.token]
        var client = try relay.client(token: token ?? kept.flatMap { $0.isEmpty ? nil : $0 })
        client.tokenHint = "give one with --token or in PUSHCHAT_TOKEN, or the operator's with --admin-token-file"
        return client
    }
}

/// `pushchat post`
struct Post: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Post a message to a room of the running relay, as a program.",
        discussion: """
            pushchat post ops 'Backup done' --name backup
            uptime | pushchat post ops --title "$(hostname)"

            pushchat post ops 'Disk: 95 %' --update disk
            pushchat post ops --resolve disk

            pushchat post ops 'No sign of the backup' --update backup --at +10m
            pushchat messages ops --scheduled

            The message is part of the room's history and reaches its members like any
            other. The next post with the same --update replaces its text, without a ring
            unless --renotify asks for one.

            With --at, the relay posts it later: at a time with its zone, such as
            2026-12-24T18:00:00+01:00, or after a duration, such as +30m or 2d; at most 30
            days ahead. Until then, the next post with the same --update replaces text and
            time, or posts at once without --at.

            Put -- before a text that begins with a hyphen: pushchat post ops -- '-5 °C'
            """)

    /// The size limit in bytes of standard input. It is above the longest message that a relay accepts.
    private static let maxInput = 64 * 1024

    @Argument(help: .value("code", "The room's secret code.")) var code: String
    @Argument(
        help: .value(
            "text", "The text. With - or without a text, all of standard input is one message. --resolve needs none."))
    var text: String?

    @Option(parsing: .unconditional, help: .value("text", "A title above the text.")) var title: String?
    @Option(help: .value("name", "The name of the sender.")) var name: String?
    @Option(help: .value("url", "The page that a click opens.")) var link: String?
    @Option(help: .value("number", "The priority of its pushes.")) var priority: Int?
    @Option(help: .value("name", "A sound file in the app, or default.")) var sound: String?
    @Flag(help: "Break through Focus and the summary; the priority is then 10.") var urgent = false
    @Option(help: .value("key", "A second call with the same key posts nothing; random by default."))
    var key: String?
    @Option(help: .value("key", "A name for the message. The text of an open message with this name is replaced."))
    var update: String?
    @Option(help: .value("key", "The message to end, with a last text, or so that devices remove it."))
    var resolve: String?
    @Flag(help: "A replaced text rings again.") var renotify = false
    @Option(
        help: .value("when", "When to post it: a time with its zone, or a duration like +30m; at most 30 days ahead."))
    var at: String?
    @Flag(help: "The result as JSON.") var json = false
    @OptionGroup(title: "The relay") var caller: CallerOptions

    func validate() throws {
        if let at, key != nil, Self.duration(at) != nil {
            throw ValidationError("--key: a second call must be the same, so give --at as a time, not as a duration.")
        }
        _ = try due(now: .now())
        guard let resolve else {
            guard !renotify || update != nil else { throw ValidationError("--renotify needs --update or --resolve") }
            return
        }
        for (isGiven, flag) in [(update != nil, "--update"), (name != nil, "--name"), (at != nil, "--at")]
        where isGiven {
            throw ValidationError("\(flag) has no meaning with --resolve")
        }
        // A valid name has no characters that a path would have to escape.
        _ = try validated { () throws(ChatError) in try MessageReference(parsing: resolve, field: "--resolve") }
    }

    func run() async throws {
        let response = try await post()
        guard let id = response.object?["id"]?.integer else {
            throw Failure("unexpected response from the relay: \(response)")
        }
        if json { Output.print(json: response) } else { print("message \(id)") }
        if let due = response.object?["not_before"]?.text { Output.note("it will be posted at \(due.oneLine)") }
    }

    /// The duration of `--at`. `nil` for other texts.
    private static func duration(_ text: String) -> Duration? {
        DurationText.duration(String(text.trimmingPrefix("+")))
    }

    /// The time at which to post the message. `nil` for now.
    ///
    /// - Throws: A ``ValidationError``.
    func due(now: Timestamp) throws -> Timestamp? {
        guard let at else { return nil }
        // A duration that is too long must not overflow the time.
        let due =
            Self.duration(at).map { now + min($0, ScheduledMessage.horizon + .seconds(1)) } ?? Timestamp(rfc3339: at)
        guard let due else {
            throw ValidationError(
                "--at \(at): must be a time with its zone like 2026-12-24T18:00:00+01:00, or a duration like +30m")
        }
        try validated { () throws(ChatError) in
            try ScheduledMessage.checkDue(due, now: now, field: "--at")
        }
        return due
    }

    /// Posts the message.
    ///
    /// - Returns: The relay's response.
    func post() async throws -> JSONValue {
        var path = "/v1/messages"
        if let resolve { path += "/\(resolve):resolve" }
        let hasText = resolve == nil || text != nil
        var body = try body(hasText ? try text.flatMap { $0 == "-" ? nil : $0 } ?? Self.input() : nil)
        body["not_before"] = try due(now: .now()).map { .time($0) }
        return try await caller.client().call(
            .POST, path, body, headers: ["Idempotency-Key": key ?? UUID().uuidString])
    }

    /// The request body that the flags describe, without the colours of a program's output. The relay checks it.
    ///
    /// - Parameter text: `nil` for a message that ends without a last text.
    func body(_ text: String?) throws -> JSONObject {
        var body: JSONObject = ["room": .string(code)]
        if let text = text?.withoutEscapeSequences {
            guard !FieldText.trimmed(text).isEmpty else { throw Failure("there is no text to post") }
            body["text"] = .string(text)
        }
        if let title { body["title"] = .string(title.withoutEscapeSequences) }
        if let name { body["name"] = .string(name) }
        if let link { body["link"] = .string(link) }
        if let priority { body["priority"] = .number(priority) }
        if let sound { body["sound"] = .string(sound) }
        if urgent { body["urgent"] = .bool(true) }
        if let update { body["key"] = .string(update) }
        if renotify { body["renotify"] = .bool(true) }
        return body
    }

    private static func input() throws -> String {
        if isatty(STDIN_FILENO) == 1 { Output.note("type the message; Ctrl-D posts it") }
        var bytes = Data()
        while let more = try FileHandle.standardInput.read(upToCount: maxInput), !more.isEmpty {
            bytes += more
            guard bytes.count <= maxInput else {
                throw Failure("standard input has more than \(maxInput) bytes: no relay accepts such a message")
            }
        }
        guard let text = String(validating: bytes, as: UTF8.self) else { throw Failure("standard input is not UTF-8") }
        return FieldText.trimmed(text)
    }
}

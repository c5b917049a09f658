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

            The message is part of the room's history and reaches its members like any other. The next post with the
            same --update replaces its text, without a ring unless --renotify asks for one.
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
    @Flag(help: "The result as JSON.") var json = false
    @OptionGroup(title: "The relay") var caller: CallerOptions

    func validate() throws {
        guard let resolve else {
            guard !renotify || update != nil else { throw ValidationError("--renotify needs --update or --resolve") }
            return
        }
        for (isGiven, flag) in [(update != nil, "--update"), (name != nil, "--name")] where isGiven {
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
    }

    /// Posts the message.
    ///
    /// - Returns: The relay's response.
    func post() async throws -> JSONValue {
        var path = "/v1/messages"
        if let resolve { path += "/\(resolve):resolve" }
        let hasText = resolve == nil || text != nil
        let body = try body(hasText ? try text.flatMap { $0 == "-" ? nil : $0 } ?? Self.input() : nil)
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

import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The chat in a terminal")
    struct TerminalTests {
        private static func relay(_ folder: Folder, port: ReservedPort? = nil, _ settings: String = "") async throws
            -> RelayProcess
        {
            let file = folder.file("relay.yaml")
            try Data("environment: development\n\(settings)".utf8).write(to: file)
            return try await RelayProcess.start(folder, configuration: file, port: port)
        }

        /// Returns the command, with its state in the test's folder.
        private static func command(_ folder: Folder, _ relay: RelayProcess, _ arguments: [String]) -> [String] {
            ["env", "XDG_STATE_HOME=\(folder.file("state").path)", Running.executable.path] + arguments
                + ["--relay", "http://127.0.0.1:\(relay.port)"]
        }

        /// Runs the command to its end with all of its input.
        private static func chat(
            _ folder: Folder, _ relay: RelayProcess, _ arguments: [String], input: String = "", session: String? = nil
        ) async throws -> ClientProgram {
            let variables = session.map { ["env", "PUSHCHAT_SESSION=\($0)"] } ?? []
            return try await ClientProgram.run(
                variables + command(folder, relay, ["chat"] + arguments), input: Data(input.utf8))
        }

        @Test(
            "Two terminals and a script print every message once and in order, although the relay is killed repeatedly")
        func kill() async throws {
            let folder = try Folder()
            let port = try ReservedPort()
            var relay = try await Self.relay(folder, port: port)
            let first = relay
            let alice = try ChatProcess(
                Self.command(folder, relay, ["chat", "tea", "--name", "Alice", "--json", "--follow"]), in: folder)
            try await eventually("Alice is in the room") { alice.lines.contains(#"{"event":"room","members":1}"#) }
            let bob = try ChatProcess(
                Self.command(folder, relay, ["chat", "tea", "--name", "Bob", "--json"]), in: folder)
            try await eventually("Alice hears of Bob") { alice.lines.contains(#"{"event":"room","members":2}"#) }
            try await relay.call([
                "cmd": "join", "udid": Name.udid(1), "token": "0", "name": "script", "code": "tea",
            ])

            let rounds = 4, perRound = 10
            let script = Task {
                for number in 0..<rounds * perRound {
                    let text = "s\(number)"
                    let headers = [("Idempotency-Key", text)]
                    while (try? await first.call(
                        ["cmd": "message", "udid": Name.udid(1), "text": text], headers: headers
                    ).0)
                        != 200
                    {
                        try await Task.sleep(for: .milliseconds(20))
                    }
                }
            }
            for round in 0..<rounds {
                for number in round * perRound..<(round + 1) * perRound {
                    alice.type("a\(number)\n")
                    bob.type("b\(number)\n")
                }
                guard round < rounds - 1 else { break }
                let isStored = "SELECT count(*) FROM messages WHERE text = 'a\(round * perRound)'"
                try await eventually("messages of this round come in") { try relay.count(isStored) == 1 }
                relay.process.kill(SIGKILL)
                try await relay.process.ended()
                // A line that is typed while no relay runs.
                alice.type("down\(round)\n")
                relay = try await Self.relay(folder, port: port)
            }
            try await script.value
            let count = 3 * rounds * perRound + rounds - 1
            try await eventually("all has arrived") {
                try [alice, bob].allSatisfy { try $0.messages().count >= count }
            }
            let stored = try relay.query("SELECT message_id, text FROM messages ORDER BY message_id").map {
                Printed(id: $0[0], text: $0[1])
            }
            #expect(stored.count == count && Set(stored.map(\.text)).count == count)
            #expect(try alice.messages() == stored)
            #expect(try bob.messages() == stored)
            for writer in ["a", "b", "s"] {
                let numbers = stored.compactMap { $0.text.hasPrefix(writer) ? Int($0.text.dropFirst()) : nil }
                #expect(numbers == Array(0..<rounds * perRound))
            }
            #expect(alice.errors.contains("the connection is lost; connecting again"))
            #expect(alice.errors.contains("connected again"))

            // The end of the input and a signal both end the chat in order.
            bob.endInput()
            #expect(try await bob.ended() == 0, "\(bob.errors)")
            alice.child.kill(SIGTERM)
            #expect(try await alice.ended() == 0, "\(alice.errors)")
            #expect(try alice.messages() == stored && bob.messages() == stored)

            // The next start is the same member, who sees the messages from the time between.
            try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": "meanwhile"])
            let again = try await Self.chat(folder, relay, ["tea", "--name", "Alice"])
            #expect(again.status == 0, "\(again.errors)")
            let lines = again.text.split(separator: "\n")
            #expect(lines.count == count + 1 && lines.last?.hasSuffix(" script: meanwhile") == true)
            #expect(try relay.count("SELECT count(*) FROM active_users") == 3)
        }

        @Test("The chat posts the lines of a pipe, reports rejected ones, and ends at the end of its input")
        func pipe() async throws {
            let folder = try Folder()
            let relay = try await Self.relay(folder)
            let long = String(repeating: "x", count: 1200)
            let run = try await Self.chat(folder, relay, ["ops", "--name", "cron"], input: "one\n\n\(long)\nlast")
            #expect(run.status == 1)
            #expect(
                run.text.split(separator: "\n").map { $0.split(separator: " ", maxSplits: 1)[1] } == [
                    "cron: one", "cron: last",
                ])
            #expect(
                run.errors.contains("Invalid text: must have at most 1000 bytes of UTF-8, has 1200"), "\(run.errors)")
            #expect(!run.text.contains("\u{1B}") && !run.errors.contains("\u{1B}"))

            let state = folder.file("state/pushchat")
            let files = try FileManager.default.contentsOfDirectory(atPath: state.path)
            let mode =
                try FileManager.default.attributesOfItem(
                    atPath: state.appending(path: files[0]).path)[.posixPermissions] as? Int
            #expect(files.count == 1 && mode == 0o600)

            // Without lines to post, the chat prints the history and ends.
            let last = try await Self.chat(folder, relay, ["ops", "--name", "cron", "--history", "1", "--json"])
            #expect(last.status == 0 && last.text.contains(#""text":"last","#) && !last.text.contains(#""one""#))
            #expect(try relay.count("SELECT count(*) FROM active_users") == 1)
            let left = try await Self.chat(folder, relay, ["ops", "--name", "cron", "--leave"], input: "bye\n")
            #expect(left.status == 0 && left.text.contains("cron: bye"), "\(left.errors)")
            #expect(try relay.count("SELECT count(*) FROM active_users") == 0)
            #expect(try relay.count("SELECT count(*) FROM messages") == 3)
        }

        @Test("A removed member sees the reason, and the chat exits with status 1")
        func removed() async throws {
            let folder = try Folder()
            let relay = try await Self.relay(folder)
            let chat = try ChatProcess(
                Self.command(
                    folder, relay, ["chat", "tea", "--name", "Ann", "--udid", Name.udid(7), "--json", "--follow"]),
                in: folder)
            try await eventually("Ann is in the room") { chat.lines.contains(#"{"event":"room","members":1}"#) }
            try await relay.call(["cmd": "leave", "udid": Name.udid(7)])
            #expect(try await chat.ended() == 1)
            #expect(chat.errors.contains("you are no longer in the room"), "\(chat.errors)")
            #expect(chat.lines.last == #"{"event":"left"}"#)
        }

        @Test("If the relay requires a session, the chat sends one or says what is missing")
        func session() async throws {
            let folder = try Folder()
            let secret = "a-shared-secret-of-at-least-32-characters"
            let relay = try await Self.relay(
                folder, "registration: session\nsession:\n  audience: pushchat\n  secret: \(secret)\n")
            let without = try await Self.chat(folder, relay, ["tea", "--name", "Ann"])
            #expect(without.status == 1 && without.errors.contains("PUSHCHAT_SESSION"), "\(without.errors)")
            let token = try await SessionTests.token(SessionTests.claims("ann"), algorithm: "HS256", with: secret)
            let with = try await Self.chat(folder, relay, ["tea", "--name", "Ann"], input: "hi\n", session: token)
            #expect(with.status == 0 && with.text.contains("Ann: hi"), "\(with.errors)")
            let flag = try await Self.chat(folder, relay, ["tea", "--name", "Ann", "--session", token])
            #expect(flag.status == 0 && flag.text.contains("Ann: hi"), "\(flag.errors)")
        }

        @Test(
            "On a terminal the input line stays below the messages, and no text from others controls the terminal",
            arguments: [true, false])
        func terminal(isColoured: Bool) async throws {
            let folder = try Folder()
            let relay = try await Self.relay(folder)
            func run(_ arguments: [String], _ steps: [[String: String]], _ variables: [String]) async throws
                -> ClientProgram
            {
                let steps = String(decoding: try JSONEncoder().encode(steps), as: UTF8.self)
                return try await ClientProgram.run(
                    ["env"] + variables + ["TERM=xterm"]
                        + ["python3", ClientProgram.sources.appending(path: "terminal.py").path, steps]
                        + Self.command(folder, relay, ["chat", "tea", "--name", "Ann"] + arguments), within: 150)
            }
            let variables = isColoured ? ["-u", "NO_COLOR"] : ["NO_COLOR=1"]
            let first = try await run(
                [],
                [
                    ["wait": "only you are in the room"], ["type": "hellp\u{7F}o\r"], ["wait": "hello\r\n"],
                    ["type": "\u{04}"],
                ],
                variables)
            #expect(first.status == 0, "\(first.text.debugDescription)")
            // Another program has written text that the relay would not accept.
            _ = try relay.query(
                "UPDATE messages SET nickname = ?, text = ?", ["\u{1B}]0;evil\u{07}", "\u{9B}2Jevil\r\nx"])
            let second = try await run(
                [], [["wait": "evil"], ["wait": "evil"], ["wait": "> "], ["type": "\u{03}"]], variables)
            #expect(second.status == 0, "\(second.text.debugDescription)")
            for text in [first.text, second.text] {
                #expect(
                    !text.contains("\u{1B}]") && !text.unicodeScalars.contains("\u{9B}") && !text.contains("\u{07}"))
                #expect(text.contains("\u{1B}[2m") == isColoured, "\(text.debugDescription)")
            }
        }

        @Test("A command that does not exist suggests the right one", .onlySQLite("no relay takes part"))
        func suggestion() async throws {
            for (arguments, advice) in [
                (["sedn", "--all"], "did you mean send?"), (["queue", "lsit"], "did you mean list?"),
            ] {
                let run = try await ClientProgram.run([Running.executable.path] + arguments)
                #expect(run.status == 64 && run.errors.contains(advice), "\(run.errors)")
            }
        }
    }
}

/// A message as `--json` prints it.
private struct Printed: Equatable, Decodable {
    let id: Int64
    let text: String
}

/// A running program that the test can type into, such as `pushchat chat`.
final class ChatProcess: Sendable {
    let child: Child
    private let input: Int32
    private let output: URL
    private let errorFile: URL

    init(_ command: [String], in folder: Folder) throws {
        output = folder.file("chat.\(UUID().uuidString).out")
        errorFile = folder.file("chat.\(UUID().uuidString).err")
        var ends: [Int32] = [0, 0]
        // No other process may hold the end that the test writes to.
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw Child.Failure(description: "no pipe")
        }
        input = ends[1]
        defer { close(ends[0]) }
        child = try Child(command, in: folder.url, input: ends[0], output: output, errors: errorFile)
    }

    func type(_ text: String) {
        _ = Array(text.utf8).withUnsafeBytes { write(input, $0.baseAddress, $0.count) }
    }

    /// Closes the input. Call it once.
    func endInput() { close(input) }

    func ended() async throws -> Int32 {
        try await eventually("the program ends") { child.status != nil }
        return child.status ?? -1
    }

    var lines: [String] {
        ((try? String(contentsOf: output, encoding: .utf8)) ?? "").split(separator: "\n").map(String.init)
    }

    var errors: String { (try? String(contentsOf: errorFile, encoding: .utf8)) ?? "" }

    fileprivate func messages() throws -> [Printed] {
        try lines.filter { !$0.hasPrefix(#"{"event""#) }.map {
            try JSONDecoder().decode(Printed.self, from: Data($0.utf8))
        }
    }
}

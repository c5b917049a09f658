import ArgumentParser
import Testing

@testable import pushchat

@Suite("Names of commands") struct CommandNameCheckTests {
    @Test(
        "An unknown command suggests the right one",
        arguments: [
            (["sedn", "--all"], "pushchat has no command \"sedn\"; did you mean send?"),
            (["serv"], "did you mean serve?"), (["Chat", "tea"], "did you mean chat?"),
            (["mesages"], "did you mean messages?"),
            (["queue", "lsit"], "pushchat queue has no command \"lsit\"; did you mean list?"),
            (["devices", "tags"], "did you mean tag?"), (["webpush", "kye"], "did you mean key?"),
            (["help", "sedn"], "did you mean send?"), (["help", "queue", "lst"], "did you mean list?"),
            (["tea"], "pushchat has no command \"tea\"; `pushchat --help` lists the commands"),
            (["bans", "edn"], "did you mean end?"), (["rooms", "clos", "tea"], "did you mean close?"),
            (
                ["rooms", "title", "tea", "Kitchen"],
                "pushchat rooms has no command \"title\"; `pushchat rooms --help` lists the commands"
            ),
            (["members", "kick", "7"], "`pushchat members --help` lists the commands"),
            (["queue", "17"], "`pushchat queue --help` lists the commands"),
            (["\u{1B}[2J"], "pushchat has no command \"\\u{1b}[2J\""),
        ])
    func unknown(words: [String], expected: String) {
        let error = #expect(throws: ValidationError.self) { try CommandNameCheck.check(words, of: Pushchat.self) }
        #expect(error?.message.contains(expected) == true, "\(error?.message ?? "")")
        #expect(error.map { Pushchat.exitCode(for: $0) } == .validationFailure)
    }

    @Test(
        "A word that is no command's name is passed to the command",
        arguments: [
            [], ["--help"], ["help"], ["help", "send"], ["--port", "1"], ["send", "sedn"], ["queue"],
            ["queue", "--limit", "3", "lsit"], ["queue", "show", "7"], ["chat", "sedn", "--name", "a"],
            ["post", "tea", "x"], ["members", "tea"], ["messages", "tea"], ["rooms", "te"],
            ["rooms", "te", "--limit", "3"], ["messages", "tea", "--json"], ["members", "remove", "7"],
            ["help", "members", "ban"],
            ["---completion", "send"], ["--generate-completion-script", "bash"], [""],
        ])
    func known(words: [String]) throws {
        try CommandNameCheck.check(words, of: Pushchat.self)
    }

    @Test("The error of a recognized command shows the usage of that command")
    func usage() {
        for (command, name) in [
            (Rooms.Close.self, "pushchat rooms close"), (Devices.Show.self, "pushchat devices show"),
            (Send.self, "pushchat send"),
        ] as [(any ParsableCommand.Type, String)] {
            let text = Pushchat.usageError(ValidationError("--for x: must be a duration"), of: command)
            #expect(text.hasPrefix("Error: --for x: must be a duration\nUsage: \(name) "), "\(text)")
            #expect(text.hasSuffix("\n  See '\(name) --help' for more information.\n"), "\(text)")
        }
    }
}

import Foundation
import TestSupport
import Testing

extension Clients {
    @Suite("Commands and options that the pages name")
    struct NamedOptionTests {
        @Test("The pages name only commands and options that the executable has", .onlySQLite("no relay takes part"))
        func options() async throws {
            let root = try await Command.ofTheExecutable()
            for path in Page.all where path != "CHANGELOG.md" {
                for words in try Page(path).shellCommands.flatMap(root.calls) {
                    let unknown = root.unknown(in: words)
                    #expect(unknown.isEmpty, "\(path): pushchat \(words.joined(separator: " ")): no \(unknown)")
                }
            }
            // The page of the command line names most commands and options alone.
            let anywhere = root.optionsOfAll
            for span in try Page("docs/cli.md").codeSpans {
                let words = span.split(whereSeparator: \.isWhitespace).map { String($0) }
                let isCommand = root.subcommand(words.first) != nil
                let unknown =
                    isCommand ? root.unknown(in: words) : Command.options(in: words).filter { !anywhere.contains($0) }
                #expect(unknown.isEmpty, "docs/cli.md: \(span): no \(unknown)")
            }
        }

        @Test("The page of the command line names every command", .onlySQLite("no relay takes part"))
        func commands() async throws {
            let named = Set(try Page("docs/cli.md").codeSpans.compactMap { $0.split(separator: " ").first })
            for command in try await Command.ofTheExecutable().subcommands ?? [] where command.commandName != "help" {
                #expect(named.contains(Substring(command.commandName)), "docs/cli.md: \(command.commandName)")
            }
        }

        @Test("Unknown names in a command are found", .onlySQLite("no relay takes part"))
        func unknown() async throws {
            let root = try await Command.ofTheExecutable()
            func unknown(_ script: String) -> [String] {
                Page(text: "```sh\n\(script)\n```").shellCommands.flatMap(root.calls).flatMap { root.unknown(in: $0) }
            }
            #expect(unknown("x | sudo -u pushchat pushchat send --alert x \\\n --no") == ["--no"])
            #expect(unknown("queue=$(pushchat queue --state sent --wait)") == ["--wait"])
            #expect(unknown("/usr/bin/pushchat rooms close tea --for 7d --all # --x") == ["--all"])
            #expect(unknown("pushchat sedn x; pushchat --port 1; useradd --shell x pushchat") == ["sedn"])
        }
    }
}

/// A command of the executable and its options, as the executable describes them to programs.
private struct Command: Decodable {
    struct Argument: Decodable {
        struct Name: Decodable {
            let name: String
        }
        let names: [Name]?
    }
    private struct Description: Decodable {
        let command: Command
    }

    let commandName: String
    let arguments: [Argument]?
    let subcommands: [Command]?

    static func ofTheExecutable() async throws -> Command {
        let printed = try await tool(Running.executable.path, ["--experimental-dump-help"])
        return try JSONDecoder().decode(Description.self, from: Data(printed.utf8)).command
    }

    func subcommand(_ name: String?) -> Command? {
        subcommands?.first { $0.commandName == name }
    }

    private var options: Set<String> {
        Set((arguments ?? []).flatMap { $0.names ?? [] }.map { "--\($0.name)" })
    }

    var optionsOfAll: Set<String> {
        (subcommands ?? []).reduce(into: options) { $0.formUnion($1.optionsOfAll) }
    }

    /// The arguments of the call of the executable in a command of a shell script.
    func calls(in words: [String]) -> [[String]] {
        for (index, word) in words.enumerated() where word == "pushchat" || word.hasSuffix("/pushchat") {
            let arguments = Array(words[(index + 1)...])
            // Elsewhere than at the start, the word may also name a user, a package or a folder.
            if index == 0 || subcommand(arguments.first) != nil { return [arguments] }
        }
        return []
    }

    /// The commands and options that do not exist, in the arguments of a call.
    func unknown(in words: [String]) -> [String] {
        if let command = subcommand(words.first) { return command.unknown(in: Array(words.dropFirst())) }
        var known = options.union(["--help", "--version", "--generate-completion-script"])
        // Without a name, the default command runs.
        for name in ["list", "serve"] { known.formUnion(subcommand(name)?.options ?? []) }
        let isCommand = subcommand("serve") != nil && words.first?.wholeMatch(of: /[a-z]+/) != nil
        return (isCommand ? Array(words.prefix(1)) : []) + Self.options(in: words).filter { !known.contains($0) }
    }

    static func options(in words: [String]) -> [String] {
        words.compactMap { $0.prefixMatch(of: /--[a-z][a-z0-9-]+/).map { String($0.0) } }
    }
}

extension Page {
    /// Texts in backquotes, outside fenced blocks.
    fileprivate var codeSpans: [String] {
        unfenced.joined(separator: "\n").replacing("```", with: "").matches(of: /`([^`]+)`/).map { String($0.1) }
    }

    /// The words of each command in fenced shell blocks and in backquotes.
    fileprivate var shellCommands: [[String]] {
        let scripts = fenced("sh").map { $0.replacing("\\\n", with: " ") }
        let commands = scripts.flatMap { $0.split(separator: /[|;()\n]|&&| #/) } + codeSpans.map { Substring($0) }
        return commands.map { $0.split(whereSeparator: \.isWhitespace).map { String($0) } }
    }
}

import ArgumentParser
import Foundation

/// The executable: the relay, its commands, and the sandbox, which imitates the push services of Apple and of browsers.
@main
struct Pushchat: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pushchat",
        abstract: "A chat relay that pushes every message to its room, and a local sandbox for Apple's push service.",
        discussion: """
            To try it without configuration: pushchat dev
            To set it up:                    pushchat init
            To run it:                       pushchat serve --config pushchat.yaml
            To check the set-up:             pushchat check
            To chat in a room:               pushchat chat CODE --name NAME

            Settings come from a YAML file, PUSHCHAT_… variables and flags.
            To see every setting in force and its source: pushchat config
            """,
        version: "pushchat \(Build.description)",
        subcommands: [
            Init.self, Serve.self, Reload.self, Dev.self, SandboxCommand.self, Chat.self, Post.self, Send.self,
            Rooms.self,
            Members.self,
            Messages.self, Bans.self, Devices.self, Queue.self, Import.self, Backup.self, Restore.self,
            Migrate.self, Check.self,
            ShowConfiguration.self,
            WebPush.self,
            Token.self, WebhooksCommand.self, CredentialCommand.self,
        ],
        defaultSubcommand: Serve.self)

    /// Parses and runs the command as ``AsyncParsableCommand`` does, with three differences. SIGHUP never ends `serve`,
    /// even before the relay can handle it: the relay reloads later. An unknown command name suggests a similar one. A
    /// ``ValidationError`` that `run` throws is printed with the usage of its command.
    static func main() async {
        let meaning = ReloadSignal.hold()
        do {
            try CommandNameCheck.check(Array(CommandLine.arguments.dropFirst()), of: self)
            var command = try await asyncParseAsRoot()
            if !(command is Serve) { ReloadSignal.release(meaning) }
            do {
                if var asynchronous = command as? any AsyncParsableCommand {
                    try await asynchronous.run()
                } else {
                    try command.run()
                }
            } catch let error as ValidationError {
                FileHandle.standardError.write(Data(usageError(error, of: type(of: command)).utf8))
                throw ExitCode.validationFailure
            }
        } catch {
            exit(withError: error)
        }
    }

    /// The error text and the usage of `command`, which was used incorrectly. For an error that `run` throws,
    /// ArgumentParser would print the usage of the whole program.
    static func usageError(_ error: ValidationError, of command: any ParsableCommand.Type) -> String {
        let words = words(for: command, in: self) ?? [_commandName]
        return """
            Error: \(error.message)
            Usage: \(usageString(for: command))
              See '\(words.joined(separator: " ")) --help' for more information.

            """
    }

    /// The words of a command line that name `command`, starting with the name of `root`. `nil` if `command` is not a
    /// subcommand of `root`.
    private static func words(for command: any ParsableCommand.Type, in root: any ParsableCommand.Type) -> [String]? {
        if command == root { return [root._commandName] }
        for next in root.configuration.subcommands {
            if let words = words(for: command, in: next) { return [root._commandName] + words }
        }
        return nil
    }
}

import ArgumentParser

/// Checks that the words at the beginning of a command line name a command.
///
/// ArgumentParser passes an unknown word to the default subcommand as an argument. The error would then be about a
/// command that the user did not mean. A default subcommand that takes one argument (``ListingCommands``) accepts any
/// word, unless another one follows.
enum CommandNameCheck {
    /// Walks down the commands that `words` name.
    ///
    /// - Parameter words: The arguments, without the executable.
    /// - Throws: A ``ValidationError`` for an unknown word in a place where only a command name is possible.
    static func check(_ words: [String], of root: any ParsableCommand.Type) throws {
        var (command, path, words) = (root, [root._commandName], words[...])
        // `help` precedes the names of the commands that it describes.
        if words.first == "help" { words = words.dropFirst() }
        while let word = words.popFirst(), !word.isEmpty, !word.hasPrefix("-"),
            case let commands = command.configuration.subcommands, !commands.isEmpty
        {
            guard let next = commands.first(where: { $0._commandName == word }) else {
                if command is any ListingCommands.Type, words.first?.hasPrefix("-") ?? true { return }
                let command = path.joined(separator: " ")
                let nearest = Suggestion.nearest(to: word, among: commands.map { $0._commandName })
                let advice = nearest.map { "did you mean \($0)?" } ?? "`\(command) --help` lists the commands"
                throw ValidationError("\(command) has no command \(LogText.quoted(word, limit: 60)); \(advice)")
            }
            path.append(word)
            command = next
        }
    }
}

/// A command whose default subcommand takes one argument: a room's code, or the beginning of the codes of the rooms to
/// list.
protocol ListingCommands {}

import ArgumentParser

/// The words at the beginning of a command line, which name a command.
///
/// A command that has a default subcommand would take an unknown word for an argument of that, and the error would be about
/// something that nobody meant. But where that takes an argument (``ListingCommands``), a word may be one.
enum CommandNameCheck {
    /// - Parameter words: the arguments, without the executable.
    /// - Throws: a ``ValidationError`` for a word where only a command's name can stand.
    static func check(_ words: [String], of root: any ParsableCommand.Type) throws {
        var (command, path, words) = (root, [root._commandName], words[...])
        // `help` goes before all that it is about.
        if words.first == "help" { words = words.dropFirst() }
        while let word = words.popFirst(), !word.isEmpty, !word.hasPrefix("-"),
            case let commands = command.configuration.subcommands, !commands.isEmpty
        {
            guard let next = commands.first(where: { $0._commandName == word }) else {
                if command is any ListingCommands.Type { return }
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

/// A command whose default subcommand lists what its argument names.
protocol ListingCommands {}

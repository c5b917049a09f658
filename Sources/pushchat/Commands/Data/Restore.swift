import ArgumentParser
import ChatDomain
import ChatStore

/// `pushchat restore`
struct Restore: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Replace the database by a copy, while no relay runs.",
        discussion: """
            FILE is a copy of pushchat backup, or one that an upgrade has left (pushchat.db.version-3). The previous database
            stays beside the new one as pushchat.db.replaced-1. Tokens and credentials that were revoked since the copy stay
            revoked, bans stay in force, and lifted bans stay lifted. Tokens and credentials that are newer than the copy
            are lost; the command names them. Scheduled messages that were due are held, because the relay may have
            posted them.
            """)

    @Argument(help: "The copy; it does not change.", completion: .file()) var file: String
    @Flag(
        help: ArgumentHelp(
            "Do not carry over revocations and bans.",
            discussion: "Required if the database is missing or damaged, or is not the one that was copied."))
    var withoutCarrying = false
    @OptionGroup var options: DatabaseOptions

    func run() throws {
        var line = ProgressLine()
        defer { line.end() }
        let (path, restored) = try Failure.catching {
            let path = try options.path(insteadOverPostgreSQL: "use pg_restore (docs/postgresql.md)")
            let restored = try DatabaseCopy.restore(file, to: path, carrying: !withoutCarrying) { done, total in
                line.show("\(total == 0 ? 100 : done * 100 / total) %")
            }
            return (path, restored)
        }
        line.end()
        print("\(path) has the content of \(file)")
        for text in restored.carried?.lines ?? [] { print(text) }
        if withoutCarrying {
            print("Tokens that were revoked since the copy are valid again; newer bans are lost")
        }
        if restored.held > 0 {
            print("Scheduled messages that were due, and are held until their programs or you decide: \(restored.held)")
        }
        if let replaced = restored.replaced {
            print("The previous database is \(replaced)")
            if restored.mayRepeatNumbers {
                print("It could not be read, so ids that it assigned may be assigned again")
            }
        }
    }
}

extension CarriedOver {
    /// The maximum number of items that a line names.
    private static let maxNamed = 50

    fileprivate var lines: [String] {
        var lines: [String] = []
        func add(_ text: String, _ items: [Item], unnamed: String = "a device or room") {
            guard !items.isEmpty else { return }
            let names = items.prefix(Self.maxNamed).map { "\($0.id) (\(($0.name ?? unnamed).oneLine))" }
            let rest = items.count > names.count ? ", and \(items.count - names.count) more" : ""
            lines.append("\(text): \(names.joined(separator: ", "))\(rest)")
        }
        add("Tokens that stay revoked", revoked)
        add("Tokens that keep the scopes, room, audience and expiry that they had last", changed)
        add("Tokens that are newer than the copy and are lost; create them again", gone)
        add("Credentials of other apps that stay invalid", endedCredentials)
        add("Credentials of other apps that are newer than the copy and are lost; create them again", goneCredentials)
        add("Bans that stay in force", bans)
        add("Bans that stay lifted", lifted)
        add(
            "Bans that the copy's schema version cannot store completely; add them again after the upgrade", incomplete
        )
        if removedMembers > 0 {
            lines.append("Members of the copy who are banned, and were removed: \(removedMembers)")
        }
        return lines
    }
}

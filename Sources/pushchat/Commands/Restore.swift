import ArgumentParser
import ChatDomain
import ChatStore

/// `pushchat restore`
struct Restore: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Put a copy in the place of the database, while no relay runs.",
        discussion: """
            Of pushchat backup, or the one that an upgrade has left (pushchat.db.version-3). What was there stays beside
            it as pushchat.db.replaced-1. Tokens that were revoked since the copy stay revoked, bans stay in force, and
            lifted bans stay lifted. Tokens that are newer than the copy are gone; they are named.
            """)

    @Argument(help: "The copy; it stays.", completion: .file()) var file: String
    @Flag(
        help: ArgumentHelp(
            "Take over no revocations and bans.",
            discussion: "Needed where the database is missing, damaged, or another one than the copied."))
    var withoutCarrying = false
    @OptionGroup var options: DatabaseOptions

    func run() throws {
        var line = ProgressLine()
        defer { line.end() }
        let (path, restored) = try Failure.catching {
            let path = try options.path(insteadOverPostgreSQL: "pg_restore goes back to a copy (docs/postgresql.md)")
            let restored = try DatabaseCopy.restore(file, to: path, carrying: !withoutCarrying) { done, total in
                line.show("\(total == 0 ? 100 : done * 100 / total) %")
            }
            return (path, restored)
        }
        line.end()
        print("\(path) is as in \(file)")
        for text in restored.carried?.lines ?? [] { print(text) }
        if withoutCarrying {
            print("Tokens that were revoked since the copy are valid again; bans that are newer are gone")
        }
        if let replaced = restored.replaced {
            print("What was there is \(replaced)")
            if restored.mayRepeatNumbers { print("It could not be read: numbers that it gave may be given again") }
        }
    }
}

extension CarriedOver {
    /// The number of items that a line names.
    private static let mostNamed = 50

    fileprivate var lines: [String] {
        var lines: [String] = []
        func add(_ text: String, _ items: [Item], unnamed: String = "a device or room") {
            guard !items.isEmpty else { return }
            let names = items.prefix(Self.mostNamed).map { "\($0.id) (\(Output.oneLine($0.name ?? unnamed)))" }
            let rest = items.count > names.count ? ", and \(items.count - names.count) more" : ""
            lines.append("\(text): \(names.joined(separator: ", "))\(rest)")
        }
        add("Tokens that stay revoked", revoked)
        add("Tokens with the scopes, room, audience and expiry that they had last", changed)
        add("Tokens that are newer than the copy and gone; create them again", gone)
        add("Bans that stay in force", bans)
        add("Bans that stay lifted", lifted)
        add(
            "Bans that the copy's schema version cannot hold as they were; add them again after the upgrade", incomplete
        )
        if removedMembers > 0 {
            lines.append("Members of the copy who are banned, and were removed: \(removedMembers)")
        }
        return lines
    }
}

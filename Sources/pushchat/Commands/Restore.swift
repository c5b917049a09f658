import ArgumentParser
import ChatDomain
import ChatStore

/// `pushchat restore`
struct Restore: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Put a copy in the place of the database, while no relay runs.",
        discussion: """
            Of pushchat backup, or the one that an upgrade has left (pushchat.db.version-7). What was there stays beside
            it as pushchat.db.replaced-1.
            """)

    @Argument(help: "The copy; it stays.", completion: .file()) var file: String
    @OptionGroup var options: DatabaseOptions

    func run() throws {
        var line = ProgressLine()
        defer { line.end() }
        var (path, replaced) = ("", String?.none)
        try Failure.catching {
            path = try options.path(insteadOverPostgreSQL: "pg_restore goes back to a copy (docs/postgresql.md)")
            replaced = try DatabaseCopy.restore(file, to: path) { done, total in
                line.show("\(total == 0 ? 100 : done * 100 / total) %")
            }
        }
        line.end()
        print("\(path) is as in \(file)")
        if let replaced { print("What was there is \(replaced)") }
    }
}

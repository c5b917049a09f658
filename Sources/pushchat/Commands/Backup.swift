import ArgumentParser
import ChatDomain
import ChatStore

/// `pushchat backup`
struct Backup: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Copy the database into a file, consistently, while the relay runs.",
        discussion: """
            The copy is of one moment, needs nothing beside it, and is for its owner's eyes only (mode 0600).
            To go back to it: stop the relay, pushchat restore FILE, start.
            """)

    @Argument(
        help: "Where to; a file that is there already is not touched. With --keep: a folder.",
        completion: .file(extensions: ["db"]))
    var file: String

    @Option(
        help: .value(
            "number", "In the folder, under a name with the time; of such copies only so many stay, the newest."))
    var keep: Int?
    @Flag(help: "The result as JSON.") var json = false
    @OptionGroup var options: DatabaseOptions

    func validate() throws {
        if let keep, keep < 1 { throw ValidationError("--keep \(keep): must be 1 or more") }
    }

    private func path() throws -> String {
        try options.path(insteadOverPostgreSQL: "pg_dump copies it (docs/postgresql.md)")
    }

    func run() throws {
        var line = ProgressLine()
        defer { line.end() }
        var (pages, copy) = (0, file)
        try Failure.catching {
            func show(_ done: Int, _ total: Int) {
                pages = total
                line.show("\(total == 0 ? 100 : done * 100 / total) %")
            }
            if let keep {
                copy = try DatabaseCopy.make(of: path(), in: file, keep: keep, progress: show).file
            } else {
                try DatabaseCopy.make(of: path(), to: file, progress: show)
            }
        }
        line.end()
        if json {
            Output.print(json: .object(["file": .string(copy), "pages": .number(pages)]))
        } else {
            print("\(copy): \(pages) pages")
        }
    }
}

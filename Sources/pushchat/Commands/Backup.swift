import ArgumentParser
import ChatDomain
import ChatStore

/// `pushchat backup`
struct Backup: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Copy the database into a file, consistently, while the relay runs.",
        discussion: """
            The copy is of one moment, needs nothing beside it, and is for its owner's eyes only (mode 0600).
            To go back to it: stop the relay, put the file in the database's place, delete the files that are called
            like it with -wal and -shm behind, start.
            """)

    @Argument(help: "Where to; a file that is there already is not touched.", completion: .file(extensions: ["db"]))
    var file: String

    @Flag(help: "The result as JSON.") var json = false
    @OptionGroup var options: DatabaseOptions

    func run() throws {
        var line = ProgressLine()
        defer { line.end() }
        var pages = 0
        try Failure.catching {
            try QueueFile.backup(options.path(), to: file) { done, total in
                pages = total
                line.show("\(total == 0 ? 100 : done * 100 / total) %")
            }
        }
        line.end()
        if json {
            Output.print(json: .object(["file": .string(file), "pages": .number(pages)]))
        } else {
            print("\(file): \(pages) pages")
        }
    }
}

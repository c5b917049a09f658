import ArgumentParser
import ChatDomain
import ChatStore

/// `pushchat backup`
struct Backup: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Copy the database into a file while the relay runs.",
        discussion: """
            The copy shows the database at one moment and is complete in one file. Only its owner can read it (mode 0600).
            Its checksum is in a file beside it, as sha256sum writes it (FILE.sha256).
            To restore it: stop the relay, run pushchat restore FILE, start the relay.
            With --verify alone, it makes no copy. It checks the newest one in the folder, and compares it with the database.
            """)

    @Argument(
        help: "The copy to write; it must not exist yet. With --keep, a folder.",
        completion: .file(extensions: ["db"]))
    var file: String

    @Option(
        help: .value(
            "number", "Name the copy after the time, and keep only this many of the newest copies in the folder."))
    var keep: Int?
    @Flag(help: "Check that the newest copy in the folder is as it was made and has all rows that it should have.")
    var verify = false
    @Flag(help: "The result as JSON.") var json = false
    @OptionGroup var options: DatabaseOptions

    func validate() throws {
        if let keep, keep < 1 { throw ValidationError("--keep \(keep): must be 1 or more") }
    }

    private func path() throws -> String {
        try options.path(insteadOverPostgreSQL: "use pg_dump (docs/postgresql.md)")
    }

    func run() throws {
        let copy = keep != nil || !verify ? try makeCopy() : file
        if verify { try check(copy) }
    }

    /// - Parameter copy: A copy, or the folder whose newest copy to check.
    private func check(_ copy: String) throws {
        let result = try Failure.catching { try DatabaseCopy.verify(copy, against: path()) }
        let missing = result.tables.filter { $0.missing > 0 }
        if json {
            Output.print(
                json: .object([
                    "file": .string(result.file), "made_at": .string(result.madeAt.rfc3339),
                    "complete": .bool(missing.isEmpty),
                    "checksum": result.hasChecksum ? .string("ok") : .null,
                    "tables": .array(
                        result.tables.map { table in
                            .object([
                                "name": .string(table.name), "copy": .number(table.inCopy),
                                "database": table.inDatabase.map { .number($0) } ?? .null,
                                "missing": .number(table.missing),
                            ])
                        }),
                ]))
        } else {
            var table = OutputTable(["TABLE", "COPY", "DATABASE", "MISSING"])
            for each in result.tables {
                table.add([
                    each.name, "\(each.inCopy)", each.inDatabase.map { "\($0)" } ?? "none", "\(each.missing)",
                ])
            }
            table.end()
            let state = result.hasChecksum ? "intact" : "no checksum, and no damage that SQLite can find"
            print("\(result.file): made at \(result.madeAt.rfc3339), \(state)")
        }
        guard missing.isEmpty else {
            let texts = missing.map { "\($0.name) \($0.missing)" }.joined(separator: ", ")
            throw Failure("\(result.file) lacks rows that are older than the copy: \(texts)")
        }
    }

    /// Returns the name of the copy.
    private func makeCopy() throws -> String {
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
        return copy
    }
}

import ArgumentParser
import ChatDomain
import ChatStore
import Foundation
import Synchronization

/// `pushchat migrate`
struct Migrate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Copy a SQLite file into an empty PostgreSQL database, or back, while no relay runs.",
        discussion: """
            FROM and TO are a file, a URL (postgres://…), or @FILE for a file that contains the URL. A password does not
            belong on the command line, where every user sees it: use @FILE or PGPASSFILE. FROM does not change. The
            command reads TO back and compares it. TO gets everything or nothing: run an interrupted migration again.
            """)

    @Argument(help: "The database to copy.", completion: .file(extensions: ["db"])) var from: String
    @Argument(help: "The destination: a file that does not exist, or an empty database.", completion: .file()) var to:
        String
    @Option(help: .value("name", "PostgreSQL's schema; by default the user's first. Created in TO if missing."))
    var schema: String?
    @Flag(help: "The result as JSON.") var json = false

    func run() async throws {
        let (from, to) = (try DatabasePlace(from, schema: schema), try DatabasePlace(to, schema: schema))
        Interruption.hold()
        let copied: [Migration.Copied]
        do {
            copied = try await Storage.copy(from, to, isStopped: { Interruption.hasCome })
        } catch let error as Migration.Failure {
            throw Failure("\(error); nothing was kept in \(to), run it again")
        } catch {
            throw Failure("\(error)")
        }
        if json {
            return Output.print(
                json: .object([
                    "tables": .array(
                        copied.map { table in
                            .object([
                                "table": .string(table.table), "rows": .number(Int64(table.rows)),
                                "sha256": .string(table.hash),
                            ])
                        })
                ]))
        }
        var table = OutputTable(["TABLE", "ROWS", "SHA-256"])
        for copied in copied { table.add([copied.table, String(copied.rows), String(copied.hash.prefix(16))]) }
        table.end()
        Output.note("\(to) has the same content, read back and compared")
    }
}

/// Records SIGINT and SIGTERM, so that the running migration can stop in an orderly way. A second signal ends the
/// process at once.
private enum Interruption {
    private static let flag = Atomic(false)

    static var hasCome: Bool { flag.load(ordering: .relaxed) }

    static func hold() {
        // Initialize the flag here, because a signal handler must not do it (lazy initialization takes a lock).
        flag.store(false, ordering: .relaxed)
        for number in [SIGINT, SIGTERM] {
            signal(number) { number in
                Interruption.flag.store(true, ordering: .relaxed)
                signal(number, SIG_DFL)
            }
        }
    }
}

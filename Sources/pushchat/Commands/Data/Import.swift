import ArgumentParser
import ChatDomain
import Foundation

/// The options of all imports. An import reads the file twice: it checks the whole file before it writes, so that a
/// file with wrong rows changes nothing.
struct ImportOptions: ParsableArguments {
    @Option(help: .value("name", "The app of rows that name no app; by default the default app.")) var app: String?
    @Flag(help: "Only check the file, and print what would be imported.") var dryRun = false
    @Flag(help: "Skip wrong rows, and import the others.") var skipWrong = false
    @OptionGroup(title: "The database") var options: DatabaseOptions

    /// The maximum number of wrong rows to name on standard error.
    private static let maxNamed = 100
    /// The maximum number of rows to write together.
    private static let batchSize = 500

    /// Imports a file, reading it twice.
    ///
    /// - Parameters:
    ///   - keepsQueue: Whether to import pushes that are not sent yet.
    ///   - columns: The columns that the file contains, for a table of devices.
    ///   - open: Starts to read the file. The app name is for rows that name no app.
    /// - Throws: ``Failure``, or a ``ValidationError`` if `--app` names no app.
    func run<Rows: ImportRows>(
        _ path: String, keepsQueue: Bool = true, columns: @escaping (Rows) -> Set<DeviceRecord.Column> = { _ in [] },
        open: @escaping (ByteReader, AppDirectory, AppName) throws -> Rows
    ) async throws {
        let apps = AppDirectory(try options.configuration(), topics: [:])
        guard let target = try? apps.resolve(app), target != .web else {
            throw ValidationError("--app \(app ?? ""): names no app of this configuration")
        }
        func begin() throws -> Rows {
            guard let file = FileHandle(forReadingAtPath: path) else {
                throw Failure("\(path) cannot be read: \(String(cString: strerror(errno)))")
            }
            do {
                return try open(ByteReader(file), apps, target)
            } catch let error as UnreadableFile {
                throw Failure("\(path), \(error)")
            }
        }
        let found = try check(path, begin())
        guard found.wrong == 0 || skipWrong else {
            throw Failure("nothing was imported: \(found.wrong) of its rows are wrong; --skip-wrong leaves them out")
        }
        guard found.total > 0 else { throw Failure("\(path) has no rows to import") }
        if dryRun { return print("nothing was imported; the file has " + found.text(keepsQueue: keepsQueue)) }
        let rows = try begin()
        try await options.withStorage { storage in
            try await take(rows, columns(rows), storage, target, keepsQueue: keepsQueue)
        }
    }

    /// Counts the rows of a file by kind.
    private struct Counts {
        var members = 0
        var pushes = 0
        var devices = 0
        var sent = 0
        var wrong = 0
        var total: Int { members + pushes + devices + sent + wrong }

        func text(keepsQueue: Bool) -> String {
            [
                (members, "members"), (keepsQueue ? pushes : 0, "pushes that wait"), (devices, "devices"),
                (sent, "pushes that were sent"), (wrong, "wrong rows"),
            ].filter { $0.0 > 0 }.map { "\($0.1): \($0.0)" }.joined(separator: ", ")
        }
    }

    /// Reads the whole file, and names wrong rows on standard error.
    private func check(_ path: String, _ rows: some ImportRows) throws -> Counts {
        var (rows, counts) = (rows, Counts())
        do {
            while let row = try rows.next() {
                switch row {
                case .member: counts.members += 1
                case .push: counts.pushes += 1
                case .device: counts.devices += 1
                case .sent: counts.sent += 1
                case .wrong(let wrong):
                    counts.wrong += 1
                    if counts.wrong <= Self.maxNamed { Output.note("\(path), \(wrong)".oneLine) }
                }
            }
        } catch let error as UnreadableFile {
            throw Failure("nothing was imported: \(path), \(error)")
        }
        if counts.wrong > Self.maxNamed { Output.note("… and \(counts.wrong - Self.maxNamed) more") }
        return counts
    }

    /// Writes the rows in batches. If the import is interrupted, the next run recognizes the rows that were written.
    private func take(
        _ rows: some ImportRows, _ columns: Set<DeviceRecord.Column>, _ storage: Storage, _ app: AppName,
        keepsQueue: Bool
    ) async throws {
        var (rows, line) = (rows, ProgressLine())
        defer { line.end() }
        var batch: (members: [JoinRequest], pushes: [WaitingPush], devices: [DeviceRecord]) = ([], [], [])
        var (members, here, pushes, refused, sent, known) = (0, 0, 0, 0, 0, 0)
        var devices = DeviceImportResult()
        var imported = keepsQueue ? try await storage.imports.importedPushes() : []
        func flush() async throws {
            // Skip members that this database already has: their data here is newer than the file.
            let present = try await storage.imports.knownMembers(of: batch.members.map(\.member))
            let new = batch.members.filter { !present.contains($0.member.text) }
            here += batch.members.count - new.count
            let problems = try await Self.join(new, storage.ports.rooms)
            for problem in problems { Output.note(problem.oneLine) }
            members += new.count - problems.count
            refused += problems.count
            let waiting = batch.pushes.filter { imported.insert($0.id).inserted }
            if !waiting.isEmpty { try await storage.imports.take(waiting, app: app) }
            pushes += waiting.count
            known += batch.pushes.count - waiting.count
            if !batch.devices.isEmpty { devices += try await storage.imports.take(batch.devices, columns: columns) }
            batch = ([], [], [])
            line.show("\(members) members, \(pushes) pushes, \(devices.created + devices.updated) devices")
        }
        while let row = try rows.next() {
            switch row {
            case .member(let member): batch.members.append(member)
            case .push(let push): if keepsQueue { batch.pushes.append(push) }
            case .device(let device): batch.devices.append(device)
            case .sent: sent += 1
            case .wrong: refused += 1
            }
            guard batch.members.count + batch.pushes.count + batch.devices.count >= Self.batchSize else { continue }
            let began = ContinuousClock.now
            try await flush()
            // Pause for as long as the batch took, so that other processes can write. A process that waits for SQLite's
            // file lock only polls for it from time to time.
            try await Task.sleep(for: .now - began)
        }
        try await flush()
        line.end()
        let parts = [
            (members, "members"), (here, "members left out, here already"), (pushes, "pushes queued"),
            (known, "pushes that were imported before"),
            (sent, "pushes left out, sent already"), (devices.created, "new devices"),
            (devices.updated, "devices that were known"), (devices.newer, "devices left out, newer here"),
            (refused, "wrong rows left out"),
        ]
        print("imported: " + parts.filter { $0.0 > 0 }.map { "\($0.1): \($0.0)" }.joined(separator: ", "))
    }

    /// Lets each member join through the same port as the chat API. Concurrent joins share transactions.
    ///
    /// - Returns: For each member that the store rejected, the reason.
    /// - Throws: A ``ChatError`` if a join failed for a reason that is not the member's: `unavailable` or
    ///   `internalError`.
    private static func join(_ members: [JoinRequest], _ rooms: any RoomStore) async throws -> [String] {
        try await withThrowingTaskGroup(of: String?.self) { group in
            for member in members {
                group.addTask {
                    do throws(ChatError) {
                        _ = try await rooms.join(member)
                        return nil
                    } catch {
                        guard error.code != .unavailable, error.code != .internalError else { throw error }
                        return "\(member.member): \(error.message)"
                    }
                }
            }
            return try await group.reduce(into: []) { if let problem = $1 { $0.append(problem) } }
        }
    }
}

/// `pushchat import`
struct Import: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Import members and waiting pushes of the tutorial's server, or a list of device tokens.",
        discussion: """
            FILE.sql is the output of mysqldump for the tutorial's database: its members join their rooms, and its unsent
            pushes are queued. FILE.csv is a table of devices, as for `pushchat devices import`.
            Writes to the database, whether a relay is running or not. Checks the whole file first: if a row is wrong, the
            command names it with its line and imports nothing. A second import of the same file changes nothing more.
            """)

    enum Format: String, ExpressibleByArgument, CaseIterable {
        case mysql, csv
    }

    @Argument(help: "The file.", completion: .file(extensions: ["sql", "csv"])) var file: String
    @Option(help: .value("name", "mysql or csv; by default the end of the file's name decides.")) var format: Format?
    @Flag(help: "Import only members, and no waiting pushes.") var withoutQueue = false
    @OptionGroup var options: ImportOptions

    func run() async throws {
        guard let format = format ?? Self.format(of: file) else {
            throw ValidationError("\(file): say with --format whether it is mysql or csv")
        }
        switch format {
        case .mysql:
            try await options.run(
                file, keepsQueue: !withoutQueue, open: { bytes, _, app in TutorialDump(bytes, app: app) })
        case .csv: try await Devices.Import.run(file, options)
        }
    }

    private static func format(of file: String) -> Format? {
        file.hasSuffix(".sql") ? .mysql : file.hasSuffix(".csv") ? .csv : nil
    }
}

extension Devices {
    /// `pushchat devices import`
    struct Import: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Import devices from a table into the database.",
            discussion: """
                The first row names the columns: token, and any of \(DeviceTable.names.dropFirst().joined(separator: ", ")).
                Semicolons separate tags. Times are like 2026-12-24T18:00:00Z. Each device gets the values in the file; fields
                without a column keep their values. The import skips a device that has registered in the database after
                its registered_at, or was deactivated after that.
                It removes the apostrophe of a value like '=1: an export adds it to values that a spreadsheet would run.
                """)

        @Argument(help: "The file.", completion: .file(extensions: ["csv"])) var file: String
        @OptionGroup var options: ImportOptions

        func run() async throws { try await Self.run(file, options) }

        static func run(_ file: String, _ options: ImportOptions) async throws {
            try await options.run(
                file, columns: { (rows: DeviceTable) in rows.columns },
                open: { bytes, apps, app in
                    try DeviceTable(bytes) { name throws(ChatError) in
                        guard let name else { return app }
                        do throws(ChatError) {
                            return try apps.resolve(name)
                        } catch {
                            throw ChatError.invalid("app", "names no app of this configuration")
                        }
                    }
                })
        }
    }

    /// `pushchat devices export`
    struct Export: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print all devices as a CSV table for `pushchat devices import`.",
            discussion: """
                Reads the database. Omits browsers, which subscribe by themselves. Puts an apostrophe before values that begin
                with =, +, - or @, because a spreadsheet would run them; an import removes it.
                """)

        @Option(help: .value("name", "Only devices of this app.")) var app: String?
        @OptionGroup(title: "The database") var options: DatabaseOptions

        private static let batchSize = 500

        func run() async throws {
            try await options.withStores { stores in
                FileHandle.standardOutput.write(Data(CSVReader.line(DeviceTable.names).utf8))
                var (cursor, browsers): (Int64?, Int) = (nil, 0)
                repeat {
                    let page = try await stores.devices.devices(
                        DeviceFilter(app: app.map { AppName($0) }), after: cursor, limit: Self.batchSize)
                    let devices = page.items.filter { $0.app != .web }
                    browsers += page.items.count - devices.count
                    FileHandle.standardOutput.write(Data(devices.map(DeviceTable.line).joined().utf8))
                    cursor = page.next
                } while cursor != nil
                if browsers > 0 { Output.note("browsers left out: \(browsers)") }
            }
        }
    }
}

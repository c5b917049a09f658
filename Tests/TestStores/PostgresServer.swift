import Foundation
import Synchronization
import TestSupport

/// The PostgreSQL server for the tests of this process. `make setup` unpacks Debian's packages and does not install
/// them. The server's data is temporary, and the server ends with the process, however the process ends.
package final class PostgresServer: Sendable {
    package struct Failed: Error, CustomStringConvertible {
        package let description: String
    }

    private static let started = Result { try PostgresServer() }

    /// Returns the server, and starts it with the first call.
    package static func shared() throws -> PostgresServer { try started.get() }

    private static let limit = Duration.seconds(120)

    private let folder: String
    private let programs: String
    private let libraries: String
    private let nextDatabase = Atomic(1)
    /// The server runs as long as this is open.
    private let input: FileHandle
    private let client: PostgresClient

    private init() throws {
        let unpacked = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../.build/test-postgres/usr/lib").standardizedFileURL
        let versions = unpacked.appending(path: "postgresql")
        guard let version = try? FileManager.default.contentsOfDirectory(atPath: versions.path).sorted().last else {
            throw Failed(description: "no PostgreSQL in \(versions.path): `make setup` unpacks it")
        }
        programs = versions.appending(path: "\(version)/bin").path
        libraries = [unpacked, unpacked.appending(path: "../../lib").standardizedFileURL].flatMap { folder in
            let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
            return names.filter { $0.hasSuffix("-linux-gnu") }.map { folder.appending(path: $0).path }
        }.joined(separator: ":")
        // The name is short because the path of a socket has at most 107 bytes.
        let name = "pg-" + String(UInt32.random(in: .min ... .max), radix: 36)
        folder = TemporaryFolder.parent.appending(path: name).path
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        // `SOCK_CLOEXEC` closes the socket in processes that other tests start. Otherwise they would keep the server
        // running.
        var ends: [Int32] = [0, 0]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw Failed(description: "no pipe")
        }
        input = FileHandle(fileDescriptor: ends[1], closeOnDealloc: true)
        let process = Process()
        process.executableURL = URL(filePath: "/bin/sh")
        process.arguments = ["-c", Self.script, "sh", folder, programs, libraries]
        process.standardInput = FileHandle(fileDescriptor: ends[0], closeOnDealloc: true)
        try process.run()
        client = PostgresClient(url: Self.url("postgres", in: folder))
        let end = ContinuousClock.now + Self.limit
        while (try? client.rows("SELECT 1")) == nil {
            guard process.isRunning, ContinuousClock.now < end else {
                let log = (try? String(contentsOfFile: folder + "/log", encoding: .utf8)) ?? ""
                throw Failed(description: "PostgreSQL does not start: \(log)")
            }
            usleep(50_000)
        }
    }

    /// Starts the server and stops it at the end of the script's input, which comes with the end of the tests.
    /// PostgreSQL refuses to run as root.
    private static let script = """
        folder=$1; export LD_LIBRARY_PATH=$3; as=
        if [ "$(id -u)" = 0 ]; then
            as="setpriv --reuid=65534 --regid=65534 --clear-groups"; chown 65534:65534 "$folder"
            # If that user has no access to the folder, the server runs as root under another user id.
            $as test -x "$2/postgres" -a -w "$folder" || { as="unshare --user"; chown 0:0 "$folder"; }
        fi
        cd "$folder"
        $as "$2/initdb" -D data -U postgres --auth=trust --no-sync --locale=C --encoding=UTF8 >log 2>&1 || exit 1
        $as "$2/postgres" -D data -k "$folder" -c listen_addresses= -c fsync=off -c full_page_writes=off \\
            -c max_connections=2000 -c jit=off -c autovacuum_naptime=5 >>log 2>&1 </dev/null &
        while read -r line; do :; done
        kill -QUIT $!
        wait
        rm -rf "$folder"
        """

    package func url(_ database: String) -> String { Self.url(database, in: folder) }

    private static func url(_ database: String, in folder: String) -> String {
        "postgresql:///\(database)?host=\(folder)&user=postgres"
    }

    /// Creates a database.
    ///
    /// - Parameter template: The database to copy. `nil` for an empty database.
    /// - Returns: The name of the database.
    package func makeDatabase(from template: String? = nil) throws -> String {
        let name = "test\(nextDatabase.add(1, ordering: .relaxed).oldValue)"
        // Copying the files takes a third of the time of copying the pages, PostgreSQL's default.
        try client.rows("CREATE DATABASE \(name) STRATEGY file_copy" + (template.map { " TEMPLATE \($0)" } ?? ""))
        return name
    }

    package func drop(_ database: String) throws {
        try client.rows("DROP DATABASE IF EXISTS \(database) WITH (FORCE)")
    }

    /// Returns the command line of `psql`, to which the caller adds a statement as the last argument. The output has
    /// `|` between columns and line breaks between rows.
    package func shell(_ database: String) -> [String] {
        ["env", "LD_LIBRARY_PATH=\(libraries)", "LC_ALL=C", programs + "/psql", "-d", url(database)]
            + ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c"]
    }
}

#if PostgreSQL
import Foundation
import Synchronization

/// PostgreSQL for the tests of this process: Debian's, unpacked by `make test` and not installed, with data of its own. Ends with
/// the process, however that ends.
package final class PostgresServer: Sendable {
    package struct Failed: Error, CustomStringConvertible {
        package let description: String
    }

    private static let started = Result { try PostgresServer() }

    /// Started with the first call.
    package static func shared() throws -> PostgresServer { try started.get() }

    private static let limit = Duration.seconds(120)

    private let folder: String
    private let programs: String
    private let libraries: String
    private let nextDatabase = Atomic(1)
    /// As long as it is open, the server runs.
    private let input: FileHandle
    private let client: PostgresClient

    /// In memory where there is room. A database has 300 files, and ext4 takes long to make files where many were just deleted.
    private static var parent: URL {
        let memory = "/dev/shm"
        var metrics = statvfs()
        guard access(memory, W_OK) == 0, statvfs(memory, &metrics) == 0,
            UInt64(metrics.f_bavail) * UInt64(metrics.f_frsize) > 4 << 30
        else { return FileManager.default.temporaryDirectory }
        return URL(filePath: memory)
    }

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
        // Short, since the path of a socket may have 107 bytes.
        let name = "pg-" + String(UInt32.random(in: .min ... .max), radix: 36)
        folder = Self.parent.appending(path: name).path
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        // Else a process that another test starts meanwhile keeps it open.
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

    /// Waits for the end of its input, which comes with the end of the tests. PostgreSQL refuses to run as root.
    private static let script = """
        folder=$1; export LD_LIBRARY_PATH=$3; as=
        if [ "$(id -u)" = 0 ]; then
            as="setpriv --reuid=65534 --regid=65534 --clear-groups"; chown 65534:65534 "$folder"
            # Where nobody else may look, it is told another number of the same user.
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

    /// Makes an empty database.
    /// - Returns: its name.
    package func makeDatabase() throws -> String {
        let name = "test\(nextDatabase.add(1, ordering: .relaxed).oldValue)"
        try client.rows("CREATE DATABASE \(name)")
        return name
    }

    package func drop(_ database: String) throws {
        try client.rows("DROP DATABASE IF EXISTS \(database) WITH (FORCE)")
    }

    /// `psql`, as a command whose last argument is to be a statement: columns of the answer stand between `|`, rows between line
    /// breaks.
    package func shell(_ database: String) -> [String] {
        ["env", "LD_LIBRARY_PATH=\(libraries)", "LC_ALL=C", programs + "/psql", "-d", url(database)]
            + ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c"]
    }
}
#endif

import Foundation
import Glibc
import Synchronization

/// A program that a test has started. It is killed when the test lets go of it.
///
/// Foundation's `Process` does not always notice on a busy machine that a process has ended; this asks the system.
final class Child: Sendable {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    let identifier: pid_t
    private let end = Mutex<Int32?>(nil)

    /// - Parameters:
    ///   - command: the program, searched in the path, and its arguments.
    ///   - input: a descriptor for its standard input; without one it reads nothing.
    ///   - output, errors: files, which are made anew; without one it writes into nothing.
    init(
        _ command: [String], in folder: URL? = nil, input: Int32? = nil, output: URL? = nil, errors: URL? = nil
    ) throws {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let input {
            posix_spawn_file_actions_adddup2(&actions, input, 0)
        } else {
            posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        }
        for (descriptor, file) in [(1 as Int32, output), (2, errors)] {
            posix_spawn_file_actions_addopen(
                &actions, descriptor, file?.path ?? "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        }
        // Under `nohup` the tests ignore SIGHUP, and what they start would, too.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE] { sigaddset(&signals, signal) }
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF))
        let environment = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("PUSHCHAT_") }
        var identifier: pid_t = 0
        let command = (folder.map { ["env", "--chdir", $0.path] } ?? []) + command
        let failure = Self.withStrings(command) { arguments in
            Self.withStrings(environment.map { "\($0.key)=\($0.value)" }) { environment in
                posix_spawnp(&identifier, command[0], &actions, &attributes, arguments, environment)
            }
        }
        guard failure == 0 else {
            throw Failure(description: "\(command[0]) cannot be started: \(String(cString: strerror(failure)))")
        }
        self.identifier = identifier
    }

    deinit {
        kill(SIGKILL)
        while status(options: 0) == nil {}
    }

    /// Its exit status, or the signal that ended it, negative; nil while it runs.
    var status: Int32? { status(options: WNOHANG) }

    func kill(_ signal: Int32) {
        end.withLock { end in
            // An ended process whose status was taken may have passed its number on to another.
            if end == nil { _ = Glibc.kill(identifier, signal) }
        }
    }

    private func status(options: Int32) -> Int32? {
        end.withLock { end in
            guard end == nil else { return end }
            var status: Int32 = 0
            guard waitpid(identifier, &status, options) == identifier else { return nil }
            let signal = status & 0x7f
            end = signal == 0 ? (status >> 8) & 0xff : -signal
            return end
        }
    }

    private static func withStrings<Result>(
        _ strings: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> Result
    ) -> Result {
        let copies = strings.map { strdup($0) }
        defer { for copy in copies { free(copy) } }
        return body(copies + [nil])
    }
}

/// A folder of a test's own, which ends with it.
final class Folder: Sendable {
    let url: URL
    private let stores = Mutex<[String: any RelayStore]>([:])

    init() throws {
        url = FileManager.default.temporaryDirectory.appending(path: "pushchat-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    }

    deinit {
        try? FileManager.default.removeItem(at: url)
    }

    func file(_ name: String) -> URL { url.appending(path: name) }

    /// A store of this run's kind, which is there for as long as the folder or a relay has it. The same each time.
    func store(_ name: String = "pushchat.db") throws -> any RelayStore { try store(at: file(name).path) }

    /// - Parameter path: may lead elsewhere.
    func store(at path: String) throws -> any RelayStore {
        try stores.withLock { stores in
            if let store = stores[path] { return store }
            let store = try StoreKind.ofThisRun.makeStore(path: path)
            stores[path] = store
            return store
        }
    }
}

/// A port of loopback that nobody else is given while it is reserved: for what is stopped and started again.
final class ReservedPort: Sendable {
    let number: Int
    private let descriptor: Int32

    /// Binds without listening. With `SO_REUSEADDR` on both sides another socket may listen there, and the system gives the
    /// port to nobody who asks for any.
    init() throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var isReusable: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &isReusable, socklen_t(MemoryLayout<Int32>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
            }
        }
        self.descriptor = descriptor
        number = Int(UInt16(bigEndian: address.sin_port))
        guard isBound, number > 0 else {
            // deinit runs, as all is set, and closes it.
            throw Child.Failure(description: "no port can be reserved: \(String(cString: strerror(errno)))")
        }
    }

    deinit {
        close(descriptor)
    }

    /// To its end: Foundation reads a file of /proc, which has no size, only once, and that is a page.
    private static func systemList() throws -> String {
        let descriptor = open("/proc/net/tcp", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Child.Failure(description: "/proc/net/tcp cannot be opened") }
        defer { close(descriptor) }
        var (list, piece) = ([UInt8](), [UInt8](repeating: 0, count: 1 << 16))
        while true {
            let count = read(descriptor, &piece, piece.count)
            guard count > 0 else { return String(decoding: list, as: UTF8.self) }
            list += piece[..<count]
        }
    }

    /// Whether anybody listens there, by the system's list: asking by a connection would leave a trace.
    var isListening: Bool {
        get throws {
            // Address, port and state (RFC 9293's LISTEN is 0A) in hexadecimal.
            let port = ":" + String(format: "%04X", number)
            return try Self.systemList().split(separator: "\n").contains { line in
                let words = line.split(separator: " ")
                return words.count > 3 && words[1].hasSuffix(port) && words[3] == "0A"
            }
        }
    }
}

/// The ports of a sandbox.
struct SandboxPorts: Sendable {
    let binary: ReservedPort
    let feedback: ReservedPort
    let http2: ReservedPort
    let control: ReservedPort
    let webPush: ReservedPort

    init() throws {
        (binary, feedback, http2) = try (ReservedPort(), ReservedPort(), ReservedPort())
        (control, webPush) = try (ReservedPort(), ReservedPort())
    }

    var all: [ReservedPort] { [binary, feedback, http2, control, webPush] }

    /// Flags of the commands that start a sandbox.
    var flags: [String] {
        [
            "--binary-port", "\(binary.number)", "--feedback-port", "\(feedback.number)", "--http2-port",
            "\(http2.number)", "--control-port", "\(control.number)", "--webpush-port", "\(webPush.number)",
        ]
    }
}

struct TimedOut: Error, CustomStringConvertible {
    let description: String
}

/// Looks again and again until something holds; the only waiting that tests do.
func eventually(
    _ what: String, within limit: Duration = .seconds(60), every pause: Duration = .milliseconds(20),
    _ holds: () async throws -> Bool
) async throws {
    let deadline = ContinuousClock.now + limit
    while true {
        if try await holds() { return }
        guard ContinuousClock.now < deadline else { throw TimedOut(description: "waited \(limit) until \(what)") }
        try await Task.sleep(for: pause)
    }
}

/// Runs a test's cases at the same time, because each mostly waits. The test fails with the first that throws.
func sideBySide<Case: Sendable>(
    _ cases: [Case], _ run: @escaping @Sendable (Case) async throws -> Void
) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
        for each in cases { group.addTask { try await run(each) } }
        try await group.waitForAll()
    }
}

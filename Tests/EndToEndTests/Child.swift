import Foundation
import Glibc
import Synchronization

/// A program that a test started. It is killed when the test releases this object.
///
/// On a busy machine Foundation's `Process` does not always notice that a process has ended. This type asks the system.
final class Child: Sendable {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    let identifier: pid_t
    private let end = Mutex<Int32?>(nil)

    /// - Parameters:
    ///   - command: The program, searched in the path, and its arguments.
    ///   - input: A descriptor for standard input. If `nil`, the program reads nothing.
    ///   - output, errors: Files that are created or replaced. If `nil`, the output is discarded.
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
        // Under `nohup` the tests ignore SIGHUP, and their children would inherit that.
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

    /// The exit status, or the negated signal that ended the program. `nil` while it runs.
    var status: Int32? { status(options: WNOHANG) }

    func kill(_ signal: Int32) {
        end.withLock { end in
            // Once the status of an ended process has been collected, another process may have its id.
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

/// A temporary folder of a test. It is deleted with this object.
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

    /// Returns the store of this run's kind with this name. It exists as long as the folder or a relay holds it.
    /// Repeated calls return the same store.
    func store(_ name: String = "pushchat.db") throws -> any RelayStore { try store(at: file(name).path) }

    /// - Parameter path: The path, which may lie outside the folder.
    func store(at path: String) throws -> any RelayStore {
        try stores.withLock { stores in
            if let store = stores[path] { return store }
            let store = try StoreKind.ofThisRun.makeStore(path: path)
            stores[path] = store
            return store
        }
    }
}

/// A loopback port that the system gives to no other program while it is reserved. For programs that a test stops and
/// restarts.
final class ReservedPort: Sendable {
    let number: Int
    private let descriptor: Int32

    /// Binds without listening. With `SO_REUSEADDR` on both sides another socket may listen on the port, and the system
    /// never assigns it to a socket that asks for any port.
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
            // All properties are set, so `deinit` runs and closes the descriptor.
            throw Child.Failure(description: "no port can be reserved: \(String(cString: strerror(errno)))")
        }
    }

    deinit {
        close(descriptor)
    }

    /// Reads to the end of the file. Foundation reads a file of /proc only once, because it has no size, and that read
    /// returns one page.
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

    /// Whether a socket listens on the port, by the system's list. A test connection would leave a trace.
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
    let channels: ReservedPort
    let control: ReservedPort
    let webPush: ReservedPort
    let fcm: ReservedPort
    let proxy: ReservedPort

    init() throws {
        (binary, feedback, http2) = try (ReservedPort(), ReservedPort(), ReservedPort())
        (channels, control, webPush) = try (ReservedPort(), ReservedPort(), ReservedPort())
        (fcm, proxy) = try (ReservedPort(), ReservedPort())
    }

    var all: [ReservedPort] { [binary, feedback, http2, channels, control, webPush, fcm, proxy] }

    /// Flags for the commands that start a sandbox.
    var flags: [String] {
        [
            "--binary-port", "\(binary.number)", "--feedback-port", "\(feedback.number)", "--http2-port",
            "\(http2.number)", "--channels-port", "\(channels.number)", "--control-port", "\(control.number)",
            "--webpush-port", "\(webPush.number)", "--fcm-port", "\(fcm.number)", "--proxy-port",
            "\(proxy.number)",
        ]
    }
}

/// Runs a test's cases concurrently, because each mostly waits. Throws the first error of a case.
func sideBySide<Case: Sendable>(
    _ cases: [Case], _ run: @escaping @Sendable (Case) async throws -> Void
) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
        for each in cases { group.addTask { try await run(each) } }
        try await group.waitForAll()
    }
}

import Foundation
import Synchronization

/// The built executable, running, with its log at hand.
final class Running: Sendable {
    /// `pushchat`, which the test run has built beside the tests.
    static let executable = URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent().appending(
        path: "pushchat")

    struct LogLine: Sendable {
        let message: String
        let fields: [String: String]
    }

    struct Ended: Error, CustomStringConvertible {
        let description: String
    }

    private let process: Mutex<Process>
    let identifier: Int32
    private let logFile: URL
    let output: URL

    /// Starts it with the log as JSON.
    init(_ arguments: [String], in folder: Folder, name: String) throws {
        logFile = folder.file("\(name).\(UUID().uuidString).log")
        output = folder.file("\(name).\(UUID().uuidString).out")
        let process = Process()
        process.executableURL = Self.executable
        process.arguments = arguments + ["--log-format", "json"]
        process.currentDirectoryURL = folder.url
        process.environment = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("PUSHCHAT_") }
        for file in [logFile, output] { try Data().write(to: file) }
        process.standardError = try FileHandle(forWritingTo: logFile)
        process.standardOutput = try FileHandle(forWritingTo: output)
        process.standardInput = FileHandle.nullDevice
        try process.run()
        identifier = process.processIdentifier
        self.process = Mutex(process)
    }

    deinit {
        kill(SIGKILL)
    }

    var isRunning: Bool { process.withLock { $0.isRunning } }

    func kill(_ signal: Int32) {
        process.withLock { process in
            if process.isRunning { Foundation.kill(process.processIdentifier, signal) }
        }
    }

    /// Waits until it has ended, for so long at most.
    /// - Returns: its exit status, or the signal that ended it, negative.
    @discardableResult
    func ended(within limit: Duration = .seconds(30)) async throws -> Int32 {
        try await eventually("the process ends", within: limit) { !isRunning }
        return process.withLock { $0.terminationReason == .exit ? $0.terminationStatus : -$0.terminationStatus }
    }

    func log() -> [LogLine] {
        guard let text = try? String(contentsOf: logFile, encoding: .utf8) else { return [] }
        return text.split(separator: "\n").compactMap { line in
            guard let object = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any] else {
                return LogLine(message: String(line), fields: [:])
            }
            return LogLine(
                message: object["message"] as? String ?? "", fields: object.mapValues { "\($0)" })
        }
    }

    /// A field of the first log line with a message; waits for it, and fails early when the process ends.
    func field(_ field: String, of message: String, within limit: Duration = .seconds(20)) async throws -> String {
        var found: String?
        try await eventually("\(message) is logged", within: limit) {
            found = log().first { $0.message == message }?.fields[field]
            if found == nil, !isRunning {
                throw Ended(description: "ended before \"\(message)\": \(log().map(\.message))")
            }
            return found != nil
        }
        return found ?? ""
    }

    /// Megabytes of memory that are resident now.
    func residentMegabytes() throws -> Int {
        let status = try String(contentsOfFile: "/proc/\(identifier)/status", encoding: .utf8)
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return (line?.split(whereSeparator: { !$0.isNumber }).first.flatMap { Int($0) } ?? 0) / 1024
    }
}

/// A folder of a test's own, which ends with it.
final class Folder: Sendable {
    let url: URL

    init() throws {
        url = FileManager.default.temporaryDirectory.appending(path: "pushchat-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    }

    deinit {
        try? FileManager.default.removeItem(at: url)
    }

    func file(_ name: String) -> URL { url.appending(path: name) }
}

struct TimedOut: Error, CustomStringConvertible {
    let description: String
}

/// Looks again and again until something holds; the only waiting that tests do.
func eventually(
    _ what: String, within limit: Duration = .seconds(30), every pause: Duration = .milliseconds(20),
    _ holds: () async throws -> Bool
) async throws {
    let deadline = ContinuousClock.now + limit
    while true {
        if try await holds() { return }
        guard ContinuousClock.now < deadline else { throw TimedOut(description: "waited \(limit) until \(what)") }
        try await Task.sleep(for: pause)
    }
}

/// Runs a tool to its end.
/// - Returns: its standard output; throws what it wrote to standard error when its status is not 0.
@discardableResult
func tool(_ path: String, _ arguments: [String], input: Data? = nil) async throws -> String {
    let folder = try Folder()
    let (out, err, inp) = (folder.file("out"), folder.file("err"), folder.file("in"))
    for file in [out, err] { try Data().write(to: file) }
    try (input ?? Data()).write(to: inp)
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = [path] + arguments
    process.standardOutput = try FileHandle(forWritingTo: out)
    process.standardError = try FileHandle(forWritingTo: err)
    process.standardInput = try FileHandle(forReadingFrom: inp)
    try process.run()
    try await eventually("\(path) ends", within: .seconds(60)) { !process.isRunning }
    guard process.terminationStatus == 0 else {
        throw Running.Ended(
            description: "\(path) \(arguments): status \(process.terminationStatus): "
                + ((try? String(contentsOf: err, encoding: .utf8)) ?? ""))
    }
    return try String(contentsOf: out, encoding: .utf8)
}

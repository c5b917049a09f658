import Foundation
import TestSupport

/// A running process of the built executable, with its log.
final class Running: Sendable {
    /// `pushchat`, which the test run has built beside the tests.
    static let executable = URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent().appending(
        path: "pushchat")

    struct LogLine: Sendable {
        let message: String
        let fields: [String: String]
    }

    private let child: Child
    private let logFile: URL
    let output: URL

    /// Starts the executable with the log as JSON.
    /// - Parameter variables: The words before the command that set its environment (``RelayStore/variables``).
    init(_ arguments: [String], variables: [String] = [], in folder: Folder, name: String) throws {
        logFile = folder.file("\(name).\(UUID().uuidString).log")
        output = folder.file("\(name).\(UUID().uuidString).out")
        child = try Child(
            variables + [Self.executable.path] + arguments + ["--log-format", "json"], in: folder.url, output: output,
            errors: logFile)
    }

    var isRunning: Bool { child.status == nil }
    /// The process's id, for scripts that measure it.
    var identifier: String { "\(child.identifier)" }

    func kill(_ signal: Int32) {
        child.kill(signal)
    }

    /// Waits until the process ends.
    /// - Returns: Its exit status, or the negated signal that ended it.
    @discardableResult
    func ended(within limit: Duration = .seconds(60)) async throws -> Int32 {
        try await eventually("the process ends", within: limit) { !isRunning }
        return child.status ?? 0
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

    /// Waits until the process listens on the ports. Fails early if it ends.
    func listens(on ports: [ReservedPort]) async throws {
        do {
            try await eventually("it listens") {
                guard isRunning else {
                    throw Child.Failure(description: "ended before it listened: \(log().map(\.message))")
                }
                return try ports.allSatisfy { try $0.isListening }
            }
        } catch let error as TimedOut {
            let missing = try ports.filter { try !$0.isListening }.map(\.number)
            let threads = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(child.identifier)/task")) ?? []
            let waits = threads.map { thread in
                (try? String(contentsOfFile: "/proc/\(child.identifier)/task/\(thread)/wchan", encoding: .utf8)) ?? "?"
            }
            throw TimedOut(
                description:
                    "\(error), not on \(missing); its threads wait in \(waits); it said \(log().map(\.message))")
        }
    }

    /// Waits for the first log line with this message, and returns a field of it.
    func field(_ field: String, of message: String) async throws -> String {
        var found: String?
        try await eventually("\(message) is logged") {
            found = log().first { $0.message == message }?.fields[field]
            return found != nil
        }
        return found ?? ""
    }

    /// The resident memory in megabytes.
    func residentMegabytes() throws -> Int {
        try (status("VmRSS").flatMap { Int($0.split(separator: " ")[0]) } ?? 0) / 1024
    }

    /// Whether the process blocks, ignores or handles a signal, so that the signal does not end it.
    func isPrepared(for signal: Int32) throws -> Bool {
        try ["SigBlk", "SigIgn", "SigCgt"].contains { set in
            try status(set).flatMap { UInt64($0, radix: 16) }.map { $0 & 1 << (signal - 1) != 0 } ?? false
        }
    }

    /// Whether the process has loaded a library. `name` is the start of its file's name.
    func hasLoaded(_ name: String) throws -> Bool {
        // `String(contentsOfFile:)` reads only the first 4 KiB of a file in /proc.
        let maps = try FileHandle(forReadingFrom: URL(filePath: "/proc/\(child.identifier)/maps")).readToEnd() ?? Data()
        return String(decoding: maps, as: UTF8.self).contains("/\(name)")
    }

    /// Returns a field of the process's status file (proc(5)).
    private func status(_ name: String) throws -> String? {
        let status = try String(contentsOfFile: "/proc/\(child.identifier)/status", encoding: .utf8)
        return status.split(separator: "\n").first { $0.hasPrefix(name + ":") }
            .map { $0.dropFirst(name.utf8.count + 1).trimmingCharacters(in: .whitespaces) }
    }
}

import Foundation
import Testing

/// The `openssl` command: a third-party reader of our files and client of our listeners.
enum OpenSSLTool {
    private static let tool = CommandTool("openssl")

    static var isPresent: Bool { tool.isPresent }

    static func run(
        _ arguments: [String], input: [UInt8] = [], seconds: Double = Double(TestLimit.seconds)
    ) async throws -> CommandTool.Output {
        try await tool.run(arguments, input: input, seconds: seconds)
    }
}

/// A command, if this machine has it.
struct CommandTool: Sendable {
    static let curl = CommandTool("curl")

    private let path: String?

    init(_ name: String) {
        let folders = ProcessInfo.processInfo.environment["PATH"]?.split(separator: ":") ?? []
        path = folders.map { $0 + "/" + name }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }

    var isPresent: Bool { path != nil }

    struct Output: Sendable {
        var status: Int32
        var bytes: [UInt8]
        var text: String { String(decoding: bytes, as: UTF8.self) }
    }

    /// Runs the command with `input`, and waits at most `seconds` until it ends.
    func run(_ arguments: [String], input: [UInt8] = [], seconds: Double = Double(TestLimit.seconds)) async throws
        -> Output
    {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: try #require(path))
        process.arguments = arguments
        let stdin = Pipe()
        let stdout = Pipe()
        process.standardInput = stdin
        process.standardOutput = stdout
        process.standardError = stdout
        try process.run()
        let deadline = DispatchWorkItem { process.terminate() }
        DispatchQueue.global().asyncAfter(deadline: .now() + seconds, execute: deadline)
        defer { deadline.cancel() }
        return await withCheckedContinuation { continuation in
            // Use another thread: the reads block until the command ends.
            DispatchQueue.global().async {
                try? stdin.fileHandleForWriting.write(contentsOf: Data(input))
                try? stdin.fileHandleForWriting.close()
                let bytes = (try? stdout.fileHandleForReading.readToEnd()) ?? Data()
                process.waitUntilExit()
                continuation.resume(returning: Output(status: process.terminationStatus, bytes: Array(bytes)))
            }
        }
    }
}

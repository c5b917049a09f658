import Foundation
import Testing

/// `make fuzz`: gives a parser millions of inputs that libFuzzer derives from seeds, guided by which code they reach. A trap, a
/// failed precondition, ten seconds without an end, or two gigabytes of memory are findings; the input is kept.
@Suite("Fuzzing")
struct FuzzTests {
    /// The parser's name, and the folder for its corpus and what is found.
    private static let environment = ProcessInfo.processInfo.environment

    @Test("A parser takes whatever comes")
    func run() async throws {
        let parser = try #require(Parser(rawValue: Self.environment["FUZZ_PARSER"] ?? ""))
        let folder = try #require(Self.environment["FUZZ_FOLDER"])
        let seeds = URL(filePath: folder).appending(path: "seeds")
        try FileManager.default.createDirectory(at: seeds, withIntermediateDirectories: true)
        for (number, seed) in parser.seeds.enumerated() {
            try Data(seed).write(to: seeds.appending(path: "\(number)"))
        }
        Self.parse = try await parser.function()
        let arguments =
            ["fuzz", "\(folder)/corpus", seeds.path, "-artifact_prefix=\(folder)/found-"]
            + (Self.environment["FUZZ_OPTIONS"] ?? "").split(separator: " ").map(String.init)
        // A thread of its own: the parser may wait for asynchronous work. The driver ends the process.
        let thread = Thread {
            var count = Int32(arguments.count)
            let pointers = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>.allocate(capacity: arguments.count + 1)
            for (index, argument) in arguments.enumerated() { pointers[index] = strdup(argument) }
            pointers[arguments.count] = nil
            var start = pointers
            exit(
                runDriver(&count, &start) { bytes, count in
                    FuzzTests.parse(Array(UnsafeBufferPointer(start: bytes, count: count)))
                    return 0
                })
        }
        thread.stackSize = 8 << 20
        thread.start()
        while true { try await Task.sleep(for: .seconds(3600)) }
    }

    /// Set before the driver starts, never after.
    nonisolated(unsafe) fileprivate static var parse: ([UInt8]) -> Void = { _ in }
}

/// libFuzzer's loop, for programs that have a main function of their own.
@_silgen_name("LLVMFuzzerRunDriver")
private func runDriver(
    _ count: UnsafeMutablePointer<Int32>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>,
    _ callback: @convention(c) (UnsafePointer<UInt8>?, Int) -> Int32
) -> Int32

import Foundation
import Testing

/// `make fuzz` gives a parser millions of inputs. libFuzzer derives them from seeds, guided by the code that they
/// reach. A trap, a failed precondition, ten seconds without a result, or two gigabytes of memory are findings.
/// libFuzzer keeps the input.
@Suite("Fuzzing")
struct FuzzTests {
    /// Contains the parser's name, and the folder for its corpus and the findings.
    private static let environment = ProcessInfo.processInfo.environment

    @Test("A parser survives any input")
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
        // The parser may wait for asynchronous work, so libFuzzer needs a separate thread. Its driver ends the process.
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

/// libFuzzer's loop, for programs that have their own main function.
@_silgen_name("LLVMFuzzerRunDriver")
private func runDriver(
    _ count: UnsafeMutablePointer<Int32>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>,
    _ callback: @convention(c) (UnsafePointer<UInt8>?, Int) -> Int32
) -> Int32

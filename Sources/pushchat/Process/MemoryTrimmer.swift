import Foundation
import Logging
import ServiceLifecycle

/// A service that returns memory to the system after a peak.
///
/// The C library keeps free memory between pieces in use: after ten thousand event streams had closed, nine tenths of
/// the process's memory were free and still belonged to the process.
struct MemoryTrimmer: Service {
    private static let interval = Duration.seconds(10)
    /// The bytes of resident memory below which trimming is skipped. An idle relay uses a little less.
    private static let threshold = 80 << 20

    let logger: Logger

    func run() async throws {
        // Find the function by its name, because not every C library has it, and the module Glibc does not contain it.
        guard let symbol = dlsym(nil, "malloc_trim") else { return try await gracefulShutdown() }
        let trim = unsafeBitCast(symbol, to: (@convention(c) (Int) -> Int32).self)
        await cancelWhenGracefulShutdown {
            while (try? await Task.sleep(for: Self.interval)) != nil {
                let before = Self.resident
                guard before > Self.threshold else { continue }
                // Takes a few milliseconds, in which threads may have to wait for memory.
                let time = ContinuousClock().measure { _ = trim(0) }
                logger.debug(
                    "unused memory released",
                    metadata: ["bytes": "\(before - Self.resident)", "duration": "\(time)"])
            }
        }
    }

    /// The bytes of memory that the process currently has (proc(5): statm).
    private static var resident: Int {
        let pages = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ")
        return (pages.flatMap { $0.count > 1 ? Int($0[1]) : nil } ?? 0) * Int(getpagesize())
    }
}

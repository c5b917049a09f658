import Foundation
import Logging
import ServiceLifecycle

/// Gives memory back to the system that was needed for a while, as a service.
///
/// The C library keeps what lies between pieces in use: after ten thousand event streams have closed, nine tenths of the
/// process's memory were free and still its own.
struct MemoryTrimmer: Service {
    private static let interval = Duration.seconds(10)
    /// Bytes of resident memory up to which nothing is looked for: what an idle relay takes, and some.
    private static let threshold = 80 << 20

    let logger: Logger

    func run() async throws {
        // Not in every C library, and not in the module of the one that has it.
        guard let symbol = dlsym(nil, "malloc_trim") else { return try await gracefulShutdown() }
        let trim = unsafeBitCast(symbol, to: (@convention(c) (Int) -> Int32).self)
        await cancelWhenGracefulShutdown {
            while (try? await Task.sleep(for: Self.interval)) != nil {
                let before = Self.resident
                guard before > Self.threshold else { continue }
                // Some milliseconds, in which threads may have to wait for memory.
                let time = ContinuousClock().measure { _ = trim(0) }
                logger.debug(
                    "unused memory given back",
                    metadata: ["bytes": "\(before - Self.resident)", "duration": "\(time)"])
            }
        }
    }

    /// Bytes of memory that the process has now (proc(5): statm).
    private static var resident: Int {
        let pages = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ")
        return (pages.flatMap { $0.count > 1 ? Int($0[1]) : nil } ?? 0) * Int(getpagesize())
    }
}

import Foundation
import Testing

/// The families of these tests. Within one, tests run one after another, so that limits of time mean the same everywhere. Each
/// test has ten minutes.

/// What users do, through the built executable and real sockets.
@Suite("End to end", .serialized, .timeLimit(.minutes(10))) enum EndToEnd {}

/// Clients that nobody here wrote, and the documentation's commands. They run beside the family `EndToEnd`.
@Suite("Clients", .serialized, .timeLimit(.minutes(10))) enum Clients {}

/// What takes its time without using the machine: beside the family `EndToEnd`, too.
@Suite("Waiting", .serialized, .timeLimit(.minutes(10))) enum Waiting {}

/// What scripts write into the database. Beside the family `EndToEnd`, too.
@Suite("Scripts", .serialized, .timeLimit(.minutes(10))) enum Scripts {}

/// The pages in browsers that nobody here wrote. Beside the family `EndToEnd`, too.
@Suite("In a browser", .serialized, .timeLimit(.minutes(10))) enum Browser {}

/// A fuzzer, and other large programs that nobody here wrote. Beside the others, too.
@Suite("Programs", .serialized, .timeLimit(.minutes(10))) enum Programs {}

/// What loads the machine: many pushes, faults of Apple's gateways. No other family runs beside these three (`Tests/run`).
@Suite("Stress", .serialized, .timeLimit(.minutes(10)))
enum Stress {
    /// A tenth of a count, or with `make stress` all of it: a debug build sends a thousand pushes a second over HTTP/2.
    static func scaled(_ count: Int) -> Int {
        ProcessInfo.processInfo.environment["STRESS"] == "full" ? count : count / 10
    }

    /// Where faults happen. `STRESS_SEED` repeats a run whose seed was printed.
    static var seed: UInt64 {
        ProcessInfo.processInfo.environment["STRESS_SEED"].flatMap { UInt64($0) } ?? .random(in: 0...UInt64.max)
    }
}

/// The same, where more is waited: kills, disks, browsers' push services, event streams.
@Suite("Stress around the relay", .serialized, .timeLimit(.minutes(10))) enum Surroundings {}

/// The same: databases that are moved, brought up to date, shared by several relays.
@Suite("Stress of databases", .serialized, .timeLimit(.minutes(10))) enum Databases {}

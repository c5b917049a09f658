import Foundation
import Testing

/// The families of these tests. The tests of a family run one after another, so that time limits mean the same
/// everywhere. Each test may take ten minutes.

/// Tests of users' actions, through the built executable and real sockets.
@Suite("End to end", .serialized, .timeLimit(.minutes(10))) enum EndToEnd {}

/// Third-party clients, and the commands of the documentation. This family runs beside `EndToEnd`.
@Suite("Clients", .serialized, .timeLimit(.minutes(10))) enum Clients {}

/// Tests that mostly wait and hardly use the machine. This family runs beside `EndToEnd`.
@Suite("Waiting", .serialized, .timeLimit(.minutes(10))) enum Waiting {}

/// Tests of scripts that write into the database. This family runs beside `EndToEnd`.
@Suite("Scripts", .serialized, .timeLimit(.minutes(10))) enum Scripts {}

/// Tests of the pages in real browsers. This family runs beside `EndToEnd`.
@Suite("In a browser", .serialized, .timeLimit(.minutes(10))) enum Browser {}

/// A fuzzer and other large third-party programs. This family runs beside the others.
@Suite("Programs", .serialized, .timeLimit(.minutes(10))) enum Programs {}

/// Tests that load the machine: many pushes, faults of Apple's gateways. No other family runs beside this one and the
/// two below (`Tests/run`).
@Suite("Stress", .serialized, .timeLimit(.minutes(10)))
enum Stress {
    /// Whether the tests run at full size: with `make stress`.
    static var isFull: Bool { ProcessInfo.processInfo.environment["STRESS"] == "full" }

    /// Returns a tenth of a count, or all of it with `make stress`. A debug build sends a thousand pushes a second over
    /// HTTP/2.
    static func scaled(_ count: Int) -> Int { isFull ? count : count / 10 }

    /// The seed of the random positions of faults. `STRESS_SEED` reruns a test with the seed that it printed.
    static var seed: UInt64 {
        ProcessInfo.processInfo.environment["STRESS_SEED"].flatMap { UInt64($0) } ?? .random(in: 0...UInt64.max)
    }
}

/// Stress tests that mostly wait: kills, disks, browsers' push services, event streams.
@Suite("Stress around the relay", .serialized, .timeLimit(.minutes(10))) enum Surroundings {}

/// Stress tests of databases that are moved, upgraded, or shared by several relays.
@Suite("Stress of databases", .serialized, .timeLimit(.minutes(10))) enum Databases {}

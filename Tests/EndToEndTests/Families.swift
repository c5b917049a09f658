import Testing

/// The families of these tests. Within one, tests run one after another: each has the machine to itself, and its limits of time
/// mean the same everywhere. `Tests/run` runs the families one after another, too. The time limit is each test's.

/// What users do, through the built executable and real sockets.
@Suite("End to end", .serialized, .timeLimit(.minutes(10))) enum EndToEnd {}

/// The pages in a browser that nobody here wrote.
@Suite("In a browser", .serialized, .timeLimit(.minutes(10))) enum Browser {}

/// What loads the machine: many pushes, kills, faults, full disks.
@Suite("Stress", .serialized, .timeLimit(.minutes(10))) enum Stress {}

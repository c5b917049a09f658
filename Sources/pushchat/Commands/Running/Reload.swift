import ArgumentParser
import ChatStore
import Foundation

/// `pushchat reload`
struct Reload: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Make the running relay read its configuration and credentials again.",
        discussion: """
            Works like SIGHUP, but waits, and prints the settings that have changed. If the relay keeps its configuration,
            the command prints the reason, and the status is 1. Run it as the relay's user or as root, on its machine.
            """)

    /// The time that the relay may take, including the time to open its database if it has just started.
    private static let timeLimit = Duration.seconds(60)
    private static let pollInterval = Duration.milliseconds(50)

    @OptionGroup var options: DatabaseOptions

    func run() async throws {
        let path = try options.path()
        guard let process = try Self.relay(of: path) else {
            throw Failure(
                "no relay serves \(path): start one with `pushchat serve`, or name its database with --database")
        }
        guard let before = ReloadReport(of: path), before.process == process else {
            throw Failure(
                "process \(process) serves \(path) and does not reload: it is `pushchat dev` or an earlier version, or cannot "
                    + "write \(ReloadReport.file(of: path)); stop it and start it again")
        }
        guard kill(process, SIGHUP) == 0 else {
            throw Failure("process \(process) cannot be signalled: \(String(cString: strerror(errno)))")
        }
        let end = ContinuousClock.now + Self.timeLimit
        while true {
            if let report = ReloadReport(of: path), report.process == process, report.ended > before.begun {
                return try Self.printReport(report)
            }
            guard try Self.relay(of: path) == process else {
                throw Failure("the relay, process \(process), has ended; its log says why")
            }
            guard ContinuousClock.now < end else {
                throw Failure(
                    "the relay, process \(process), has not reloaded within "
                        + "\(Self.timeLimit.components.seconds) s; its log says what it is doing")
            }
            try await Task.sleep(for: Self.pollInterval)
        }
    }

    private static func relay(of path: String) throws -> pid_t? {
        try Failure.catching { try DatabaseLock.holder(of: path) }
    }

    private static func printReport(_ report: ReloadReport) throws {
        if let error = report.error { throw Failure("the relay keeps its configuration: \(error)") }
        let taken = report.changes.filter { !report.needsRestart.contains($0) }
        print(
            taken.isEmpty
                ? "reloaded; no setting has changed, credentials were read again"
                : "reloaded; changed: \(taken.joined(separator: " "))")
        if !report.needsRestart.isEmpty {
            Output.note("takes effect only after a restart: \(report.needsRestart.joined(separator: " "))")
        }
    }
}

package import ChatDomain
package import Logging
import ServiceLifecycle

/// Deletes rows that are older than their retention, at an interval, unless ``RetentionGate`` doubts the wall clock.
package struct Housekeeping<C: Clock>: Service where C.Duration == Duration {
    private let interval: Duration
    private let now: TimeSource
    private let clock: C
    private let isSynchronized: @Sendable () -> Bool
    private let evidence: @Sendable (_ limit: Timestamp) async throws(ChatError) -> ClockEvidence
    private let sweep: @Sendable () async throws(ChatError) -> Logger.Metadata
    private let logger: Logger

    /// Creates the service. It deletes nothing until ``run()``.
    /// - Parameters:
    ///   - interval: The time between sweeps, and from the start to the first sweep.
    ///   - clock: The monotonic clock that measures the interval and the time since the start.
    ///   - isSynchronized: Returns whether the kernel reports that a time service has set the wall clock.
    ///   - evidence: Returns the newest stored time up to `limit`, and the time of the database server.
    ///   - sweep: Deletes old rows. Returns the counts of deleted rows for the log, or no metadata if there were none.
    package init(
        interval: Duration = .seconds(600), now: @escaping TimeSource = Timestamp.now,
        clock: C = ContinuousClock(), isSynchronized: @escaping @Sendable () -> Bool,
        evidence: @escaping @Sendable (_ limit: Timestamp) async throws(ChatError) -> ClockEvidence,
        sweep: @escaping @Sendable () async throws(ChatError) -> Logger.Metadata, logger: Logger
    ) {
        self.interval = interval
        self.now = now
        self.clock = clock
        self.isSynchronized = isSynchronized
        self.evidence = evidence
        self.sweep = sweep
        self.logger = logger
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            var gate = RetentionGate(wall: now())
            let start = clock.now
            var isClosed = false
            while true {
                do { try await clock.sleep(for: interval) } catch { return }
                do throws(ChatError) {
                    let wall = now()
                    let doubt = gate.doubt(
                        RetentionGate.Reading(
                            wall: wall, elapsed: start.duration(to: clock.now), isSynchronized: isSynchronized(),
                            evidence: try await evidence(wall - RetentionGate.minimumEvidenceAge)))
                    if let doubt {
                        log(doubt, at: wall)
                    } else {
                        if isClosed { logger.notice("the clock is trusted again: deletion by age resumes") }
                        let metadata = try await sweep()
                        if !metadata.isEmpty { logger.info("deleted by age", metadata: metadata) }
                    }
                    isClosed = doubt != nil
                } catch {
                    logger.error("old rows could not be deleted", metadata: ["error": "\(error)"])
                }
            }
        }
    }

    private func log(_ doubt: RetentionGate.Doubt, at wall: Timestamp) {
        switch doubt {
        case .jumped:
            logger.warning(
                "nothing is deleted by age: the clock has jumped, and no time service has confirmed it",
                metadata: ["clock": "\(wall.rfc3339)"])
        case .ahead(let newest):
            logger.warning(
                """
                nothing is deleted by age: the clock is far ahead of all stored times; waiting up to a day for a time \
                service to confirm it
                """, metadata: ["clock": "\(wall.rfc3339)", "stored": "\(newest.rfc3339)"])
        case .differs(let server):
            logger.warning(
                "nothing is deleted by age: the clock differs from the database server's; correct the wrong one",
                metadata: ["clock": "\(wall.rfc3339)", "server": "\(server.rfc3339)"])
        }
    }
}

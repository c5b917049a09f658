import ChatDomain
import Logging
import Synchronization

/// A kind of work that remains after a response. The rows themselves store the progress.
protocol BackgroundStep: Sendable {
    /// Selects at most `$2` ids above `$1` with remaining work, in order, and skips those that another relay works on.
    /// Locks their rows with `FOR NO KEY UPDATE SKIP LOCKED`.
    static var claimSQL: String { get }
    /// Performs the next part of the first id, or of several, about 500 devices in total, and records the progress of
    /// each. Sets `announcement.apps`. Must have no effects outside the database, because it runs again if its
    /// transaction does.
    static func step(
        of ids: [Int64], now: Timestamp, _ settings: StoreSettings, _ transaction: PostgresTransaction
    ) throws -> BackgroundProgress
}

/// The result of a step.
struct BackgroundProgress: Sendable {
    /// The last id that was processed. The next step begins with the one after it, so that long work does not block the
    /// other ids.
    var last: Int64
    /// Pushes that reached a final state; counted after the commit.
    var ended: [FinalStateCount] = []
}

/// Performs the remaining work of messages and notifications in steps of one transaction each. Any relay can perform a
/// step: it locks the row, and the other relays take another one.
final class BackgroundJobs: Sendable {
    /// The maximum number of rows that a step claims.
    private static let most: Int64 = 20
    /// The interval of queries for work that another relay has left, or has not announced.
    private static let pause = Duration.seconds(1)
    /// The maximum number of failed rows per kind to remember, so that the log names each one once.
    private static let mostFailed = 1000

    private let database: PostgresDatabase
    private let outcomes: OutcomeCounter
    private let settings: @Sendable () -> StoreSettings
    private let kinds: [any BackgroundStep.Type]

    init(
        database: PostgresDatabase, outcomes: OutcomeCounter, settings: @escaping @Sendable () -> StoreSettings,
        kinds: [any BackgroundStep.Type] = [MessageFanout.self, NotificationWork.self]
    ) {
        self.database = database
        self.outcomes = outcomes
        self.settings = settings
        self.kinds = kinds
    }

    /// Must be called after the commit of a step that was part of a request.
    func committed(_ ended: [FinalStateCount]) { outcomes.add(ended) }

    /// Performs announced work, and queries for work once per second, until the task is cancelled. The kinds do not
    /// wait for each other.
    func run() async {
        await withTaskGroup { group in
            for kind in kinds {
                group.addTask { await self.run(kind) }
            }
        }
    }

    private func run(_ kind: any BackgroundStep.Type) async {
        let (wakes, wake) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        await withTaskGroup { group in
            group.addTask { [database] in
                for await announcement in database.announcements() where announcement.jobs || announcement.everything {
                    wake.yield()
                }
            }
            group.addTask {
                while !Task.isCancelled {
                    wake.yield()
                    try? await Task.sleep(for: Self.pause)
                }
            }
            var trouble = Trouble()
            for await _ in wakes { await self.work(kind, &trouble) }
            group.cancelAll()
        }
    }

    /// Performs all remaining work, one step per row in turn. A failed row (because another program has inserted it,
    /// for example) is left for the next query, and the others continue.
    private func work(_ kind: any BackgroundStep.Type, _ trouble: inout Trouble) async {
        let claimed = Claim()
        var (position, limit, isMoving) = (Int64.min, Self.most, false)
        while !Task.isCancelled {
            do throws(ChatError) {
                let progress = try await step(kind, after: position, limit, claimed)
                trouble.isInterrupted = false
                if let progress {
                    outcomes.add(progress.ended)
                    (position, isMoving) = (progress.last, true)
                } else if isMoving {
                    (position, limit, isMoving) = (.min, Self.most, false)
                } else {
                    return
                }
            } catch {
                guard error.code != .unavailable, let first = claimed.first.withLock({ $0 }) else {
                    database.logger.log(
                        level: trouble.isInterrupted ? .debug : .warning,
                        "background work was interrupted and goes on later", metadata: ["error": "\(error)"])
                    trouble.isInterrupted = true
                    return
                }
                guard limit == 1 else {
                    // Find out which of the rows fails.
                    limit = 1
                    continue
                }
                position = first
                guard trouble.failed.count < Self.mostFailed, trouble.failed.insert(first).inserted else { continue }
                database.logger.error(
                    "background work failed and will be retried",
                    metadata: ["work": "\(kind) \(first)", "error": "\(error)"])
            }
        }
    }

    /// The problems that were logged for a kind of work.
    private struct Trouble {
        /// Whether no step has succeeded since the last interruption.
        var isInterrupted = false
        var failed: Set<Int64> = []
    }

    /// The first row of the current step, for the log and in order to skip it.
    private final class Claim: Sendable {
        let first = Mutex<Int64?>(nil)
    }

    /// - Returns: `nil` if there is no work after `position`.
    private func step(
        _ kind: any BackgroundStep.Type, after position: Int64, _ limit: Int64, _ claim: Claim
    ) async throws(ChatError) -> BackgroundProgress? {
        claim.first.withLock { $0 = nil }
        return try await database.write(.background, isRepeatable: true) { [database, settings] transaction in
            let ids = try transaction.rows(kind.claimSQL, [.int(position), .int(limit)]).map { try $0.int(0) }
            guard let first = ids.first else { return nil }
            claim.first.withLock { $0 = first }
            return try kind.step(of: ids, now: database.now(), settings(), transaction)
        }
    }
}

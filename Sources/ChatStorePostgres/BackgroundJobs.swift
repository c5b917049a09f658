#if PostgreSQL
import ChatDomain
import Logging
import Synchronization

/// A kind of work that is left after an answer; how far it has come stands in the rows themselves.
protocol BackgroundStep: Sendable {
    /// Ids greater than `$1` with work left that nobody is at, in order, at most `$2`; locks their rows with
    /// `FOR NO KEY UPDATE SKIP LOCKED`.
    static var claimSQL: String { get }
    /// Does the next part of the first of them, or of several, some 500 devices in all, and writes down how far each has come.
    /// Sets `announcement.apps`. Runs again when its transaction does: nothing outside the database.
    static func step(
        of ids: [Int64], now: Timestamp, _ settings: StoreSettings, _ transaction: PostgresTransaction
    ) throws -> BackgroundProgress
}

/// What a step did.
struct BackgroundProgress: Sendable {
    /// The last id of which something was done: the next step begins with the one after it, so that long work holds up nobody.
    var last: Int64
    /// Pushes that reached a final state; counted after the commit.
    var ended: [FinalStateCount] = []
}

/// Does what is left of messages and notifications, in steps, one transaction each. Of several relays any one does a step: it
/// has the row locked meanwhile, and the others take another.
final class BackgroundJobs: Sendable {
    /// Rows that a step claims.
    private static let most: Int64 = 20
    /// How often it is looked for what another relay has left, or has not announced.
    private static let pause = Duration.seconds(1)
    /// Failed rows of a kind that are remembered, so that the log names each once.
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

    /// To be called after the commit of a step that a request did itself.
    func committed(_ ended: [FinalStateCount]) { outcomes.add(ended) }

    /// Does what is announced, and looks each second, until the task is cancelled. Kinds do not wait for each other.
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

    /// Does all that is there, a step of each in turn. What fails (by a row that another program has made, say) is left for the
    /// next look, and the others go on.
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
                    // Which of them it is.
                    limit = 1
                    continue
                }
                position = first
                guard trouble.failed.count < Self.mostFailed, trouble.failed.insert(first).inserted else { continue }
                database.logger.error(
                    "background work failed and is tried again later",
                    metadata: ["work": "\(kind) \(first)", "error": "\(error)"])
            }
        }
    }

    /// What the log has said of a kind of work.
    private struct Trouble {
        /// Since the last step that was possible.
        var isInterrupted = false
        var failed: Set<Int64> = []
    }

    /// The first row of the step that is tried; for the log, and to pass it.
    private final class Claim: Sendable {
        let first = Mutex<Int64?>(nil)
    }

    /// - Returns: nil when there is nothing after `position`.
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
#endif

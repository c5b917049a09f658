package import ChatDomain
import ChatSQL
import Logging

/// Background work of the store: heartbeats, changes by others, work after responses, deletion by age. Every relay does
/// all of it, and skips the parts that another relay is doing at the moment.
package struct PostgresUpkeep: StoreUpkeep {
    /// The interval of checks of settings that require work.
    private static let settingsInterval = Duration.seconds(5)
    /// The time for which ended starts are kept for the operator.
    private static let startsKept = Duration.seconds(30 * 86_400)

    let database: PostgresDatabase
    let queue: QueueUpkeep
    let jobs: BackgroundJobs
    let shared: SQLUpkeep<PostgresDatabase>
    private let probe: WriteProbe

    init(
        database: PostgresDatabase, queue: QueueUpkeep, jobs: BackgroundJobs, shared: SQLUpkeep<PostgresDatabase>
    ) {
        self.database = database
        self.queue = queue
        self.jobs = jobs
        self.shared = shared
        // Longer than the time limit of a statement.
        probe = WriteProbe(limit: PostgresDatabase.answerLimit + .seconds(1)) { end in
            Task {
                do throws(ChatError) {
                    try await database.tryWriting()
                    end(nil)
                } catch {
                    end(error)
                }
            }
        }
    }

    package func prepare() async throws(ChatError) -> StoreBacklog {
        try await database.beginStart()
        try await shared.adoption.run()
        try await shared.prepareWebhooks()
        // Takes over the pushes of relays that have ended.
        return StoreBacklog(apps: try await queue.look())
    }

    package func watch() async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.shared.record() }
            group.addTask { await self.queue.run() }
            group.addTask { await self.jobs.run() }
            group.addTask { await self.watchSettings() }
            await group.next()
            group.cancelAll()
        }
    }

    package func tryWriting() async throws(ChatError) { try await probe.run() }

    /// Applies changed settings to data that is already stored.
    private func watchSettings() async {
        var applied = SQLUpkeep<PostgresDatabase>.Applied()
        while !Task.isCancelled {
            do throws(ChatError) {
                try await shared.forgetUsage(&applied)
                try await shared.warnOfUnconfiguredApps(&applied, queue.unconfiguredApps)
            } catch {
                database.logger.debug(
                    "changed settings could not be applied and will be retried", metadata: ["error": "\(error)"])
            }
            try? await Task.sleep(for: Self.settingsInterval)
        }
    }

    package func applyRetention(_ ages: RetentionAges) async throws(ChatError) -> RetentionResult {
        var (result, failure) = (RetentionResult(), FirstError())
        await failure.collect { () throws(ChatError) in
            result = try await shared.applyRetention(ages) { _ throws(ChatError) in
                try await queue.applyRetention(keeping: ages.queue)
            }
        }
        await failure.collect { () throws(ChatError) in
            _ = try await database.write(.upkeep, isRepeatable: true) { transaction in
                try transaction.run(
                    "DELETE FROM relay_starts WHERE time_ended < now() - $1::bigint * interval '1 ms'",
                    [.int(Self.startsKept.milliseconds)])
            }
        }
        try failure.rethrow()
        return result
    }

    package func clockEvidence(upTo limit: Timestamp) async throws(ChatError) -> ClockEvidence {
        try await database.read { transaction in
            try transaction.useIndexes()
            let newest = try ClockEvidence.newest(upTo: limit, transaction)
            let server = try transaction.row("SELECT ms(clock_timestamp())")?.optionalTime(0)
            return ClockEvidence(newest: newest, server: server)
        }
    }
}

import ChatDomain
import GRDB
import Synchronization

/// Finds out whether what is written reaches the disk, by writing something that changes nothing.
///
/// One attempt at a time, and one a second at the most, however many ask: they share its result.
final class WriteProbe: Sendable {
    /// How long a result counts.
    private static let freshness = Duration.seconds(1)
    /// How long the writer may take: longer than a statement waits for another process's lock.
    private static let limit = Duration.seconds(DatabaseFile.busyTimeout) + .seconds(1)
    private static let interval = Duration.milliseconds(5)

    private struct State {
        var began: ContinuousClock.Instant?
        var ended: ContinuousClock.Instant?
        var failure: ChatError?
    }

    private let writer: BatchingWriter
    private let state = Mutex(State())

    init(writer: BatchingWriter) {
        self.writer = writer
    }

    /// Throws ``ChatError/Code/unavailable`` when the disk refuses, or when the writer has not come to it for some seconds. A
    /// writer that is stuck keeps nobody longer than that.
    func run() async throws(ChatError) {
        if begin() {
            let isAccepted = writer.enqueue { db in
                // Writes a page though it is the same; an UPDATE that changes nothing would not.
                let version = try Int.fetchOne(db, sql: "PRAGMA user_version") ?? 0
                try db.execute(sql: "PRAGMA user_version = \(version)")
                return { self.end(nil) }
            } onFailure: {
                self.end($0)
            }
            if !isAccepted { end(.unavailable(cause: "too many writes are waiting")) }
        }
        while let began = state.withLock({ $0.began }) {
            let age = ContinuousClock.now - began
            guard age < Self.limit, !Task.isCancelled else {
                throw .unavailable(cause: "the writer has not moved for \(age.components.seconds) s")
            }
            try? await Task.sleep(for: Self.interval)
        }
        if let failure = state.withLock({ $0.failure }) { throw failure }
    }

    /// - Returns: whether an attempt is to be made.
    private func begin() -> Bool {
        state.withLock { state in
            let now = ContinuousClock.now
            guard state.began == nil, state.ended.map({ now - $0 >= Self.freshness }) ?? true else { return false }
            state.began = now
            return true
        }
    }

    private func end(_ failure: ChatError?) {
        state.withLock { $0 = State(began: nil, ended: .now, failure: failure) }
    }
}

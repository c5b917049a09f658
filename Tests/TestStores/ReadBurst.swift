package import ChatDomain
package import ChatSQL
import Dispatch
import Synchronization

/// The results of a burst of long reads, while the first one is stuck.
package struct ReadBurst: Sendable, Hashable {
    package var refused = 0
    /// Whether short reads and a long one of the other line ended during the burst.
    package var othersEnded = false
    /// Whether the relay's own reads succeeded, at the latest after the burst.
    package var metricsEnded = false
    /// The number of reads of the burst that ended when the first one had.
    package var ended = 0

    /// - Parameters:
    ///   - extra: The number of reads more than may wait.
    ///   - stores: The stores over the database.
    package init(of kind: LongRead, on database: some SQLDatabase, _ stores: Stores, extra: Int) async throws {
        let (stuck, end) = (AsyncStream.makeStream(of: Void.self), DispatchSemaphore(value: 0))
        let reads = 1 + LongReads.waitingLimit + extra
        self = try await withThrowingTaskGroup(of: Bool.self) { group in
            var burst = ReadBurst()
            for _ in 0..<reads {
                group.addTask {
                    do throws(ChatError) {
                        try await database.read(kind) { _ in
                            stuck.continuation.yield()
                            end.wait()
                        }
                        return true
                    } catch {
                        return error.code != .unavailable
                    }
                }
            }
            for await _ in stuck.stream { break }
            while burst.refused < extra, try await group.next() == false { burst.refused += 1 }
            let isDone = Mutex(false)
            async let metrics: Bool = {
                defer { isDone.withLock { $0 = true } }
                _ = (try await stores.metrics.queueDepths(), try await stores.metrics.totals())
                return true
            }()
            while database.longReads.waiting(.metrics) == 0, !isDone.withLock({ $0 }) { await Task.yield() }
            let short = try await database.read { try $0.row("SELECT 1")?.int(0) }
            let long = try await database.read(kind == .search ? .administration : .search) {
                try $0.row("SELECT 1")?.int(0)
            }
            let all = ClientReading(room: nil, client: "")
            let isRead = (try? await stores.clients.messages(all, before: nil, limit: 1).isEmpty) == true
            let isFound =
                (try? await stores.clients.message(1, ClientReading(room: nil, client: "admin")) == nil) == true
            burst.othersEnded = short == 1 && long == 1 && isRead && isFound
            for _ in 0..<reads { end.signal() }
            for try await isEnded in group where isEnded { burst.ended += 1 }
            burst.metricsEnded = (try? await metrics) == true
            return burst
        }
    }

    private init() {}

    /// The result that every database must have.
    package static func expected(extra: Int) -> ReadBurst {
        var burst = ReadBurst()
        (burst.refused, burst.othersEnded, burst.metricsEnded) = (extra, true, true)
        burst.ended = 1 + LongReads.waitingLimit
        return burst
    }
}

import ChatDomain
package import ChatSQL
import Dispatch

/// The results of a burst of long reads, while the first one is stuck.
package struct ReadBurst: Sendable, Hashable {
    package var refused = 0
    /// Whether a short read and a long one of another kind ended during the burst.
    package var othersEnded = false
    /// The number of reads of the burst that ended when the first one had.
    package var ended = 0

    /// - Parameter extra: The number of reads more than may wait.
    package init(on database: some SQLDatabase, extra: Int) async throws {
        let (stuck, end) = (AsyncStream.makeStream(of: Void.self), DispatchSemaphore(value: 0))
        let reads = 1 + LongReads.waitingLimit + extra
        self = try await withThrowingTaskGroup(of: Bool.self) { group in
            var burst = ReadBurst()
            for _ in 0..<reads {
                group.addTask {
                    do throws(ChatError) {
                        try await database.read(.search) { _ in
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
            let short = try await database.read { try $0.row("SELECT 1")?.int(0) }
            let long = try await database.read(.administration) { try $0.row("SELECT 1")?.int(0) }
            burst.othersEnded = short == 1 && long == 1
            for _ in 0..<reads { end.signal() }
            for try await isEnded in group where isEnded { burst.ended += 1 }
            return burst
        }
    }

    private init() {}

    /// The result that every database must have.
    package static func expected(extra: Int) -> ReadBurst {
        var burst = ReadBurst()
        (burst.refused, burst.othersEnded, burst.ended) = (extra, true, 1 + LongReads.waitingLimit)
        return burst
    }
}

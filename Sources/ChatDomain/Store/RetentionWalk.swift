import Synchronization

/// Where retention looks in a table whose ids mostly grow with the rows' times.
///
/// The oldest rows stand first. So each run starts there and goes on for as long as it finds old rows. But a row with a wrong
/// time, or with work left, may stand before old ones and end that search. So each run also looks at the next part of the
/// table, and several runs look at all of it.
package final class RetentionWalk: Sendable {
    /// The windows of the second search in one run. With 2,000 rows each, a day's runs look at some six million rows.
    package static let windowsPerRun = 20

    /// What one look found.
    package struct Window: Sendable {
        package let deleted: Int
        /// Whether the next window may have old rows, too.
        package let hasOld: Bool
        /// The id of the last row that was looked at; `nil` at the end of the table.
        package let last: Int64?

        package init(deleted: Int, hasOld: Bool, last: Int64?) {
            self.deleted = deleted
            self.hasOld = hasOld
            self.last = last
        }
    }

    private let position = Mutex(Int64.min)

    package init() {}

    /// - Parameter look: deletes the old among the next rows after an id.
    /// - Returns: how many rows were deleted.
    package func run(
        _ look: (_ after: Int64) async throws(ChatError) -> Window
    ) async throws(ChatError) -> Int {
        var (deleted, after) = (0, Int64.min)
        while true {
            let window = try await look(after)
            deleted += window.deleted
            guard let last = window.last else { return deleted }
            after = last
            if !window.hasOld { break }
        }
        after = max(after, position.withLock { $0 })
        for _ in 0..<Self.windowsPerRun {
            let window = try await look(after)
            deleted += window.deleted
            after = window.last ?? .min
            position.withLock { $0 = after }
            if window.last == nil { break }
        }
        return deleted
    }
}

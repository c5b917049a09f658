import Synchronization

/// Decides where retention looks for old rows, in a table whose ids mostly grow with the rows' times.
///
/// The oldest rows come first. Each run therefore starts at the beginning and continues while it finds old rows. But a
/// row with a wrong time or with remaining work may precede old rows and end that search. Each run therefore also looks
/// at the next part of the table, and successive runs cover the whole table.
package final class RetentionWalk: Sendable {
    /// The maximum number of windows that the second search of a run looks at. With 2,000 rows per window, a day's runs
    /// look at about six million rows.
    package static let windowsPerRun = 20

    /// The result of looking at one window of rows.
    package struct Window: Sendable {
        package let deleted: Int
        /// Whether the next window may contain old rows as well.
        package let hasOld: Bool
        /// The id of the last row in the window. `nil` at the end of the table.
        package let last: Int64?

        package init(deleted: Int, hasOld: Bool, last: Int64?) {
            self.deleted = deleted
            self.hasOld = hasOld
            self.last = last
        }
    }

    private let position = Mutex(Int64.min)

    package init() {}

    /// Deletes old rows.
    ///
    /// - Parameter look: Deletes the old rows in the window after an id.
    /// - Returns: The number of deleted rows.
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

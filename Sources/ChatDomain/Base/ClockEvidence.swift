/// Times from the database, for checking the wall clock.
package struct ClockEvidence: Sendable, Hashable {
    /// The newest stored time up to a limit. `nil` if there is none.
    package var newest: Timestamp?
    /// The clock of the database server. `nil` if the database is a file.
    package var server: Timestamp?

    package init(newest: Timestamp? = nil, server: Timestamp? = nil) {
        self.newest = newest
        self.server = server
    }

    /// Finds the newest time up to a limit in a table whose ids mostly grow with the rows' times. No index covers the
    /// times, so the search goes by id and reads a few dozen rows. If a wrong clock has written times that do not grow,
    /// several rows may match, and the search finds one of them.
    ///
    /// - Parameter row: Returns the last row up to an id, with its time. A row without a readable time counts as a late
    ///   one.
    package static func newest<Failure>(
        upTo limit: Timestamp, _ row: (_ id: Int64) throws(Failure) -> (id: Int64, time: Timestamp?)?
    ) throws(Failure) -> Timestamp? {
        func isEarly(_ time: Timestamp?) -> Bool { time.map { $0 <= limit } ?? false }
        guard let last = try row(.max) else { return nil }
        if isEarly(last.time) { return last.time }
        // All rows up to `low` are early or missing. The row `high` is late.
        var (low, high, newest) = (Int64.min, last.id, Timestamp?.none)
        while low < high - 1 {
            let middle = low + Int64(UInt64(bitPattern: high &- low) / 2)
            guard let found = try row(middle), found.id > low else {
                low = middle
                continue
            }
            if isEarly(found.time) {
                (low, newest) = (middle, found.time)
            } else {
                high = found.id
            }
        }
        return newest
    }
}

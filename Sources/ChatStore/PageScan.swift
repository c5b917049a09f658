import ChatDomain
import GRDB

/// Looks for a page's items among candidates, a bounded number of them: so a page costs the same however many rows there are
/// and however few of them are wanted.
struct PageScan {
    /// Candidates that one page looks at: some milliseconds.
    static let window = 5000

    let limit: Int
    private(set) var rows: [Row] = []
    private var looked = 0
    private var last: Int64?
    private(set) var next: Int64?

    /// - Parameters:
    ///   - candidates: in the order of the list, at least one more than ``window`` where there are so many; the first column
    ///     is what the cursor counts by.
    ///   - isWanted: nil for all.
    init(_ candidates: RowCursor, limit: Int, isWanted: ((Row) -> Bool)? = nil) throws {
        self.limit = limit
        while let row = try candidates.next() {
            guard rows.count < limit, looked < Self.window else {
                next = last
                return
            }
            looked += 1
            last = row[0]
            if isWanted?(row) != false { rows.append(row.copy()) }
        }
    }
}

import ChatSQL
import ChatStore
import GRDB
import Testing

@Suite("Filtered pages")
struct FilteredPageTests {
    /// Counts the rows for which SQLite asks whether they match. Only one connection uses it.
    private final class Examined: @unchecked Sendable {
        var count = 0
    }

    @Test("A page examines one window of candidates, however many follow", arguments: [nil, 7] as [Int64?])
    func window(end: Int64?) throws {
        let (window, examined) = (SQLPage.window, Examined())
        try DatabaseQueue().write { db in
            db.add(
                function: DatabaseFunction("is_wanted", argumentCount: 1) { _ in
                    examined.count += 1
                    return false
                })
            try db.execute(
                sql: """
                    CREATE TABLE items (id INTEGER PRIMARY KEY);
                    INSERT INTO items WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT \(3 * window))
                    SELECT i FROM n
                    """)
            let page = try SQLiteTransaction(db).page(
                "id", key: "id", of: "items WHERE id > $1", [.int(2)], upTo: end ?? .max, where: "is_wanted(id)", [],
                limit: 50)
            #expect(page.rows.isEmpty)
            #expect(page.next == (end == nil ? Int64(window) + 2 : nil))
        }
        #expect(examined.count == end.map { Int($0) - 2 } ?? window)
    }
}

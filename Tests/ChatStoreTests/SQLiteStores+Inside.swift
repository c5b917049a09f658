import GRDB

@testable import ChatStore

extension SQLiteStores {
    /// A setting of the writing connection, as text; for diagnosis.
    func pragma(_ name: String) async throws -> String? {
        try await database.pool.writeWithoutTransaction { db in try String.fetchOne(db, sql: "PRAGMA \(name)") }
    }

    /// Looks at what other programs have done, as the relay does by itself.
    func lookForPushes() async throws {
        try await repair.notice()
        var position: Int64? = QueueIndex.ids.lowerBound
        while let from = position { position = try await repair.sweep(from: from).next }
    }

    /// Lets the file grow by so many pages and no more, as a full disk would.
    func limitPages(spare: Int) async throws {
        try await database.pool.writeWithoutTransaction { db in
            let pages = try Int.fetchOne(db, sql: "PRAGMA page_count") ?? 0
            try db.execute(sql: "PRAGMA max_page_count = \(pages + spare)")
        }
    }
}

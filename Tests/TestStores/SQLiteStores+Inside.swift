import GRDB

@testable import ChatStore

extension SQLiteStores {
    /// Returns a setting of the writing connection as text.
    func pragma(_ name: String) async throws -> String? {
        try await database.pool.writeWithoutTransaction { db in try String.fetchOne(db, sql: "PRAGMA \(name)") }
    }

    /// Notices the writes of other programs, as the relay does regularly.
    func lookForPushes() async throws {
        try await repair.notice()
        try await queue.readPauses()
        var position: Int64? = QueueIndex.ids.lowerBound
        while let from = position { position = try await repair.sweep(from: from).next }
    }

    /// Limits the growth of the file to this number of pages, as a full disk would.
    func limitPages(spare: Int) async throws {
        try await database.pool.writeWithoutTransaction { db in
            let pages = try Int.fetchOne(db, sql: "PRAGMA page_count") ?? 0
            try db.execute(sql: "PRAGMA max_page_count = \(pages + spare)")
        }
    }
}

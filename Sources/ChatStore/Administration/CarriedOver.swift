import ChatDomain
import ChatSQL
import Foundation
import GRDB

/// The records that a restore takes over from the replaced database, so that revoked tokens stay revoked and banned
/// people stay banned.
///
/// The two files may have different schema versions. A row therefore takes over the columns that both have.
package struct CarriedOver: Sendable, Equatable {
    package struct Item: Sendable, Equatable {
        package let id: Int64
        /// The name of a token or credential, or the nickname of a banned member. `nil` if there is no nickname.
        package let name: String?
    }

    /// Tokens of the copy that were revoked since the copy was made.
    package private(set) var revoked: [Item] = []
    /// Tokens of the copy whose scopes, room, audience or expiry have changed since. They now have the values of the
    /// replaced database.
    package private(set) var changed: [Item] = []
    /// Tokens that are newer than the copy. The restored database does not have them.
    package private(set) var gone: [Item] = []
    /// Credentials of the copy that were revoked since, or whose member has left or token was revoked.
    package private(set) var endedCredentials: [Item] = []
    /// Credentials that are newer than the copy. The restored database does not have them.
    package private(set) var goneCredentials: [Item] = []
    /// Bans in force that the copy did not have, or had with other values.
    package private(set) var bans: [Item] = []
    /// Bans of the copy that were lifted or have ended since.
    package private(set) var lifted: [Item] = []
    /// Bans in force that are lost or incomplete, because the copy's schema lacks a column that they need.
    package private(set) var incomplete: [Item] = []
    /// Members of the copy who are banned, or in a closed room. They were removed.
    package private(set) var removedMembers = 0

    /// The value if the replaced database has no records that differ from the copy.
    static let nothing = CarriedOver()

    private init() {}

    static func impossible(_ problem: String) -> DatabaseFile.Unusable {
        DatabaseFile.Unusable(
            description: """
                \(problem), so revoked tokens and bans cannot be carried over. With --without-carrying, tokens that were \
                revoked since the copy are valid again, and bans that are newer are lost
                """)
    }

    // MARK: - The replaced database

    /// The records of the replaced database.
    struct Source {
        struct Table {
            let columns: [String]
            let rows: [Row]

            /// - Returns: `nil` if the schema has no such table.
            init?(_ name: String, where condition: String = "TRUE", _ db: Database) throws {
                columns = try CarriedOver.columns(of: name, db)
                guard !columns.isEmpty else { return nil }
                rows = try Row.fetchAll(db, sql: "SELECT * FROM \(name) WHERE \(condition) ORDER BY 1")
            }
        }

        let key: Data?
        let tokens: Table?
        let credentials: Table?
        let bans: Table?
        let moderation: Table?

        /// - Parameter newest: The id of the newest moderation record in the copy. `nil` if the copy does not have that
        ///   table.
        init(_ db: Database, after newest: Int64?) throws {
            key = try CarriedOver.key(db)
            tokens = try Table("api_tokens", db)
            // A script may delete a credential's owner without the foreign keys.
            credentials = try Table(
                "credentials",
                where: "member IN (SELECT member_id FROM active_users) OR token IN (SELECT token_id FROM api_tokens)",
                db)
            bans = try Table("bans", db)
            moderation = try newest.flatMap { try Table("moderation", where: "moderation_id > \($0)", db) }
        }
    }

    static func newestRecord(_ db: Database) throws -> Int64? {
        guard try !columns(of: "moderation", db).isEmpty else { return nil }
        return try Int64.fetchOne(db, sql: "SELECT coalesce(max(moderation_id), 0) FROM moderation")
    }

    /// The key of a database. Copies of a database have the same key, and other databases have different ones. `nil`
    /// before schema version 8.
    private static func key(_ db: Database) throws -> Data? {
        guard try !columns(of: "queue_state", db).isEmpty else { return nil }
        return try Data.fetchOne(db, sql: "SELECT id_key FROM queue_state")
    }

    private static func columns(of table: String, _ db: Database) throws -> [String] {
        try String.fetchAll(db, sql: "SELECT name FROM pragma_table_info(?) ORDER BY cid", arguments: [table])
    }

    // MARK: - The copy

    /// Writes the records into a copy, in the caller's transaction.
    /// - Throws: ``DatabaseFile/Unusable`` if a revocation or a ban cannot be kept.
    init(_ source: Source, into copy: Database, now: Timestamp) throws {
        if let key = source.key, let other = try Self.key(copy), key != other {
            throw Self.impossible("the file to be replaced is not the database that was copied, but another one")
        }
        if let credentials = source.credentials { try carry(credentials: credentials, into: copy) }
        if let tokens = source.tokens { try carry(tokens: tokens, into: copy) }
        if let bans = source.bans { try carry(bans: bans, into: copy, now) }
        if let moderation = source.moderation {
            let columns = try Self.columns(of: "moderation", copy)
            for row in moderation.rows {
                try Self.insert(row, moderation.columns.filter(columns.contains), into: "moderation", copy)
            }
        }
    }

    private mutating func carry(tokens: Source.Table, into copy: Database) throws {
        (revoked, changed, gone) = try Self.carry(tokens, "api_tokens", key: "token_id", into: copy)
    }

    private mutating func carry(credentials: Source.Table, into copy: Database) throws {
        (endedCredentials, _, goneCredentials) = try Self.carry(
            credentials, "credentials", key: "credential_id", into: copy)
    }

    /// Tokens and credentials are matched by their hash, because names and ids may be reused.
    private static func carry(
        _ secrets: Source.Table, _ table: String, key: String, into copy: Database
    ) throws -> (ended: [Item], changed: [Item], gone: [Item]) {
        /// Written when the secret is used; not worth reporting.
        let ofUse: Set = ["time_used", "used_from", "unreadable"]
        /// The owners of credentials, which never change.
        let fixed = [key, "hash", "name", "member", "token"]
        let columns = try columns(of: table, copy)
        let shared = secrets.columns.filter { columns.contains($0) && !fixed.contains($0) }
        var (ended, changed): ([Item], [Item]) = ([], [])
        var current: [DatabaseValue: Row] = [:]
        for row in secrets.rows { current[row["hash"]] = row }
        let copied = columns.isEmpty ? [] : try Row.fetchAll(copy, sql: "SELECT * FROM \(table) ORDER BY \(key)")
        for row in copied {
            let secret = Item(id: row[key], name: row["name"])
            guard let latest = current.removeValue(forKey: row["hash"]) else {
                try copy.execute(sql: "DELETE FROM \(table) WHERE \(key) = ?", arguments: [secret.id])
                ended.append(secret)
                continue
            }
            let differing = differences(row, shared, from: latest)
            try write(differing, of: latest, into: table, key: key, secret.id, copy)
            if !ofUse.isSuperset(of: differing) { changed.append(secret) }
        }
        let gone = secrets.rows.filter { current[$0["hash"]] != nil }.map { Item(id: $0[key], name: $0["name"]) }
        return (ended, changed, gone)
    }

    /// A ban whose record the replaced database has already deleted for its age stays as it is in the copy.
    private mutating func carry(bans: Source.Table, into copy: Database, _ now: Timestamp) throws {
        func isInForce(_ ban: Row) -> Bool { (ban["time_ends"] as String?).map { $0 > now.sqlText } ?? true }
        let columns = try Self.columns(of: "bans", copy)
        guard !columns.isEmpty else {
            let count = bans.rows.filter(isInForce).count
            guard count == 0 else {
                throw Self.impossible("the copy's schema version has no bans, and \(count) are in force")
            }
            return
        }
        let shared = bans.columns.filter(columns.contains)
        let missing = bans.columns.filter { !columns.contains($0) }
        for row in bans.rows {
            let ban = Item(id: row["ban_id"], name: row["nickname"])
            if missing.contains(where: { row.hasValue($0) }) {
                if isInForce(row) { incomplete.append(ban) }
                // Without the address that it applied to, it would close the room to everyone.
                guard row.hasValue("udid") || row.hasValue("device_token") else { continue }
            }
            let old = try Row.fetchOne(copy, sql: "SELECT * FROM bans WHERE ban_id = ?", arguments: [ban.id])
            guard let old, Self.differences(old, ["time_created"], from: row).isEmpty else {
                try Self.insert(row, shared.filter { $0 != "ban_id" || old == nil }, into: "bans", copy)
                if isInForce(row) { self.bans.append(ban) }
                continue
            }
            let differing = Self.differences(old, shared, from: row)
            guard !differing.isEmpty else { continue }
            try Self.write(differing, of: row, into: "bans", key: "ban_id", ban.id, copy)
            if isInForce(row) { self.bans.append(ban) } else if isInForce(old) { lifted.append(ban) }
        }
        try removeBanned(copy, now, hasAddress: columns.contains("address"))
    }

    /// A ban only prevents a person from joining. The original ban also removed the person's members, so remove them
    /// here as well.
    private mutating func removeBanned(_ copy: Database, _ now: Timestamp, hasAddress: Bool) throws {
        let condition = """
            EXISTS (
                SELECT 1 FROM bans b
                WHERE (b.time_ends IS NULL OR b.time_ends > at($1))
                    AND (b.secret_code IS NULL OR b.secret_code = active_users.secret_code)
                    AND (b.udid = active_users.udid
                        OR (b.device_token = active_users.device_token AND active_users.device_token <> '0')
                        OR (b.udid IS NULL AND b.device_token IS NULL \(hasAddress ? "AND b.address IS NULL" : ""))))
            """
        copy.addTimeFunctions()
        let transaction = SQLiteTransaction(copy)
        let hasPast = try !Self.columns(of: "past_members", copy).isEmpty
        removedMembers =
            try hasPast
            ? ReadState.remove(where: condition, [.time(now)], now: now, transaction).count
            : transaction.run("DELETE FROM active_users WHERE \(condition)", [.time(now)])
    }

    // MARK: - Rows

    /// - Returns: The columns whose values differ.
    private static func differences(_ row: Row, _ columns: [String], from latest: Row) -> [String] {
        columns.filter { row[$0] as DatabaseValue != latest[$0] as DatabaseValue }
    }

    private static func write(
        _ columns: [String], of row: Row, into table: String, key: String, _ id: Int64, _ db: Database
    ) throws {
        guard !columns.isEmpty else { return }
        let assignments = columns.map { "\($0.quotedDatabaseIdentifier) = ?" }.joined(separator: ", ")
        try db.execute(
            sql: "UPDATE \(table) SET \(assignments) WHERE \(key) = ?",
            arguments: StatementArguments(columns.map { row[$0] as DatabaseValue }) + [id])
    }

    private static func insert(_ row: Row, _ columns: [String], into table: String, _ db: Database) throws {
        let names = columns.map(\.quotedDatabaseIdentifier).joined(separator: ", ")
        let places = columns.map { _ in "?" }.joined(separator: ", ")
        try db.execute(
            sql: "INSERT INTO \(table) (\(names)) VALUES (\(places))",
            arguments: StatementArguments(columns.map { row[$0] as DatabaseValue }))
    }
}

extension Row {
    fileprivate func hasValue(_ column: String) -> Bool { !(self[column] as DatabaseValue).isNull }
}

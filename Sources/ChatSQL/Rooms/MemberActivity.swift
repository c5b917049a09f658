package import ChatDomain

/// Records the messages that members have fetched and their phones have shown, and the times at which they last wrote.
package final class MemberActivity<Database: SQLDatabase>: Sendable {
    private let database: Database
    private let keepsUsage: @Sendable () -> Bool
    private let notes: PendingMemberUpdates

    /// - Parameter keepsUsage: Returns whether to record devices as seen.
    package init(
        database: Database, keepsUsage: @escaping @Sendable () -> Bool = { true },
        mostWaiting: Int = PendingMemberUpdates.most
    ) {
        self.database = database
        self.keepsUsage = keepsUsage
        self.notes = PendingMemberUpdates(most: mostWaiting)
    }

    /// Notes that a member has fetched a message and all earlier ones.
    package func fetched(_ message: MessageID, by member: MemberID) {
        notes.fetched(message, by: member, at: database.now())
    }

    /// Notes that a member's phone has shown a message.
    package func shown(_ message: MessageID, to member: MemberID) {
        notes.shown(message, to: member, at: database.now())
    }

    /// - Parameter address: The address that the request came from. `nil` if unknown.
    package func wrote(_ member: MemberID, at time: Timestamp, from address: String?) {
        notes.wrote(member, at: time, from: address)
    }

    /// The latest fetch of a member that is not recorded yet. Needed by a transaction that deletes the member's row. A
    /// fetch from another relay is lost if the member leaves within the seconds before that relay records it.
    package func pendingFetch(of member: MemberID) -> (message: MessageID, time: Timestamp)? {
        notes.pendingFetch(of: member)
    }

    /// Writes the pending updates and announces them. Those that it cannot write stay for the next call.
    package func flush() async throws(ChatError) {
        try await notes.flush(step: ActivityStep.size) { [database, keepsUsage] notes throws(ChatError) in
            let keepsUsage = keepsUsage()
            try await database.write(as: .notes) { transaction in
                try ActivityStep.write(notes, keepsUsage: keepsUsage, transaction)
            }
        }
    }
}

/// One transaction of ``MemberActivity``.
package enum ActivityStep {
    /// The number of members that one transaction records.
    static let size = 500

    /// Updates the members' rows that exist, and never overwrites newer values. A member may have left in the meantime,
    /// or may have rejoined, with another row in another room.
    /// Announces the rooms whose members have fetched more than was recorded.
    static func write(
        _ notes: [(member: MemberID, note: PendingMemberUpdates.Note)], keepsUsage: Bool,
        _ transaction: some SQLTransaction
    ) throws {
        let known = Dictionary(notes.map { ($0.member.text, $0.note) }) { first, _ in first }
        let rows = try transaction.rows(knownSQL(transaction.dialect), [.texts(notes.map(\.member.text))])
        let updates = try rows.compactMap { row in
            let stay = try Stay(row)
            return known[stay.member].map { (stay: stay, note: $0, update: Update($0, of: stay)) }
        }
        let changed = updates.filter { $0.update != Update() }
        if !changed.isEmpty {
            let values = changed.map(\.update)
            try transaction.pipeline(
                updateSQL(transaction.dialect),
                [
                    .ints(changed.map(\.stay.id)), .optionalInts(values.map(\.fetchedTo)),
                    .optionalInts(values.map(\.fetched?.milliseconds)), .optionalInts(values.map(\.shownTo)),
                    .optionalInts(values.map(\.wrote?.milliseconds)), .optionalTexts(values.map(\.address)),
                ])
        }
        if keepsUsage {
            let seen = updates.compactMap { stay, note, _ in
                if let token = stay.token, let time = note.seenAt {
                    SeenDevice(token: token, app: stay.app, client: ClientInfo(), time: time)
                } else {
                    nil as SeenDevice?
                }
            }
            try DeviceUsage.saw(seen, transaction)
        }
        transaction.announcement.read.formUnion(updates.filter { $0.update.fetchedTo != nil }.map(\.stay.room))
    }

    /// A member's row.
    private struct Stay {
        /// The columns of the table `active_users` as `u`.
        static let columns = """
            u.member_id, u.udid, u.secret_code, u.app, nullif(u.device_token, '0'), u.history_from, u.fetched_to,
            u.shown_to, ms(u.time_joined), ms(u.time_updated), ms(u.time_last_message)
            """

        let id: Int64
        let member: String
        let room: String
        let app: String
        let token: String?
        let fetchedTo: MessageID
        let shownTo: MessageID
        let joined: Timestamp
        let updated: Timestamp
        let lastMessage: Timestamp?

        /// - Parameter row: Has ``columns``.
        init(_ row: some SQLRow) throws {
            id = try row.int(0)
            member = try row.text(1)
            room = try row.text(2)
            app = try row.text(3)
            token = row.optionalText(4)
            // The member could read only the messages after this one.
            let first = try row.int(5)
            fetchedTo = max(try row.int(6), first)
            shownTo = max(try row.int(7), first)
            joined = try row.time(8)
            updated = try row.time(9)
            lastMessage = try row.optionalTime(10)
        }
    }

    /// The columns to change. `nil` for one that stays.
    private struct Update: Equatable {
        var fetchedTo: MessageID?
        var fetched: Timestamp?
        var shownTo: MessageID?
        var wrote: Timestamp?
        var address: String?

        init() {}

        init(_ note: PendingMemberUpdates.Note, of stay: Stay) {
            if let fetch = note.fetch, fetch.message > stay.fetchedTo { (fetchedTo, fetched) = fetch }
            if let shown = note.shown, shown.message > stay.shownTo { shownTo = shown.message }
            if let (time, address) = note.writing, stay.joined <= time, stay.lastMessage.map({ $0 < time }) ?? true {
                wrote = time
                if stay.updated <= time { self.address = address }
            }
        }
    }

    package static func knownSQL(_ dialect: SQLDialect) -> String {
        """
        SELECT \(Stay.columns) FROM active_users u WHERE \(dialect.isAny("u.udid", of: "$1", "text"))
        ORDER BY u.member_id \(dialect.locked("u"))
        """
    }

    package static func updateSQL(_ dialect: SQLDialect) -> String {
        let columns: KeyValuePairs = [
            "id": "bigint", "fetched_to": "bigint", "time_fetched": "bigint", "shown_to": "bigint",
            "time_last_message": "bigint", "ip_address": "text",
        ]
        return """
            UPDATE active_users AS u SET fetched_to = coalesce(w.fetched_to, u.fetched_to),
                time_fetched = coalesce(at(w.time_fetched), u.time_fetched),
                shown_to = coalesce(w.shown_to, u.shown_to),
                time_last_message = coalesce(at(w.time_last_message), u.time_last_message),
                ip_address = coalesce(w.ip_address, u.ip_address)
            FROM \(dialect.table("w", columns)) WHERE u.member_id = w.id
            """
    }
}

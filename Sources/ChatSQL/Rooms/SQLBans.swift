package import ChatDomain

/// The statements about the table `bans` that both databases share.
package enum SQLBans {
    /// The columns of a ban.
    package static let columns = """
        ban_id, secret_code, udid IS NULL AND device_token IS NULL AND address IS NULL, nickname, device_token, reason,
        ms(time_created), ms(time_ends), address
        """

    /// - Parameters:
    ///   - row: Begins with ``columns``.
    ///   - now: `nil` for a new ban.
    package static func ban(_ row: some SQLRow, now: Timestamp?) throws -> Ban {
        let end = try row.optionalTime(7)
        return Ban(
            id: try row.int(0), room: row.optionalText(1).map(SecretCode.init(stored:)), isClosed: try row.bool(2),
            name: row.optionalText(3), device: row.optionalText(4).map { $0.prefix(8) + "…" },
            address: row.optionalText(8), reason: row.optionalText(5), createdAt: try row.time(6), endsAt: end,
            hasEnded: end.flatMap { end in now.map { end <= $0 } } ?? false)
    }

    package static func page(
        in room: SecretCode?, before cursor: Int64?, limit: Int, now: Timestamp, _ transaction: some SQLTransaction
    ) throws -> Page<Ban> {
        let page = try transaction.page(
            "SELECT \(columns) FROM bans WHERE ban_id < $1 ORDER BY ban_id DESC LIMIT $2",
            [.int(cursor ?? Int64.max), .int(SQLPage.window + 1)], limit: limit
        ) { row in room.map { row.optionalText(1) == $0.text } ?? true }
        return Page(items: try page.rows.map { try ban($0, now: now) }, next: page.next)
    }

    /// Ends a ban that is in force.
    package static func end(_ id: Int64, now: Timestamp, _ transaction: some SQLTransaction) throws -> Ban {
        let row = try transaction.row(
            """
            UPDATE bans SET time_ends = at($1) WHERE ban_id = $2 AND (time_ends IS NULL OR time_ends > at($1))
            RETURNING \(columns)
            """, [.time(now), .int(id)])
        guard let row else { throw ChatError(.notFound, "There is no such ban in force") }
        return try ban(row, now: now)
    }

    // MARK: - Admission

    /// Refuses a member that is banned from a room by its udid, device or address, and any member if the room is
    /// closed. In PostgreSQL the caller holds the locks of the member, the device and the address, and of the room if
    /// the member joins it.
    /// - Throws: ``ChatError/Code/forbidden``, with the end of the ban that lasts longest.
    package static func requireAdmitted(
        _ member: MemberID, _ token: DeviceToken?, from address: String?, to room: SecretCode, now: Timestamp,
        _ transaction: some SQLTransaction
    ) throws {
        let ban = try transaction.row(
            admissionSQL,
            [
                .text(member.text), .optional(token?.description), .text(room.text), .time(now),
                .optional(BannedAddress.text(of: address)),
            ])
        if let ban {
            throw ChatError.banned(
                isClosed: try ban.bool(0), reason: ban.optionalText(3), isEverywhere: try ban.bool(1),
                until: try ban.optionalTime(2))
        }
    }

    package static let admissionSQL = """
        SELECT is_closed, is_everywhere, ms(time_ends), reason FROM (
            SELECT false AS is_closed, secret_code IS NULL AS is_everywhere, time_ends, reason FROM bans
            WHERE udid = $1 AND (secret_code IS NULL OR secret_code = $3) AND (time_ends IS NULL OR time_ends > at($4))
            UNION ALL
            SELECT false, secret_code IS NULL, time_ends, reason FROM bans
            WHERE device_token = $2 AND (secret_code IS NULL OR secret_code = $3)
                AND (time_ends IS NULL OR time_ends > at($4))
            UNION ALL
            SELECT false, secret_code IS NULL, time_ends, reason FROM bans
            WHERE address = $5 AND (secret_code IS NULL OR secret_code = $3)
                AND (time_ends IS NULL OR time_ends > at($4))
            UNION ALL
            SELECT true, false, time_ends, reason FROM (\(closedSQL(room: "$3", now: "at($4)"))) c) b
        ORDER BY is_closed, time_ends IS NOT NULL, time_ends DESC LIMIT 1
        """

    /// Refuses a closed room.
    package static func requireOpen(_ room: SecretCode, now: Timestamp, _ transaction: some SQLTransaction) throws {
        let closed = try transaction.row(
            """
            SELECT ms(time_ends), reason FROM (\(closedSQL(room: "$1", now: "at($2)"))) c
            ORDER BY time_ends IS NOT NULL, time_ends DESC LIMIT 1
            """, [.text(room.text), .time(now)])
        if let closed {
            throw ChatError.banned(isClosed: true, reason: closed.optionalText(1), until: try closed.optionalTime(0))
        }
    }

    /// Selects the bans that close a room, with their end and reason.
    package static func closedSQL(room: String, now: String) -> String {
        """
        SELECT time_ends, reason FROM bans
        WHERE udid IS NULL AND device_token IS NULL AND address IS NULL AND secret_code = \(room)
            AND (time_ends IS NULL OR time_ends > \(now))
        """
    }

    // MARK: - Addresses

    /// The addresses of members that a ban of an address covers.
    /// - Parameter room: The room whose members count. `nil` for all rooms.
    package static func addresses(
        _ banned: Set<String>, in room: String?, _ transaction: some SQLTransaction
    ) throws -> [String] {
        guard !banned.isEmpty else { return [] }
        let used = try transaction.rows(
            """
            SELECT DISTINCT ip_address FROM active_users
            WHERE ip_address IS NOT NULL AND (CAST($1 AS text) IS NULL OR secret_code = $1)
            """, [.optional(room)])
        return try used.map { try $0.text(0) }.filter { BannedAddress.text(of: $0).map(banned.contains) ?? false }
    }

    /// The addresses of a room's members that the bans in force cover.
    package static func bannedAddresses(
        in room: SecretCode, now: Timestamp, _ transaction: some SQLTransaction
    ) throws -> [String] {
        let banned = try transaction.rows(
            """
            SELECT address FROM bans WHERE address IS NOT NULL AND (secret_code IS NULL OR secret_code = $1)
                AND (time_ends IS NULL OR time_ends > at($2))
            """, [.text(room.text), .time(now)])
        return try addresses(Set(banned.map { try $0.text(0) }), in: room.text, transaction)
    }
}

extension ModerationRecord {
    /// Records an action that concerns no member.
    /// - Returns: The id of the record.
    static func write(
        _ action: Action, _ subject: String, in room: String? = nil, by moderator: Moderator, at now: Timestamp,
        _ transaction: some SQLTransaction
    ) throws -> Int64 {
        let row = try transaction.row(
            """
            INSERT INTO moderation (action, secret_code, subject, actor, ip_address, time_done)
            VALUES ($1, $2, $3, $4, $5, at($6)) RETURNING moderation_id
            """,
            [
                .text(action.rawValue), .optional(room), .text(subject), .text(moderator.name),
                .optional(moderator.address), .time(now),
            ])
        return try row?.int(0) ?? 0
    }

    package static func page(
        before cursor: Int64?, limit: Int, _ transaction: some SQLTransaction
    ) throws -> Page<ModerationRecord> {
        let page = try transaction.page(
            """
            SELECT moderation_id, action, secret_code, subject, actor, ip_address, ms(time_done) FROM moderation
            WHERE moderation_id < $1 ORDER BY moderation_id DESC LIMIT $2
            """, [.int(cursor ?? Int64.max), .int(limit + 1)], limit: limit)
        let records = try page.rows.map { row in
            ModerationRecord(
                id: try row.int(0), action: try row.text(1), room: row.optionalText(2).map(SecretCode.init(stored:)),
                subject: row.optionalText(3), actor: try row.text(4), address: row.optionalText(5),
                at: try row.time(6))
        }
        return Page(items: records, next: page.next)
    }
}

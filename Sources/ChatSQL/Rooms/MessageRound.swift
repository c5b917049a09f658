import ChatDomain
import Synchronization

/// A round queues the pushes about a message's last change. It works in steps, as the fan-out does, and any relay performs
/// the next one: it locks the message's state.
///
/// ``DeviceUpdate`` decides what each device gets. A device with an earlier push that a gateway may still have waits for
/// another pass.
extension SQLMessageChanges {
    /// The time until the next pass, for devices that have to wait.
    private static var passInterval: Duration { .seconds(1) }
    /// The number of settled silent pushes of a message per device to keep. The others no longer name the message, so that
    /// the cost of a change does not grow with the number of earlier ones.
    private static var keptSilent: Int { 4 }

    /// Performs the next step of a round that is due.
    ///
    /// - Returns: False if no round is due.
    func performRound() async throws(ChatError) -> Bool {
        let now = database.now()
        // The usual case needs no write transaction.
        let isDue = try await database.read { transaction in
            try transaction.row(Self.claimSQL(lock: ""), Self.times(now)) != nil
        }
        guard isDue else { return false }
        let claimed = Mutex<MessageID?>(nil)
        do throws(ChatError) {
            return try await database.write(as: .job) { [self] transaction -> (Bool, QueuedUpdates?) in
                let sql = Self.claimSQL(lock: transaction.dialect.lockedOrSkipped("s"))
                guard let message = try transaction.row(sql, Self.times(now))?.int(0) else { return (false, nil) }
                claimed.withLock { $0 = message }
                return (true, try step(of: message, now: now, transaction))
            } committed: { [queue] _, queued in
                if let queued { queue.queued(queued) }
            }.0
        } catch {
            // The other messages do not wait for one whose step always fails.
            if error.code != .unavailable, let message = claimed.withLock({ $0 }) {
                _ = try await database.write(as: .upkeep) { transaction in
                    try transaction.run(
                        "UPDATE message_states SET push_due = $2 WHERE message_id = $1 AND push_due IS NOT NULL",
                        [.int(message), .int((now + MessageChangeLimits.spacing).milliseconds)])
                }
            }
            throw error
        }
    }

    /// Selects a message that is due, unless another relay works on it. While its fan-out has not ended, which uses the
    /// newest text, no round begins.
    static func claimSQL(lock: String) -> String {
        """
        SELECT s.message_id FROM message_states s
        WHERE s.push_due IS NOT NULL AND (s.push_due <= $1 OR s.push_due > $2) AND NOT EXISTS (
            SELECT 1 FROM messages m WHERE m.message_id = s.message_id AND m.fanout_after IS NOT NULL)
        ORDER BY s.push_due LIMIT 1 \(lock)
        """
    }

    /// The times of ``claimSQL(lock:)``. If a round is further away than any waits, the clock was set back.
    private static func times(_ now: Timestamp) -> [SQLValue] {
        [.int(now.milliseconds), .int((now + MessageChangeLimits.spacing * 2).milliseconds)]
    }

    /// The state is locked.
    private func step(
        of message: MessageID, now: Timestamp, _ transaction: Database.Transaction
    ) throws -> QueuedUpdates? {
        // No member may be removed between this read and the commit: the record of a removal covers only pushes with lower
        // ids.
        if transaction.dialect == .postgres {
            try transaction.pipeline(
                """
                SELECT pg_advisory_xact_lock_shared(hashtextextended(secret_code, \(SQLLock.fanout.rawValue)))
                FROM messages WHERE message_id = $1
                """, [.int(message)])
        }
        let row = try transaction.row(
            """
            SELECT s.push_after, s.push_again, s.removes, s.ring_after, \(MessageRecord.columns("m."))
            FROM message_states s JOIN messages m ON m.message_id = s.message_id
            WHERE s.message_id = $1
            """, [.int(message)])
        guard let row else {
            // Another program has deleted the message.
            try transaction.run("UPDATE message_states SET push_due = NULL WHERE message_id = $1", [.int(message)])
            return nil
        }
        var (after, again) = (try row.int(0), try row.optionalInt(1))
        let (removes, ringAfter) = (try row.bool(2), try row.int(3))
        let record = try MessageRecord(row, from: 4)
        if transaction.dialect == .postgres { try cancelReturned(of: message, now: now, transaction) }
        let members = try Member.next(of: record, after: after, transaction)
        let earlier = try EarlierPushes(of: message, members, transaction)
        var composer = UpdateComposer(alert: ChatAlert(of: record), message: message, settings: settings())
        var (pushes, surplus) = ([UpdatePush](), [Int64]())
        for member in members.reachable {
            let known = earlier.rows(of: member)
            // Negative for members that joined after the ring.
            if known.isEmpty, ringAfter < 0 { continue }
            let rows = known.map { $0.row(removes: removes, queue) }
            switch DeviceUpdate.next(rows, removes: removes, ringAfter: abs(ringAfter)) {
            case .nothing: break
            case .wait: again = min(again ?? .max, member.id - 1)
            case .send(let update):
                if let push = composer.push(update, for: member, after: known, ids) { pushes.append(push) }
            }
            surplus += known.filter { $0.isSilent && $0.state != .pending }.map(\.id).dropLast(Self.keptSilent)
            // The first push has the collapse id of the others.
            let rings = known.dropFirst().filter { !$0.isSilent && $0.state == .sent && !$0.isCurrent }
            surplus += rings.map(\.id).dropLast(Self.keptSilent)
        }
        if !surplus.isEmpty {
            try transaction.pipeline(
                """
                UPDATE push_queue SET chat_message = NULL
                WHERE \(transaction.dialect.isAny("message_id", of: "$1", "bigint")) AND payload = ''
                """, [.ints(surplus)])
        }
        let isBulk = pushes.isEmpty ? false : try Member.areMany(in: record.room, transaction)
        let queued = try UpdatePush.insert(
            pushes, of: message, isBulk: isBulk, now: now, composer.settings, transaction)
        var due: Timestamp? = now
        if let last = members.next {
            after = last
        } else if let waiting = again {
            (due, after, again) = (now + Self.passInterval, waiting, nil)
        } else {
            (due, after) = (nil, 0)
        }
        try transaction.pipeline(
            """
            UPDATE message_states SET push_due = $2, push_after = $3, push_again = $4, push_began = coalesce($5, push_began)
            WHERE message_id = $1
            """,
            [
                .int(message), .optional(due?.milliseconds), .int(after), .optional(again),
                .optional(queued == nil ? nil : now.milliseconds),
            ])
        return queued
    }
}

extension SQLMessageChanges {
    /// Cancels pushes without a text that a relay of PostgreSQL had leased during a change and has returned since. Their
    /// devices would wait for the time of a retry otherwise.
    private func cancelReturned(
        of message: MessageID, now: Timestamp, _ transaction: Database.Transaction
    ) throws {
        try transaction.useIndexes()
        let counts = try transaction.rows(
            """
            WITH cancelled AS (
                UPDATE push_queue_due SET state = 'cancelled', reason = $2, time_settled = at($3)
                WHERE chat_message = $1 AND state = 'pending' AND payload = '' AND lease_start IS NULL RETURNING app)
            SELECT app, count(*) FROM cancelled GROUP BY app
            """, [.int(message), .text(PushLifeCycle.messageReplaced), .time(now)])
        transaction.announcement.apps.formUnion(try counts.map { try $0.text(0) })
    }
}

/// A member of the message's room, other than its writer.
private struct Member {
    let id: Int64
    let token: String
    let app: String
    let device: Int64?
    let isInactive: Bool
    /// The address of a browser's subscription.
    let endpoint: String?

    struct Part {
        /// The members of this step that can be reached.
        let reachable: [Member]
        /// The last member of this step. `nil` if there is none after it.
        let next: Int64?
    }

    static func next(
        of record: MessageRecord, after: Int64, _ transaction: some SQLTransaction
    ) throws -> Part {
        let members = try transaction.rows(
            """
            SELECT u.member_id, u.device_token, u.app, d.device_id, d.time_deactivated IS NOT NULL,
                (SELECT b.endpoint FROM subscriptions b WHERE b.device_token = u.device_token), u.udid
            FROM active_users u LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
            WHERE u.secret_code = $1 AND u.member_id > $2 ORDER BY u.member_id LIMIT $3
            """, [.text(record.room.text), .int(after), .int(RoomSize.step)]
        ).map { row in
            Member(
                id: try row.int(0), token: try row.text(1), app: try row.text(2), device: try row.optionalInt(3),
                isInactive: try row.bool(4) || row.text(6) == record.message.sender.text,
                endpoint: row.optionalText(5))
        }
        return Part(
            reachable: members.filter { !$0.isInactive && $0.token != "0" },
            next: members.count == RoomSize.step ? members.last?.id : nil)
    }

    /// Whether the room is so large that its pushes go to the bulk lane, as those of the fan-out.
    static func areMany(in room: SecretCode, _ transaction: some SQLTransaction) throws -> Bool {
        try transaction.row(
            "SELECT 1 FROM active_users WHERE secret_code = $1 ORDER BY member_id LIMIT 1 OFFSET $2",
            [.text(room.text), .int(PushLifeCycle.bulkFrom + 1)]) != nil
    }
}

/// The message's pushes that devices had before.
private struct EarlierPushes {
    struct Push {
        let id: Int64
        let state: PushState
        let reason: String?
        let isSilent: Bool
        let isCurrent: Bool
        let collapseID: String?
        /// Whether a relay of PostgreSQL that has ended may have sent the push.
        let isInDoubt: Bool

        /// The state without pushes that an operator or a removal has cancelled: their ring is not made up for. That of a
        /// push that has expired is.
        private var lostState: PushState {
            switch state {
            case .expired: .cancelled
            case .cancelled where reason != PushLifeCycle.messageReplaced && reason != PushLifeCycle.messageDeleted:
                .failed
            case .cancelled, .pending, .sent, .failed: state
            }
        }

        func row(removes: Bool, _ queue: MessageQueue) -> DeviceUpdate.Row {
            // The relay may have been killed before it recorded the outcome. The device then shows the push.
            let mayBeShown = lostState == .cancelled && state == .cancelled && (isInDoubt || queue.isInDoubt(id))
            // The fan-out of a message that was cleared or resolved before still queues its text.
            let isNewest = isCurrent && (isSilent || !removes)
            // A pending push without a text is leased by a relay, or it will be cancelled by its next lease.
            return DeviceUpdate.Row(
                id: id, state: removes && mayBeShown ? .sent : lostState, isSilent: isSilent, isCurrent: isNewest,
                isHeldByGateway: !isNewest && (state == .pending || state == .cancelled && queue.isInFlight(id)))
        }
    }

    private var ofDevices: [Int64: [Push]] = [:]
    private var ofMembers: [Int64: [Push]] = [:]

    init(of message: MessageID, _ members: Member.Part, _ transaction: some SQLTransaction) throws {
        let dialect = transaction.dialect
        try transaction.useIndexes()
        let isOfDevice = dialect.isAny("device", of: "$2", "bigint")
        let isOfMember = dialect.isAny("member", of: "$2", "bigint")
        for (condition, ids) in [
            (isOfDevice, members.reachable.compactMap(\.device)),
            // Also those of members whose device has registered since.
            ("device IS NULL AND \(isOfMember)", members.reachable.map(\.id)),
        ] where !ids.isEmpty {
            let rows = try transaction.rows(
                """
                SELECT message_id, state, silent, payload <> '', coalesce(collapse_id, apns_id), device, member, reason,
                    \(dialect == .postgres ? "in_doubt" : "false")
                FROM push_queue WHERE chat_message = $1 AND \(condition) ORDER BY message_id
                """, [.int(message), .ints(ids)])
            for row in rows {
                guard let state = PushState(rawValue: try row.text(1)) else { continue }
                let push = Push(
                    id: try row.int(0), state: state, reason: row.optionalText(7), isSilent: try row.bool(2),
                    isCurrent: try row.bool(3), collapseID: row.optionalText(4), isInDoubt: try row.bool(8))
                if let device = try row.optionalInt(5) {
                    ofDevices[device, default: []].append(push)
                } else if let member = try row.optionalInt(6) {
                    ofMembers[member, default: []].append(push)
                }
            }
        }
    }

    /// The pushes of a member's device, the oldest first.
    func rows(of member: Member) -> [Push] {
        let earlier = ofMembers[member.id] ?? []
        guard let device = member.device.flatMap({ ofDevices[$0] }) else { return earlier }
        return earlier.isEmpty ? device : (earlier + device).sorted { $0.id < $1.id }
    }
}

/// Composes the pushes about a change, once for all devices for which they are the same.
private struct UpdateComposer {
    private struct Kind: Hashable {
        let app: String
        let update: AlertUpdate
        let endpoint: String?
    }

    let alert: ChatAlert
    let message: MessageID
    let settings: StoreSettings
    private var composed: [Kind: PushUpdate?] = [:]

    init(alert: ChatAlert, message: MessageID, settings: StoreSettings) {
        self.alert = alert
        self.message = message
        self.settings = settings
    }

    /// - Returns: `nil` if the device gets no push, or if the app's payload cannot be made.
    mutating func push(
        _ update: AlertUpdate, for member: Member, after earlier: [EarlierPushes.Push], _ ids: APNSIDs
    ) -> UpdatePush? {
        let app = settings.current(member.app)
        let kind = Kind(app: member.app, update: update, endpoint: member.endpoint)
        let known = member.endpoint == nil ? composed[kind] : nil
        let made = known ?? (try? settings.format(app).update(update, of: alert, endpoint: member.endpoint))
        if member.endpoint == nil { composed[kind] = made }
        guard let made else { return nil }
        let collapseID: String? =
            switch made.collapse {
            case .none: nil
            case .message: String(message)
            case .firstPush: earlier.first.map { $0.collapseID ?? ids.id(of: $0.id) }
            }
        return UpdatePush(
            token: member.token, app: app, device: member.device, member: member.id, update: made,
            isSilent: update != .ring, collapseID: collapseID)
    }
}

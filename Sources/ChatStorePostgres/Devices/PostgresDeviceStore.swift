package import ChatDomain
import ChatSQL

/// The registered devices, in PostgreSQL.
package struct PostgresDeviceStore: DeviceStore {
    private let database: PostgresDatabase
    private let outcomes: OutcomeCounter
    private let settings: @Sendable () -> StoreSettings
    private let ids: APNSIDs
    private let registrations: GroupCommit<Registration, DeviceRegistration>

    init(
        database: PostgresDatabase, outcomes: OutcomeCounter, settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.outcomes = outcomes
        self.settings = settings
        ids = APNSIDs(key: database.idKey)
        registrations = GroupCommit(database: database) { requests, transaction in
            try Registration.write(requests, transaction)
        }
    }

    // MARK: - Registration

    package func register(_ request: RegistrationRequest) async throws(ChatError) -> DeviceRegistration {
        let registration = Registration(request, keepsUsage: settings().keepsUsage, now: database.now())
        let known = try await database.read { transaction in
            try KnownDevice.all([registration.name], "", transaction)[registration.name]
        }
        if let known, known.isUnchanged(by: registration.edit, at: registration.now) { return .unchanged }
        return try await registrations(registration)
    }

    /// Creates the devices' rows or updates their registration times. Clears earlier reports of the push service. Call
    /// it near the end of a transaction, as ``DeviceUsage/saw(_:_:)``.
    /// - Parameter keepsUsage: Whether to store the details that the apps have sent.
    static func setRegistered(
        _ devices: [SeenDevice], keepsUsage: Bool, _ transaction: PostgresTransaction
    ) throws {
        let devices = SeenDevice.distinct(devices)
        guard !devices.isEmpty else { return }
        let rows = try transaction.rows(
            """
            INSERT INTO devices AS d (app, device_token, time_created, time_registered)
            SELECT w.app, w.token, at(w.time), at(w.time)
            FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS w (app, token, time, number)
            ORDER BY w.number
            ON CONFLICT (device_token, app) DO UPDATE SET time_registered = excluded.time_registered,
                time_deactivated = NULL, deactivated_reason = NULL, refusals = 0
            RETURNING \(DeviceUsage.columns)
            """,
            [
                .texts(devices.map(\.app)), .texts(devices.map(\.token)), .ints(devices.map(\.time.milliseconds)),
            ])
        if keepsUsage { try DeviceUsage.saw(devices, rows, transaction) }
    }

    /// - Parameter client: The details that the app has sent. `nil` if they are not to be stored.
    static func setRegistered(
        _ token: String, app: AppName, now: Timestamp, says client: ClientInfo?, _ transaction: PostgresTransaction
    ) throws {
        let device = SeenDevice(token: token, app: app.text, client: client ?? ClientInfo(), time: now)
        try setRegistered([device], keepsUsage: client != nil, transaction)
    }

    /// Cancels pushes of notifications and of other programs immediately. Chat pushes are cancelled when they are
    /// leased, because the device no longer exists then. No index leads from a device to chat pushes: it would make
    /// every message more expensive.
    package func unregister(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Bool {
        try await unregister(token, app: app) { _ in true }
    }

    package func unregister(_ browser: Subscription) async throws(ChatError) -> Bool {
        try await unregister(browser.address, app: .web) { transaction in
            try transaction.isKnown(browser)
        }
    }

    /// - Parameter isAdmitted: Returns, in the same transaction, whether the device may be deleted.
    private func unregister(
        _ token: DeviceToken, app: AppName?, if isAdmitted: @escaping @Sendable (PostgresTransaction) throws -> Bool
    ) async throws(ChatError) -> Bool {
        let cancelled: [FinalStateCount]? = try await database.write { [database] transaction in
            guard try isAdmitted(transaction) else { return nil }
            guard let device = try Self.find(token, app: app, "FOR UPDATE", transaction) else { return nil }
            let rows = try transaction.rows(
                Self.cancelSQL,
                [.text(PushLifeCycle.unregistered), .time(database.now()), .int(device.id)])
            // A device gets a notification only once, so each of these notifications has exactly one push less.
            for notification in try rows.compactMap({ try $0.optionalInt(1) }).sorted() {
                transaction.pipeline(
                    "UPDATE notification_counts SET cancelled = cancelled + 1 WHERE notification_id = $1::bigint",
                    [.int(notification)])
            }
            transaction.pipeline(
                """
                UPDATE active_users SET device_token = '0'
                WHERE device_token = $1::text AND app = $2::text AND device_token <> '0'
                """, [.text(token.description), .text(device.app)])
            transaction.pipeline("DELETE FROM devices WHERE device_id = $1::bigint", [.int(device.id)])
            return try rows.map {
                FinalStateCount(app: AppName(try $0.text(0)), state: .cancelled, reason: PushLifeCycle.unregistered)
            }
        }
        guard let cancelled else { return false }
        outcomes.add(cancelled)
        return true
    }

    static let cancelSQL = """
        UPDATE push_queue_due SET state = 'cancelled', reason = $1::text, time_settled = at($2::bigint)
        WHERE device = $3::bigint AND chat_message IS NULL AND state = 'pending' RETURNING app, notification
        """

    package func edit(
        _ token: DeviceToken, app: AppName?, _ edit: DeviceEdit
    ) async throws(ChatError) -> Device {
        try await database.write(isRepeatable: true) { transaction in
            let device = try Self.require(token, app: app, "FOR NO KEY UPDATE", transaction)
            let name = SeenDevice.Name(token: token.description, app: device.app)
            if let known = try KnownDevice.all([name], "", transaction)[name] {
                KnownDevice.write([(known, edit)], transaction)
            }
            return try Self.load(device.id, transaction)
        }
    }

    package func device(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Device {
        try await database.read { transaction in
            try Self.load(Self.require(token, app: app, "", transaction).id, transaction)
        }
    }

    // MARK: - Finding a device

    /// The maximum number of apps to name in the error that asks for an app.
    private static let mostNamed: Int64 = 10

    /// Returns `nil` if the device is not registered.
    /// - Throws: ``ChatError/Code/ambiguous``.
    private static func find(
        _ token: DeviceToken, app: AppName?, _ lock: String, _ transaction: PostgresTransaction
    ) throws -> (id: Int64, app: String)? {
        let rows = try transaction.rows(
            """
            SELECT device_id, app FROM devices WHERE device_token = $1::text AND ($2::text IS NULL OR app = $2::text)
            ORDER BY app LIMIT $3::bigint \(lock)
            """, [.text(token.description), .optional(app?.text), .int(mostNamed)])
        guard rows.count < 2 else {
            let apps = try rows.map { try $0.text(1) }.joined(separator: ", ")
            throw ChatError(
                .ambiguous, "token: belongs to several apps of this relay (\(apps)); name one with app", field: "app")
        }
        return try rows.first.map { (try $0.int(0), try $0.text(1)) }
    }

    private static func require(
        _ token: DeviceToken, app: AppName?, _ lock: String, _ transaction: PostgresTransaction
    ) throws -> (id: Int64, app: String) {
        if let device = try find(token, app: app, lock, transaction) { return device }
        guard let app else { throw ChatError.notFound("device") }
        throw ChatError(.notFound, "There is no such device of the app \(app)", field: "app")
    }

    private static func load(_ id: Int64, _ transaction: PostgresTransaction) throws -> Device {
        let row = try transaction.row(
            "SELECT \(Device.columns) FROM devices d WHERE d.device_id = $1::bigint", [.int(id)])
        guard let device = try row.flatMap(Device.init) else { throw ChatError.notFound("device") }
        return device
    }

    // MARK: - Lists

    package func devices(
        _ filter: DeviceFilter, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Device> {
        try await database.read { transaction in
            var parameters = PostgresParameters()
            let candidates = Self.candidates(filter, after: cursor ?? 0, &parameters)
            let values = parameters.values
            let rest = Self.rest(filter, &parameters)
            let page = try transaction.page(
                Device.columns, key: "d.device_id", of: candidates, values, where: rest,
                Array(parameters.values[values.count...]), limit: limit)
            return Page(items: try page.rows.compactMap(Device.init), next: page.next)
        }
    }

    /// Uses the most selective index.
    static func candidates(_ filter: DeviceFilter, after: Int64, _ parameters: inout PostgresParameters) -> String {
        let after = parameters.add(.int(after))
        if let user = filter.user {
            return "devices d WHERE d.user_reference = \(parameters.text(user.text)) AND d.device_id > \(after)"
        }
        if let tag = filter.tag {
            return """
                device_tags t JOIN devices d ON d.device_id = t.device_id
                WHERE t.tag = \(parameters.text(tag.text)) AND t.device_id > \(after) AND d.device_id > \(after)
                """
        }
        if filter.isActive == false {
            return "devices d WHERE d.time_deactivated IS NOT NULL AND d.device_id > \(after)"
        }
        if let app = filter.app {
            return "devices d WHERE d.app = \(parameters.text(app.text)) AND d.device_id > \(after)"
        }
        return "devices d WHERE d.device_id > \(after)"
    }

    /// The conditions to check row by row. `nil` if there are none.
    static func rest(_ filter: DeviceFilter, _ parameters: inout PostgresParameters) -> String? {
        var conditions: [String] = []
        if filter.user != nil, let tag = filter.tag {
            let tag = parameters.text(tag.text)
            conditions.append("EXISTS (SELECT FROM device_tags o WHERE o.tag = \(tag) AND o.device_id = d.device_id)")
        }
        let isNamed = filter.user != nil || filter.tag != nil
        if let app = filter.app, isNamed || filter.isActive == false {
            conditions.append("d.app = \(parameters.text(app.text))")
        }
        if let isActive = filter.isActive, isActive || isNamed {
            conditions.append("d.time_deactivated IS \(isActive ? "" : "NOT") NULL")
        }
        return conditions.isEmpty ? nil : conditions.joined(separator: " AND ")
    }

    /// Finds chat pushes through the room of the device's current member. Those of a room that it has left are not
    /// listed. A page examines ``messageWindow`` messages of the room.
    package func deliveries(
        to device: Int64, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read { [ids] transaction in
            let limit = min(limit, SQLPage.window)
            let values: [SQLValue] = [.int(device), .int(cursor ?? .max), .int(Int64(limit + 1))]
            let rows =
                try transaction.rows(Self.historySQL, values)
                + transaction.rows(Self.chatHistorySQL, values + [.int(Self.messageWindow)])
            let all = try rows.map { try Delivery($0, ids) }.sorted { $0.id > $1.id }
            let items = Array(all.prefix(limit))
            return Page(items: items, next: all.count > limit ? items.last?.id : nil)
        }
    }

    /// Smaller than the window of other pages, because each message is looked up in the partition of each day.
    private static let messageWindow: Int64 = 1000

    static let historySQL = """
        SELECT \(Delivery.columns) FROM push_queue q
        WHERE q.device = $1::bigint AND q.chat_message IS NULL AND q.message_id < $2::bigint
        ORDER BY q.message_id DESC LIMIT $3::bigint
        """

    /// Goes from the device's member to its room, then to the room's messages, the newest first, and from each message
    /// to its push for the device. Stops when there are enough pushes.
    ///
    /// Pushes are queued soon after their message. `bound` is the message at which a later page begins: the newest one
    /// with a push at the cursor or shortly after it. The query reads some pushes more than the page has, because the
    /// pushes of two messages may have been queued in the opposite order.
    static let chatHistorySQL = """
        WITH bound AS MATERIALIZED (
            SELECT coalesce(max(chat_message), \(Int64.max)) AS newest FROM (
                SELECT chat_message FROM push_queue WHERE message_id >= $2::bigint
                ORDER BY message_id LIMIT $4::bigint) b)
        SELECT * FROM (
            SELECT h.* FROM devices d
            JOIN active_users u ON u.device_token = d.device_token AND u.device_token <> '0' AND u.app = d.app
            CROSS JOIN LATERAL (
                SELECT m.message_id FROM messages m
                WHERE m.secret_code = u.secret_code AND m.message_id <= (SELECT newest FROM bound)
                ORDER BY m.message_id DESC LIMIT $4::bigint) m
            CROSS JOIN LATERAL (
                SELECT \(Delivery.columns) FROM push_queue q
                WHERE q.chat_message = m.message_id AND q.device = d.device_id AND q.message_id < $2::bigint) h
            WHERE d.device_id = $1::bigint LIMIT $3::bigint + 100) h
        ORDER BY h.message_id DESC LIMIT $3::bigint
        """
}

/// A device's registration.
private struct Registration: Sendable {
    let name: SeenDevice.Name
    let edit: DeviceEdit
    let keepsUsage: Bool
    let now: Timestamp

    init(_ request: RegistrationRequest, keepsUsage: Bool, now: Timestamp) {
        name = SeenDevice.Name(token: request.token.description, app: request.app.text)
        var edit = request.edit
        if !keepsUsage { edit.client = ClientInfo() }
        self.edit = edit
        self.keepsUsage = keepsUsage
        self.now = now
    }

    /// Processes several registrations of one device one after the other, as if each had come alone.
    static func write(
        _ requests: [Registration], _ transaction: PostgresTransaction
    ) throws -> [Result<DeviceRegistration, ChatError>] {
        var answers: [DeviceRegistration] = Array(repeating: .unchanged, count: requests.count)
        var rest = Array(requests.indices)
        while !rest.isEmpty {
            var names: Set<SeenDevice.Name> = []
            let round = rest.filter { names.insert(requests[$0].name).inserted }
            let done = Set(round)
            rest.removeAll(where: done.contains)
            for (index, answer) in zip(round, try writeRound(round.map { requests[$0] }, transaction)) {
                answers[index] = answer
            }
        }
        return answers.map { .success($0) }
    }

    /// Processes registrations of different devices.
    private static func writeRound(
        _ requests: [Registration], _ transaction: PostgresTransaction
    ) throws -> [DeviceRegistration] {
        // Other transactions may have registered them since the first read.
        var known = try KnownDevice.all(
            requests.map(\.name), "ORDER BY d.device_token, d.app FOR NO KEY UPDATE OF d", transaction)
        let answers = requests.map { request -> DeviceRegistration in
            guard let device = known[request.name] else { return .created }
            return device.isUnchanged(by: request.edit, at: request.now) ? .unchanged : .refreshed
        }
        let changing = zip(requests, answers).filter { $1 != .unchanged }.map(\.0)
        for keepsUsage in [true, false] {
            let devices = changing.filter { $0.keepsUsage == keepsUsage }.map {
                SeenDevice(token: $0.name.token, app: $0.name.app, client: $0.edit.client, time: $0.now)
            }
            try PostgresDeviceStore.setRegistered(devices, keepsUsage: keepsUsage, transaction)
        }
        let hasText = DeviceEdit()
        let new = changing.filter { request in
            var edit = request.edit
            edit.client = ClientInfo()
            return known[request.name] == nil && edit != hasText
        }
        if !new.isEmpty {
            known.merge(try KnownDevice.all(new.map(\.name), "", transaction)) { $1 }
        }
        KnownDevice.write(
            changing.compactMap { request in known[request.name].map { ($0, request.edit) } }, transaction)
        return answers
    }
}

extension KnownDevice {
    /// Reads the devices that are registered.
    /// - Parameter lock: The end of the statement, with the lock.
    fileprivate static func all(
        _ names: [SeenDevice.Name], _ lock: String, _ transaction: PostgresTransaction
    ) throws -> [SeenDevice.Name: KnownDevice] {
        let rows = try transaction.rows(
            """
            SELECT d.device_token, d.app, d.device_id, d.time_deactivated IS NULL, ms(d.time_registered),
                d.user_reference, d.client_info, d.server_info, d.app_version, d.os_version, d.device_model,
                \(Device.tags)
            FROM unnest($1::text[], $2::text[]) AS w (token, app)
            JOIN devices d ON d.device_token = w.token AND d.app = w.app \(lock)
            """, [.texts(names.map(\.token)), .texts(names.map(\.app))])
        return Dictionary(
            try rows.map { row in
                (
                    SeenDevice.Name(token: try row.text(0), app: try row.text(1)),
                    KnownDevice(
                        id: try row.int(2), isActive: try row.bool(3), registered: try row.time(4),
                        user: row.optionalText(5), clientInfo: row.optionalText(6), serverInfo: row.optionalText(7),
                        client: ClientInfo(
                            appVersion: row.optionalText(8), osVersion: row.optionalText(9),
                            deviceModel: row.optionalText(10)),
                        tags: Set(try row.texts(11)))
                )
            }
        ) { first, _ in first }
    }

    /// Writes the changes of edits, each of another device.
    fileprivate static func write(
        _ edits: [(device: KnownDevice, edit: DeviceEdit)], _ transaction: PostgresTransaction
    ) {
        let changes = edits.compactMap { edit in edit.device.changes(by: edit.edit).map { (edit.device.id, $0) } }
        guard !changes.isEmpty else { return }
        transaction.pipeline(
            """
            UPDATE devices d SET user_reference = w.user_reference, client_info = w.client_info,
                server_info = w.server_info
            FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[])
                AS w (id, user_reference, client_info, server_info)
            WHERE d.device_id = w.id
            """,
            [
                .ints(changes.map(\.0)), .optionalTexts(changes.map(\.1.user)),
                .optionalTexts(changes.map(\.1.clientInfo)), .optionalTexts(changes.map(\.1.serverInfo)),
            ])
        let old = changes.flatMap { id, change in change.oldTags.map { (id, $0) } }
        if !old.isEmpty {
            transaction.pipeline(
                """
                DELETE FROM device_tags t USING unnest($1::bigint[], $2::text[]) AS w (id, tag)
                WHERE t.tag = w.tag AND t.device_id = w.id
                """, [.ints(old.map(\.0)), .texts(old.map(\.1))])
        }
        let new = changes.flatMap { id, change in change.newTags.map { (id, $0) } }
        if !new.isEmpty {
            transaction.pipeline(
                """
                INSERT INTO device_tags (device_id, tag) SELECT * FROM unnest($1::bigint[], $2::text[])
                ON CONFLICT DO NOTHING
                """, [.ints(new.map(\.0)), .texts(new.map(\.1))])
        }
    }
}

extension Device {
    /// The columns of the table `devices` as `d`.
    fileprivate static let columns = """
        d.device_id, d.device_token, d.app, d.user_reference, d.client_info, d.server_info, ms(d.time_created),
        ms(d.time_registered), ms(d.time_deactivated), d.deactivated_reason, d.app_version, d.os_version,
        d.device_model, ms(d.time_seen), \(tags)
        """

    /// The tags as a JSON array.
    fileprivate static let tags = """
        array_to_json(ARRAY(SELECT l.tag FROM device_tags l WHERE l.device_id = d.device_id))::text
        """

    /// Reads a row with ``columns``. Returns `nil` for a token that another program wrote and that is invalid.
    fileprivate init?(_ row: PostgresRow) throws {
        guard let token = try? DeviceToken(parsing: row.text(1)) else { return nil }
        self.init(
            id: try row.int(0), token: token, app: AppName(try row.text(2)),
            user: row.optionalText(3).map(UserReference.init(stored:)), clientInfo: row.optionalText(4),
            serverInfo: row.optionalText(5),
            client: ClientInfo(
                appVersion: row.optionalText(10), osVersion: row.optionalText(11), deviceModel: row.optionalText(12)),
            tags: try row.texts(14).map(Tag.init(stored:)).sorted(), createdAt: try row.time(6),
            registeredAt: try row.time(7), seenAt: try row.optionalTime(13), deactivatedAt: try row.optionalTime(8),
            deactivatedReason: row.optionalText(9))
    }
}

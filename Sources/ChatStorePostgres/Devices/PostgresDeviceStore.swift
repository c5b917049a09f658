package import ChatDomain
import ChatSQL

/// The registered devices, in PostgreSQL.
package struct PostgresDeviceStore: SQLDeviceStore {
    package let database: PostgresDatabase
    package let outcomes: OutcomeCounter
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
            try transaction.knownDevices([registration.name])[registration.name]
        }
        if let known, known.isUnchanged(by: registration.edit, at: registration.now) { return .unchanged }
        return try await registrations(registration)
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
                + transaction.rows(
                    Self.chatHistorySQL, values + [.int(Self.messageWindow), .int(Delivery.changedWindow)])
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
    /// with a push at the cursor or shortly after it. Pushes about changes of earlier messages do not count. Those of the
    /// last changed messages are found through the changes of the room. The query reads some pushes more than the page has,
    /// because the pushes of two messages may have been queued in the opposite order.
    static let chatHistorySQL = """
        WITH bound AS MATERIALIZED (
            SELECT coalesce(max(chat_message), \(Int64.max)) AS newest FROM (
                SELECT CASE WHEN NOT \(Delivery.isOfChange) THEN q.chat_message END AS chat_message FROM push_queue q
                WHERE q.message_id >= $2::bigint
                ORDER BY q.message_id LIMIT $4::bigint) b)
        SELECT * FROM (
            SELECT h.* FROM devices d
            JOIN active_users u ON u.device_token = d.device_token AND u.device_token <> '0' AND u.app = d.app
            CROSS JOIN LATERAL (
                SELECT p.* FROM (
                    SELECT m.message_id AS id FROM messages m
                    WHERE m.secret_code = u.secret_code AND m.message_id <= (SELECT newest FROM bound)
                    ORDER BY m.message_id DESC LIMIT $4::bigint) m
                CROSS JOIN LATERAL (
                    SELECT \(Delivery.columns) FROM push_queue q
                    WHERE q.chat_message = m.id AND q.device = d.device_id AND q.message_id < $2::bigint) p
                ORDER BY m.id DESC LIMIT $3::bigint + 100) h
            WHERE d.device_id = $1::bigint
            UNION
            SELECT p.* FROM devices d
            JOIN active_users u ON u.device_token = d.device_token AND u.device_token <> '0' AND u.app = d.app
            CROSS JOIN LATERAL (
                SELECT s.message_id AS id FROM message_states s
                WHERE s.secret_code = u.secret_code AND s.change_id IS NOT NULL AND s.change <> 'deleted'
                ORDER BY s.change_id DESC LIMIT $5::bigint) c
            CROSS JOIN LATERAL (
                SELECT \(Delivery.columns) FROM push_queue q
                WHERE q.chat_message = c.id AND q.device = d.device_id AND q.message_id < $2::bigint
                ORDER BY q.message_id DESC LIMIT $3::bigint) p
            WHERE d.device_id = $1::bigint) h
        ORDER BY h.message_id DESC LIMIT $3::bigint
        """
}

/// A device's registration.
private struct Registration: Sendable {
    let token: DeviceToken
    let name: DeviceName
    let edit: DeviceEdit
    let keepsUsage: Bool
    let now: Timestamp

    init(_ request: RegistrationRequest, keepsUsage: Bool, now: Timestamp) {
        token = request.token
        name = DeviceName(token: request.token.description, app: request.app.text)
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
        var newForms = try mergeForms(of: requests, transaction)
        var answers: [DeviceRegistration] = Array(repeating: .unchanged, count: requests.count)
        var rest = Array(requests.indices)
        while !rest.isEmpty {
            var names: Set<DeviceName> = []
            let round = rest.filter { names.insert(requests[$0].name).inserted }
            let done = Set(round)
            rest.removeAll(where: done.contains)
            for (index, answer) in zip(round, try writeRound(round.map { requests[$0] }, newForms, transaction)) {
                answers[index] = answer
            }
            newForms = []
        }
        return answers.map { .success($0) }
    }

    /// Makes one device of those that are known by the other form of their address.
    /// - Returns: The devices that were known by the other form.
    private static func mergeForms(
        of requests: [Registration], _ transaction: PostgresTransaction
    ) throws -> Set<DeviceName> {
        let devices = requests.map { (token: $0.token, app: AppName($0.name.app)) }
        let names = try transaction.devicesWithOtherForm(devices)
        transaction.lock(names.map { SQLLock.device(of: $0.token) })
        for name in names.sorted() { try transaction.mergeForms(of: name) }
        return names
    }

    /// Processes registrations of different devices.
    /// - Parameter newForms: Devices whose address has just changed.
    private static func writeRound(
        _ requests: [Registration], _ newForms: Set<DeviceName>, _ transaction: PostgresTransaction
    ) throws -> [DeviceRegistration] {
        // Other transactions may have registered them since the first read.
        var known = try transaction.knownDevices(requests.map(\.name), transaction.dialect.locked("d"))
        let answers = requests.map { request -> DeviceRegistration in
            guard let device = known[request.name] else { return .created }
            return !newForms.contains(request.name) && device.isUnchanged(by: request.edit, at: request.now)
                ? .unchanged : .refreshed
        }
        let changing = zip(requests, answers).filter { $1 != .unchanged }.map(\.0)
        for keepsUsage in [true, false] {
            let devices = changing.filter { $0.keepsUsage == keepsUsage }.map {
                SeenDevice(token: $0.name.token, app: $0.name.app, client: $0.edit.client, time: $0.now)
            }
            try DeviceUsage.setRegistered(devices, keepsUsage: keepsUsage, transaction)
        }
        let hasText = DeviceEdit()
        let new = changing.filter { request in
            var edit = request.edit
            edit.client = ClientInfo()
            return known[request.name] == nil && edit != hasText
        }
        if !new.isEmpty {
            known.merge(try transaction.knownDevices(new.map(\.name))) { $1 }
        }
        for request in changing {
            if let device = known[request.name] { try transaction.apply(request.edit, to: device) }
        }
        return answers
    }
}

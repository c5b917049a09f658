import CSimulation
import ChatDispatch
import ChatDomain
import GRDB
import Logging
import ServiceLifecycle

@testable import ChatStore

/// One run of the relay, from its start to its end or its death: the real stores, upkeep and dispatchers.
///
/// This and the other classes of the simulation are sendable without locks, because there is one thread.
final class Life: @unchecked Sendable {
    let world: World
    let number: Int
    let stores: SQLiteStores
    private(set) var queue: WatchedQueue?
    private var services: ServiceGroup?
    private var openCalls = 0
    private(set) var isStopping = false
    /// Whether the relay serves calls.
    var isReady: Bool { services != nil }

    /// Opens the file, as it is after the previous life.
    init(_ world: World, number: Int) throws {
        (self.world, self.number) = (world, number)
        let format = world.service.format
        stores = try SQLiteStores(
            file: DatabaseFile(path: world.path), settings: { StoreSettings(format: { _ in format }) },
            logger: Self.logger(world))
    }

    static func logger(_ world: World) -> Logger {
        Logger(label: "simulation") { _ in WorldLog(world: world) }
    }

    /// Runs the relay until it stops.
    func run() {
        task { life in
            let world = life.world
            do {
                let gateway = try world.service.gateway(for: life)
                let backlog = try await life.stores.upkeep.prepare()
                try await life.check(backlog)
                let queue = WatchedQueue(life)
                life.queue = queue
                let dispatcher = Dispatcher(
                    app: .default, queue: queue, gateway: WatchedGateway(gateway, queue, world),
                    startsInDoubt: !backlog.apps.isEmpty, logger: Self.logger(world))
                let clock = MessageClock(changes: life.stores.changes, logger: Self.logger(world))
                let clocks = world.parts.contains(where: \.needsMessageClock) ? [clock] : []
                let services = ServiceGroup(
                    services: [dispatcher] + clocks + world.service.readers(for: life), logger: Self.logger(world))
                life.services = services
                async let _ = life.stores.upkeep.watch()
                world.log("life \(life.number) is ready")
                try await services.run()
            } catch {
                world.log("life \(life.number) ends: \(error)")
            }
            life.services = nil
            await life.finishCalls()
            try? life.stores.close()
            simulation_world.run { world.stopped(life) }
        }
    }

    /// Checks that the relay knows of the pushes that an earlier process left. The sweep of the whole queue would find
    /// them, too, but in a large file much later.
    private func check(_ backlog: StoreBacklog) async throws {
        let count = try await stores.read { db in
            let sql = "SELECT count(*) FROM push_queue WHERE state = 'pending' AND not_before IS NULL"
            return try Int.fetchOne(db, sql: sql) ?? 0
        }
        if count > 0, backlog.apps.isEmpty {
            world.violate(.theBacklogIsFound, "the start finds none of \(count) due pushes")
        }
    }

    /// Stops the relay as a supervisor does.
    func stop() {
        guard let services else { return }
        isStopping = true
        task { _ in await services.triggerGracefulShutdown() }
    }

    /// Performs a call. If the relay dies first, `completion` never runs.
    func call<Value>(
        _ body: @escaping (SQLiteStores) async throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        nonisolated(unsafe) let body = body
        nonisolated(unsafe) let completion = completion
        openCalls += 1
        task { life in
            defer { life.openCalls -= 1 }
            do {
                let value = try await body(life.stores)
                completion(.success(value))
            } catch {
                completion(.failure(error))
            }
        }
    }

    /// Waits for the calls that have begun, as the HTTP server does before the store is closed.
    private func finishCalls() async {
        while openCalls > 0 { try? await Task.sleep(for: .milliseconds(10)) }
    }

    private func task(_ body: @escaping @Sendable (Life) async -> Void) { Task.detached { await body(self) } }
}

/// The relay's log. An error without a fault is a finding.
private struct WorldLog: LogHandler {
    let world: World
    var metadata: Logger.Metadata = [:]
    var metadataProvider: Logger.MetadataProvider?
    var logLevel = Logger.Level.notice

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let all = metadata.merging(event.metadata ?? [:]) { $1 }
        let pairs = all.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " ")
        world.log("\(event.level): \(event.message) \(pairs)")
        if event.level >= .error, !world.expectsErrors {
            world.violate(.noErrorWithoutAFault, "\(event.message) \(pairs)")
        }
    }
}

/// The rows at the end of a run.
struct StoredRows: Sendable {
    struct Message: Sendable {
        let id: Int64
        let room: String
        let text: String
    }

    struct Push: Sendable {
        let id: Int64
        let message: Int64?
        let notification: Int64?
        let token: String
        let state: String
        let reason: String?
        /// Whether the payload was removed.
        let isEmpty: Bool
        /// The text of a program's message (``Marker``). `nil` if the payload has none.
        let marker: Marker?
    }

    let messages: [Message]
    let pushes: [Push]
    /// Whether each device is active, by token.
    let activeDevices: [String: Bool]
    /// The counts of each notification, by state. `queued` counts all.
    let counts: [Int64: [String: Int64]]
    let integrity: [String]

    /// Returns whether every push has ended, and none is still to be queued.
    static func areSettled(_ db: Database) throws -> Bool {
        let waiting = """
            EXISTS (SELECT 1 FROM push_queue WHERE state = 'pending')
                OR EXISTS (SELECT 1 FROM messages WHERE fanout_after IS NOT NULL)
                OR EXISTS (SELECT 1 FROM notifications WHERE work IS NOT NULL)
                OR EXISTS (SELECT 1 FROM message_states WHERE push_due IS NOT NULL)
                OR EXISTS (SELECT 1 FROM scheduled_messages)
            """
        return try Bool.fetchOne(db, sql: "SELECT NOT (\(waiting))") ?? false
    }

    init(_ db: Database) throws {
        messages = try Row.fetchAll(db, sql: "SELECT message_id, secret_code, text FROM messages ORDER BY message_id")
            .map { Message(id: $0[0], room: $0[1], text: $0[2]) }
        let columns = """
            message_id, chat_message, notification, device_token, state, reason, payload = '',
            iif(instr(payload, '\(Marker.prefix)'), payload, NULL)
            """
        pushes = try Row.fetchAll(db, sql: "SELECT \(columns) FROM push_queue ORDER BY message_id").map {
            Push(
                id: $0[0], message: $0[1], notification: $0[2], token: $0[3], state: $0[4], reason: $0[5],
                isEmpty: $0[6] ?? false, marker: ($0[7] as String?).flatMap { Marker(in: $0.utf8) })
        }
        let devices = try Row.fetchAll(db, sql: "SELECT device_token, time_deactivated IS NULL FROM devices")
        activeDevices = Dictionary(uniqueKeysWithValues: devices.map { ($0[0], $0[1]) })
        let states = ["queued", "sent", "failed", "expired", "cancelled"]
        var counts: [Int64: [String: Int64]] = [:]
        for row in try Row.fetchAll(db, sql: "SELECT * FROM notification_counts") {
            counts[row["notification_id"]] = Dictionary(uniqueKeysWithValues: states.map { ($0, row[$0]) })
                .filter { $0.value > 0 }
        }
        self.counts = counts
        integrity = try String.fetchAll(db, sql: "PRAGMA integrity_check")
    }
}

extension SQLiteStores {
    /// Reads for the world.
    func read<Value: Sendable>(_ body: @escaping @Sendable (Database) throws -> Value) async throws(ChatError) -> Value
    {
        do { return try await database.pool.read(body) } catch { throw ChatError(.unavailable, "\(error)") }
    }

    /// Returns the number of a member's stay. `nil` if the member is in no room.
    func number(of member: MemberID) async throws(ChatError) -> Int64? {
        try await read { db in
            try Int64.fetchOne(db, sql: "SELECT member_id FROM active_users WHERE udid = ?", arguments: [member.text])
        }
    }
}

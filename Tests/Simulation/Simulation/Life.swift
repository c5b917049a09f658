import CSimulation
import ChatDispatch
import ChatDomain
import ChatStore
import GRDB
import Logging

/// One run of the relay, from its start to its end or its death: the real stores, upkeep and dispatchers.
///
/// This and the other classes of the simulation are sendable without locks, because there is one thread.
final class Life: @unchecked Sendable {
    let world: World
    let number: Int
    let stores: SQLiteStores
    private(set) var isReady = false
    private(set) var isOver = false

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

    /// Runs the relay. It ends the life if it cannot start.
    func run() {
        task { life in
            do {
                let gateway = try life.world.service.gateway(for: life)
                let backlog = try await life.stores.upkeep.prepare()
                for part in life.world.parts { try await part.prepare(life) }
                life.isReady = true
                life.world.log("life \(life.number) is ready")
                let dispatcher = Dispatcher(
                    app: .default, queue: WatchedQueue(life), gateway: WatchedGateway(gateway, life.world.ledger),
                    startsInDoubt: !backlog.apps.isEmpty, logger: Self.logger(life.world))
                async let watch: Void = life.stores.upkeep.watch()
                try await dispatcher.run()
                await watch
            } catch {
                life.world.log("life \(life.number) ends: \(error)")
                simulation_world.run { if !life.isOver { life.world.crash(powerCut: false) } }
            }
        }
    }

    /// Performs a call. If the relay dies first, `completion` never runs.
    func call<Value>(
        _ body: @escaping (SQLiteStores) async throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        nonisolated(unsafe) let body = body
        nonisolated(unsafe) let completion = completion
        task { life in
            do {
                let value = try await body(life.stores)
                completion(.success(value))
            } catch {
                completion(.failure(error))
            }
        }
    }

    private func task(_ body: @escaping @Sendable (Life) async -> Void) { Task.detached { await body(self) } }

    func die() { isOver = true }
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
        if event.level >= .error, !world.hadFault {
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
        let token: String
        let state: String
        let reason: String?
    }

    let messages: [Message]
    let pushes: [Push]
    let integrity: [String]
    /// Whether every push has ended, and no message waits for its pushes.
    let isSettled: Bool

    init(_ db: Database) throws {
        messages = try Row.fetchAll(db, sql: "SELECT message_id, secret_code, text FROM messages ORDER BY message_id")
            .map { Message(id: $0[0], room: $0[1], text: $0[2]) }
        pushes = try Row.fetchAll(
            db,
            sql: "SELECT message_id, chat_message, device_token, state, reason FROM push_queue ORDER BY message_id"
        ).map { Push(id: $0[0], message: $0[1], token: $0[2], state: $0[3], reason: $0[4]) }
        let waiting = "SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL"
        isSettled = try pushes.allSatisfy { $0.state != "pending" } && Int.fetchOne(db, sql: waiting) == 0
        integrity = try String.fetchAll(db, sql: "PRAGMA integrity_check")
    }
}

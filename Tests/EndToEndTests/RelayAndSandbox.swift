import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import TestSupport

/// A sandbox process of the built executable, and its control API.
struct SandboxProcess: Sendable {
    struct Notification: Sendable, Decodable {
        let id: Int
        let token: String
        let answer: String
        let payload: String?
        let identifier: Int?
        let topic: String?
        let connection: Int?
        let `protocol`: String
        let apnsID: String?
        let headers: [String: String]

        enum CodingKeys: String, CodingKey {
            case id, token, answer, payload, identifier, topic, connection, `protocol`, headers
            case apnsID = "apns_id"
        }

        /// Identifies the push. No two pushes have the same token and payload.
        var content: String { "\(token) \(payload ?? "")" }

        /// The text that the device shows.
        var alert: String? {
            let object = payload.flatMap { try? JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any] }
            return (object?["aps"] as? [String: Any])?["alert"] as? String
        }
    }

    let process: Running
    let folder: Folder
    private let ports: SandboxPorts

    /// - Parameter ports: The earlier ports of a sandbox that is restarted.
    static func start(
        _ folder: Folder, ports: SandboxPorts? = nil, _ more: [String] = []
    ) async throws -> SandboxProcess {
        let ports = try ports ?? SandboxPorts()
        let process = try Running(
            ["sandbox", "--directory", folder.file("sandbox").path, "--inbox-limit", "1000000"] + ports.flags + more,
            in: folder, name: "sandbox")
        try await process.listens(on: ports.all)
        return SandboxProcess(process: process, folder: folder, ports: ports)
    }

    var binary: Int { ports.binary.number }
    var feedback: Int { ports.feedback.number }
    var http2: Int { ports.http2.number }
    var channels: Int { ports.channels.number }
    var control: Int { ports.control.number }
    var webPush: Int { ports.webPush.number }
    var fcm: Int { ports.fcm.number }
    var base: String { "http://127.0.0.1:\(control)" }

    func notifications() async throws -> [Notification] {
        struct Page: Decodable {
            let notifications: [Notification]
            let next: Int
        }
        var all: [Notification] = []
        var since = 0
        while true {
            let body = try await HTTP.get("\(base)/notifications?since=\(since)&limit=1000")
            let page = try JSONDecoder().decode(Page.self, from: body)
            all += page.notifications
            if page.notifications.isEmpty { return all }
            since = page.next
        }
    }

    /// Returns how many notifications the gateway accepted for each token.
    func accepted() async throws -> [String: Int] {
        try await notifications().filter { $0.answer == "accepted" }
            .reduce(into: [:]) { $0[$1.token, default: 0] += 1 }
    }

    struct Stats: Decodable {
        struct Connections: Decodable {
            let open: Int
        }

        struct Binary: Decodable {
            let connections: Connections
        }

        struct Provider: Decodable {
            let connections: Connections
            let answers: [String: Int]
            let mostStreams: Int
            let streamsOverLimit: Int

            enum CodingKeys: String, CodingKey {
                case connections, answers
                case mostStreams = "most_streams"
                case streamsOverLimit = "streams_over_limit"
            }
        }

        let binary: Binary
        let http2: Provider
    }

    func stats() async throws -> Stats {
        try JSONDecoder().decode(Stats.self, from: await HTTP.get("\(base)/stats"))
    }

    /// A simulated browser.
    struct Browser: Sendable, Decodable {
        struct Subscription: Sendable, Codable {
            let endpoint: String
            let expirationTime: Int?
            let keys: [String: String]

            /// The subscription as a page sends it.
            var json: String {
                get throws { String(decoding: try JSONEncoder().encode(self), as: UTF8.self) }
            }
        }

        let id: Int
        let token: String
        let subscription: Subscription
    }

    /// - Parameter key: The public key of the only sender allowed. If `nil`, any sender may send.
    func makeBrowser(key: String? = nil) async throws -> Browser {
        let body = try JSONEncoder().encode(key.map { ["application_server_key": $0] } ?? [:])
        let (status, answer) = try await HTTP.post(
            "\(base)/browsers", body: body, headers: [("Content-Type", "application/json")])
        guard status == 201 else { throw Child.Failure(description: "POST /browsers: \(status) \(answer)") }
        return try JSONDecoder().decode(Browser.self, from: Data(answer.utf8))
    }

    /// Ends the browser's subscription: the sandbox responds with 410 from now on.
    func end(_ browser: Browser) async throws {
        var request = HTTPClientRequest(url: "\(base)/browsers/\(browser.id)")
        request.method = .DELETE
        let response = try await HTTP.client.execute(request, timeout: .seconds(60))
        _ = try await response.body.collect(upTo: 1 << 20)
        guard response.status == .ok else { throw Child.Failure(description: "DELETE /browsers: \(response.status)") }
    }

    /// Removes the app from a device.
    func removeApp(token: String) async throws {
        var request = HTTPClientRequest(url: "\(base)/devices/\(token)")
        request.method = .DELETE
        let response = try await HTTP.client.execute(request, timeout: .seconds(60))
        _ = try await response.body.collect(upTo: 1 << 20)
        guard response.status == .ok else { throw Child.Failure(description: "DELETE /devices: \(response.status)") }
    }

    /// Requests a fault, and expects the sandbox to accept it.
    func fault(_ fields: [String: any Sendable], protocol name: String = "binary") async throws {
        var fields = fields
        fields["protocol"] = name
        let body = try JSONSerialization.data(withJSONObject: fields)
        let (status, answer) = try await HTTP.post(
            "\(base)/faults", body: body, headers: [("Content-Type", "application/json")])
        guard (200..<300).contains(status) else {
            throw Child.Failure(description: "fault \(fields) refused: \(status) \(answer)")
        }
    }

    /// Removes all faults.
    func heal() async throws {
        var request = HTTPClientRequest(url: "\(base)/faults")
        request.method = .DELETE
        let response = try await HTTP.client.execute(request, timeout: .seconds(60))
        guard (200..<300).contains(response.status.code) else {
            throw Child.Failure(description: "DELETE /faults: \(response.status)")
        }
    }

    /// Returns the configuration that `--print-config` prints, with the ports of this sandbox.
    func relayConfiguration(gateway: String = "http2", _ more: String = "") async throws -> URL {
        let printed = try await tool(
            Running.executable.path,
            [
                "sandbox", "--print-config", "--directory", folder.file("sandbox").path, "--gateway", gateway,
            ] + ports.flags)
        let file = folder.file("relay.yaml")
        try (printed + more).write(to: file, atomically: true, encoding: .utf8)
        return file
    }
}

/// A relay process of the built executable.
struct RelayProcess: Sendable {
    let process: Running
    let store: any RelayStore
    private let reserved: ReservedPort
    /// The database file. With PostgreSQL, the path next to which the relay keeps its own files.
    var database: String { store.path }
    var port: Int { reserved.number }
    var isListening: Bool { get throws { try reserved.isListening } }

    /// Starts a relay and waits until it listens.
    /// - Parameter port: The earlier port of a relay that is restarted.
    static func start(
        _ folder: Folder, configuration: URL, port: ReservedPort? = nil, _ more: [String] = []
    ) async throws -> RelayProcess {
        let relay = try launch(
            folder, configuration: configuration, database: folder.file("pushchat.db").path, port: port, more)
        try await relay.listens()
        return relay
    }

    /// Starts a relay without waiting.
    static func launch(
        _ folder: Folder, configuration: URL, database: String, port: ReservedPort? = nil, _ more: [String] = []
    ) throws -> RelayProcess {
        let port = try port ?? ReservedPort()
        let store = try folder.store(at: database)
        let process = try Running(
            ["serve", "--config", configuration.path, "--port", "\(port.number)", "--database", database] + more,
            variables: store.variables, in: folder, name: "relay")
        return RelayProcess(process: process, store: store, reserved: port)
    }

    func listens() async throws { try await process.listens(on: [reserved]) }

    var api: String { "http://127.0.0.1:\(port)/api.php" }

    /// Runs a command of the executable over the relay's store, and returns its output without white space at the ends.
    func pushchat(_ arguments: [String]) async throws -> String {
        let command = store.command(arguments)
        return try await tool(command[0], Array(command.dropFirst())).trimmingCharacters(in: .whitespacesAndNewlines)
    }

    @discardableResult
    func call(_ fields: KeyValuePairs<String, String>, headers: [(String, String)] = []) async throws -> (Int, String) {
        let body = fields.map { "\($0.key)=\(HTTP.escaped($0.value))" }.joined(separator: "&")
        return try await HTTP.post(
            api, body: Data(body.utf8), headers: [("Content-Type", "application/x-www-form-urlencoded")] + headers)
    }

    /// Joins members with devices to one room.
    func join(_ numbers: ClosedRange<Int> = 1...2) async throws {
        for number in numbers {
            let (status, body) = try await call([
                "cmd": "join", "udid": Name.udid(number), "token": Name.token(number), "name": "n\(number)",
                "code": "c",
            ])
            guard status == 200 else { throw Child.Failure(description: "join \(number): \(status) \(body)") }
        }
    }

    /// Calls the admin API as the relay's own user.
    func admin(_ method: String, _ path: String, _ json: String? = nil, headers: [(String, String)] = []) async throws
        -> (Int, String)
    {
        var request = HTTPClientRequest(url: "http://127.0.0.1:\(port)\(path)")
        request.method = HTTPMethod(rawValue: method)
        for (name, value) in headers { request.headers.add(name: name, value: value) }
        if let json {
            request.headers.add(name: "Content-Type", value: "application/json")
            request.body = .bytes(ByteBuffer(string: json))
        }
        let response = try await HTTP.client.execute(request, timeout: .seconds(60))
        let answer = try await response.body.collect(upTo: 8 << 20)
        return (Int(response.status.code), String(buffer: answer))
    }

    /// Registers devices with the tokens of ``Name``, from 1, as another program does.
    func register(_ count: Int) throws { try store.register((1...count).map(Name.token), since: nil) }

    /// Queries the store as another program does.
    /// - Parameter arguments: The values for the statement's `?`.
    func query(_ sql: String, _ arguments: [String] = []) throws -> [StoredRow] { try store.query(sql, arguments) }

    func count(_ sql: String) throws -> Int {
        try query(sql)[0][0]
    }

    /// Queues a push to each token as another program does, in one transaction.
    func queue(_ tokens: [String]) throws {
        try queue(tokens.map { ("default", $0, #"{"aps":{"alert":"hi"}}"#) })
    }

    /// Queues pushes as another program does, in one transaction.
    func queue(_ pushes: [(app: String, token: String, payload: String)]) throws { try store.queue(pushes) }

    /// Returns the number of pushes in doubt, from the log: their connection ended without a response, so each may have
    /// arrived twice.
    /// - Parameter duplicates: The number that must be explained. The log is written in the background, so this waits
    ///   for it.
    func inDoubt(explaining duplicates: Int) async -> Int {
        try? await eventually("all of it is logged", within: .seconds(10)) { inDoubt >= duplicates }
        return inDoubt
    }

    private var inDoubt: Int {
        process.log().filter { $0.message == Self.repeating }
            .reduce(0) { $0 + (Int($1.fields["count"] ?? "1") ?? 1) }
    }

    /// Queries the store of a relay that has ended.
    func remains(_ sql: String) throws -> [StoredRow] { try store.remains(sql) }

    /// Returns the pushes that the gateway has accepted and the queue does not show as sent, after the relay has ended.
    /// Each of these may arrive once more, and no other. Identified by ``SandboxProcess/Notification/content``.
    func inFlight(at sandbox: SandboxProcess) async throws -> Set<String> {
        try await eventually("the gateway has read what was written") {
            let stats = try await sandbox.stats()
            return stats.binary.connections.open == 0 && stats.http2.connections.open == 0
        }
        let taken = Set(try await sandbox.notifications().filter { $0.answer == "accepted" }.map(\.content))
        return taken.intersection(try contents("q.state <> 'sent'"))
    }

    /// Returns the pushes in doubt, from the log of a relay that has ended. Each of these may have arrived twice while
    /// the relay ran. Identified by ``SandboxProcess/Notification/content``.
    func repeated() throws -> Set<String> {
        let ranges = process.log().filter { $0.message == Self.repeating }.compactMap { line in
            (line.fields["entries"] ?? line.fields["entry"])?.split(separator: "-").compactMap { Int($0) }
        }
        return try ranges.reduce(into: []) { repeated, range in
            guard let first = range.first, let last = range.last else { return }
            repeated.formUnion(try contents("q.message_id BETWEEN \(first) AND \(last)"))
        }
    }

    private static let repeating = "connection ended without a response, retrying"

    private func contents(_ condition: String) throws -> Set<String> {
        let rows = try remains(
            """
            SELECT q.device_token || ' ' || coalesce(n.payload, q.payload)
            FROM push_queue q LEFT JOIN notifications n ON n.notification_id = q.notification WHERE \(condition)
            """)
        return Set(rows.map { $0[0] as String })
    }

    /// Waits until every push is settled. Reports the unsettled pushes and the last log lines if that takes too long.
    func drained(within limit: Duration = .seconds(60)) async throws {
        do {
            try await eventually("the queue is empty", within: limit, every: .milliseconds(100)) {
                try count("SELECT count(*) FROM push_queue WHERE state = 'pending'") == 0
            }
        } catch let error as TimedOut {
            print(try await store.script("SELECT * FROM push_queue WHERE state = 'pending' LIMIT 5"))
            for line in process.log().suffix(30) {
                print(line.fields.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" })
            }
            throw error
        }
    }
}

/// Names of members and device tokens in tests.
enum Name {
    static func udid(_ number: Int) -> String { padded("\(number)", 40, "0") }
    static func token(_ number: Int) -> String { padded("\(number)", 64, "a") }

    private static func padded(_ text: String, _ width: Int, _ fill: String) -> String {
        String(repeating: fill, count: width - text.count) + text
    }
}

enum HTTP {
    static let client = HTTPClient.shared

    static func get(_ url: String) async throws -> Data {
        let response = try await client.execute(HTTPClientRequest(url: url), timeout: .seconds(60))
        return Data(try await response.body.collect(upTo: 64 << 20).readableBytesView)
    }

    static func post(_ url: String, body: Data, headers: [(String, String)] = []) async throws -> (Int, String) {
        var request = HTTPClientRequest(url: url)
        request.method = .POST
        for (name, value) in headers { request.headers.add(name: name, value: value) }
        request.body = .bytes(ByteBuffer(bytes: body))
        let response = try await client.execute(request, timeout: .seconds(60))
        let answer = try await response.body.collect(upTo: 1 << 20)
        return (Int(response.status.code), String(buffer: answer))
    }

    static func escaped(_ text: String) -> String {
        text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
    }
}

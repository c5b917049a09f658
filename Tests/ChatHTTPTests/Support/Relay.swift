import APNSGateway
import ChatDomain
import HTTPTypes
import Hummingbird
import HummingbirdTesting
import Logging
import NIOCore
import ServiceLifecycle
import Synchronization
import TestSupport
import Testing

@testable import ChatHTTP

/// Sample values that the tests share.
enum Sample {
    static let udid = "6a45eb0b5d3f4d5d9b5d8cf0f7d3a1b2c3d4e5f6"
    static let token = "740f4707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bb78ad"
    static var member: MemberID { get throws { try MemberID(parsing: udid) } }
    static var device: DeviceToken { get throws { try DeviceToken(parsing: token) } }
    static let message = "cmd=message&udid=\(udid)&text=Hello"
    static let leave = "cmd=leave&udid=\(udid)"
    static let time = Timestamp(seconds: 1_780_000_000)
    static let receipt: ScriptedStore.Answer<PostReceipt> = {
        PostReceipt(message: 7, time: Sample.time, isRepeat: false, queued: 2)
    }
}

/// The server under test and its parts.
struct Relay: ConfigurationInForce, RelayState {
    let store: ScriptedStore
    let log = LogRecorder()
    var settings = ChatHTTPSettings()
    var certificate: ServerCertificate?
    var checks: [ReadinessCheck] = []
    var clock: any Clock<Duration> = ContinuousClock()
    /// The wall clock.
    var now: TimeSource = { Sample.time }
    var apps: [AppStatus] = [AppStatus(app: .default, gateway: "http2", address: nil, topic: nil)]
    /// The formats of the apps' gateways. Other apps get the format of Apple's HTTP/2 gateway.
    var formats: [AppName: any PushFormat] = [:]
    var tokenApps: [TokenKind: AppName] = [:]
    var recentWarnings: [JSONValue] = []
    var sessions: (any SessionVerifier)?
    var browsers: (any SubscriptionReader)?
    /// The file that keeps a day of metrics.
    var history: String?

    init(_ store: ScriptedStore = ScriptedStore(), settings: ChatHTTPSettings = ChatHTTPSettings()) {
        self.store = store
        self.settings = settings
    }

    func server(port: Int = 0, onListening: @escaping @Sendable (Int) -> Void = { _ in }) -> ChatServer {
        ChatServer(
            ChatServerConfiguration(host: "127.0.0.1", port: port, certificate: certificate, history: history),
            ChatEnvironment(
                stores: store.stores, configuration: self, relay: self,
                build: RelayBuild(version: "1.2.3", commit: "abc1234"), clocks: Clocks(monotonic: clock, now: now),
                logger: log.logger),
            onListening: onListening)
    }

    func app(named appID: String?) throws(ChatError) -> AppName {
        switch appID {
        case nil: .default
        case "98Z3R5XU29.com.51work6.PushChat": AppName("second")
        case AppName.web.text: .web
        default: throw .invalid("appid", "names no app of this server")
        }
    }

    func app(like app: AppName, in environment: AppEnvironment) throws(ChatError) -> AppName {
        guard app == .default else { throw .invalid("environment", "names no app of this server") }
        return environment == .production ? AppName("second") : app
    }

    func format(of app: AppName) -> any PushFormat { formats[app] ?? APNSFormat(.http2, payloadLimit: 4096) }

    func check(webhook url: String) throws(ChatError) {
        guard url.hasPrefix("https://") else { throw .invalid("url", "must begin with https://") }
    }

    func readiness() async -> [ReadinessCheck] { checks }

    /// Sends one request without a socket.
    func send(
        _ method: HTTPRequest.Method = .post, _ path: String = "/api.php", headers: HTTPFields = [:],
        body: [UInt8]? = nil
    ) async throws -> TestResponse {
        try await requests { try await $0(method, path, headers, body) }
    }

    typealias Send = @Sendable (HTTPRequest.Method, String, HTTPFields, [UInt8]?) async throws -> TestResponse

    /// Sends several requests to one server without a socket.
    func requests<Value: Sendable>(_ body: @Sendable (Send) async throws -> Value) async throws -> Value {
        try await server().application().test(.router) { client in
            try await body { method, path, headers, bytes in
                try await client.execute(
                    uri: path, method: method, headers: headers, body: bytes.map { ByteBuffer(bytes: $0) })
            }
        }
    }

    /// Sends one url-encoded form without a socket.
    func form(_ form: String, headers: HTTPFields = [:]) async throws -> TestResponse {
        var headers = headers
        if headers[.contentType] == nil { headers[.contentType] = "application/x-www-form-urlencoded" }
        return try await send(headers: headers, body: Array(form.utf8))
    }

    /// Sends one request as bytes through a socket.
    func exchange(_ bytes: [UInt8]) async throws -> RawConnection.Answer {
        try await listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(bytes)
                return try await connection.answer()
            }
        }
    }

    /// Runs the server on a free port while `body` runs, then stops it gracefully.
    func listening<Value: Sendable>(_ body: @Sendable (_ port: Int) async throws -> Value) async throws -> Value {
        let (ports, found) = AsyncStream.makeStream(of: Int.self)
        let group = ServiceGroup(
            configuration: ServiceGroupConfiguration(
                services: [server { found.yield($0) }], logger: .silent
            ))
        return try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask {
                defer { found.finish() }
                try await group.run()
            }
            guard let port = await ports.first(where: { _ in true }) else {
                try await tasks.waitForAll()
                throw RawConnection.Problem.closed
            }
            let value: Value
            do {
                value = try await body(port)
            } catch {
                await group.triggerGracefulShutdown()
                throw error
            }
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
            return value
        }
    }
}

extension TestResponse {
    var text: String { String(buffer: body) }
    func header(_ name: String) -> String? { HTTPField.Name(name).flatMap { headers[$0] } }
}

/// A reader that accepts one text.
struct OneSubscription: SubscriptionReader {
    static let text = #"{"endpoint":"https://push.test/1","keys":{"p256dh":"k","auth":"a"}}"#
    let publicKey = "BP4z"

    static func known() throws(ChatError) -> Subscription {
        Subscription(
            address: try DeviceToken(parsing: Sample.token), endpoint: "https://push.test/1", publicKey: [1],
            secret: [2])
    }

    func subscription(_ text: String) throws(ChatError) -> Subscription {
        guard text == Self.text else { throw .invalid("subscription", "is another one") }
        return try Self.known()
    }
}

import Crypto
import Foundation
import Hummingbird
import NIOCore
import PushWire
import ServiceLifecycle
import WebAssets

/// The control API, with which tests and the inbox page read and change the sandbox's state
/// (`docs/sandbox-control.md`).
struct ControlAPI: Sendable {
    /// The lists that are read in pages.
    private static let lists = ["devices", "browsers", "activities", "channels", "installations"]
    private static let defaultPageSize = 100
    private static let maxPageSize = 1000
    /// The maximum time for which a client may wait for notifications, in milliseconds.
    private static let maxWait = 300_000

    let state: SharedState
    let configuration: SandboxConfiguration
    let credentials: SandboxCredentials
    /// The origin of the push service for browsers: scheme, host and port.
    let pushOrigin: String
    /// The source of random bytes for the tokens of new devices and the endpoints of new browsers.
    let randomBytes: @Sendable (Int) -> [UInt8]

    /// Returns a router with all routes (`docs/sandbox-control.md`).
    func router() -> Router<ControlContext> {
        let router = Router(context: ControlContext.self)
        router.add(middleware: ControlErrorMiddleware())
        router.add(middleware: ControlGuard(host: configuration.host, allowed: configuration.allowedHosts))
        let health = ["/healthz", "/readyz"]
        router.add(
            middleware: ControlQuery(
                lists: Set(Self.lists.map { "/\($0)" }),
                free: Set(pageFiles.map(\.path) + health + ["\(ControlChannel.pushPath)"])))
        for file in pageFiles {
            router.get(RouterPath(file.path)) { request, _ in
                var response = file.response(to: request)
                response.headers[.xContentTypeOptions] = "nosniff"
                return response
            }
        }
        // `pushchat check --ready` calls the address that a relay has.
        for path in health {
            router.get(RouterPath(path)) { _, _ in try Response.json(["healthy": true]) }
        }
        router.get("/credentials") { _, _ in try Response.json(credentials.forClients()) }
        router.get("/notifications") { request, _ in try await notifications(request) }
        router.delete("/notifications") { _, _ in
            state.withLock { $0.inbox.clear() }
            return Response(status: .noContent)
        }
        router.get("/screen") { request, _ in try screen(request) }
        add("devices", \.devices, to: router)
        router.post("/devices") { request, _ in try await makeDevice(request) }
        router.delete("/devices/:token") { _, context in try removeDevice(context.parameters.require("token")) }
        add("browsers", \.browsers, to: router)
        router.post("/browsers") { request, _ in try await makeBrowser(request) }
        router.delete("/browsers/:id") { _, context in try removeBrowser(context.parameters.require("id")) }
        addActivities(to: router)
        addInstallations(to: router)
        // A request that became a WebSocket does not get here.
        router.get("\(ControlChannel.pushPath)") { _, _ -> Response in
            throw ControlError(.upgradeRequired, "Upgrade: only as a WebSocket, for Mozilla's push protocol")
        }
        router.get("/faults") { _, _ in try Response.json(["faults": state.withLock { $0.faults.all }]) }
        router.post("/faults") { request, _ in
            let fault = try await Fault(ControlBody(of: request), forms: \.faults)
            return try Response.json(try state.withLock { try $0.faults.add(fault) }, status: .created)
        }
        router.delete("/faults") { _, _ in
            state.withLock { $0.faults.clear() }
            return Response(status: .noContent)
        }
        router.get("/stats") { _, _ in try Response.json(state.withLock { $0.stats }) }
        return router
    }

    /// The files of the inbox page at `/`, which shows notifications and creates faults.
    private var pageFiles: [WebFile] {
        let unknown = configuration.strict ? "rejected" : "accepted"
        return WebFile.base + [
            .page("/", WebFile.filled(WebFile.embedded("inbox.html"), "unknown", with: unknown)),
            .style("/inbox.css"), .script("/inbox.js"), .script("/inbox-de.js"), .script("/inbox-en.js"),
            .script("/inbox-preview.js"), .script("/inbox-tools.js"),
        ]
    }

    // MARK: Notifications

    private func notifications(_ request: Request) async throws -> Response {
        let (since, limit) = try page(request)
        let parameters = request.uri.queryParameters
        let filter = InboxFilter(
            token: try parameters["token"].map { try TokenText.bytes(checking: $0, field: "token") },
            gateway: try parameters["protocol"].map { text in
                guard let gateway = GatewayProtocol.ofNotifications.first(where: { $0.rawValue == text }) else {
                    throw ControlError("protocol: \(GatewayProtocol.rule(GatewayProtocol.ofNotifications))")
                }
                return gateway
            },
            answer: parameters["answer"].map { String($0) },
            text: try parameters["text"].map { text in
                guard let search = PayloadSearch(text) else {
                    throw ControlError("text: must be 1 to \(PayloadSearch.limit) bytes long")
                }
                return search
            })
        let count = try integer("count", of: request, in: 1...limit, default: 1)
        let time = try parameters["wait"].map { try Self.waitingTime($0) }
        guard time != nil || parameters["count"] == nil else {
            throw ControlError("count: only together with wait, such as wait=10s")
        }
        if let time { try await wait(time, for: count, since: since, filter: filter, request) }
        // A search takes long, so it looks at a copy.
        let page =
            filter.text == nil
            ? state.withLock { $0.inbox.page(since: since, filter: filter, limit: limit) }
            : state.withLock { $0.inbox }.page(since: since, filter: filter, limit: limit)
        var response = try Response.json(["notifications": page.entries, "next": page.next] as JSONMembers)
        // The wait read the connection to its end, to notice when the client closes it. So the connection cannot be
        // reused.
        if time != nil { response.headers[.connection] = "close" }
        return response
    }

    /// Waits until there are `count` matching notifications, the time is over, the client closes its connection, or the
    /// sandbox stops.
    private func wait(
        _ time: Duration, for count: Int, since: Int, filter: InboxFilter, _ request: Request
    ) async throws {
        do {
            try await request.body.consumeWithCancellationOnInboundClose { _ in
                try await cancelWhenGracefulShutdown {
                    try await withThrowingTaskGroup(of: Void.self) { group in
                        group.addTask { try await state.wait(for: count, since: since, filter: filter) }
                        group.addTask { try await Task.sleep(for: time) }
                        try await group.next()
                        group.cancelAll()
                    }
                }
            }
        } catch let error as LimitReached {
            throw ControlError(.serviceUnavailable, error.text)
        } catch is CancellationError {
            // The response has the notifications that are there.
        }
    }

    /// Parses a time such as `10s`, `500ms` or `1m`.
    private static func waitingTime(_ text: Substring) throws(ControlError) -> Duration {
        for (suffix, milliseconds) in [("ms", 1), ("s", 1000), ("m", 60_000)] where text.hasSuffix(suffix) {
            let number = Int(text.dropLast(suffix.count)) ?? 0
            guard (1...maxWait / milliseconds).contains(number) else { break }
            return .milliseconds(number * milliseconds)
        }
        throw ControlError("wait: must be a time from 1ms to \(maxWait / 1000)s, such as 10s")
    }

    /// Returns the notifications that a device shows now.
    private func screen(_ request: Request) throws -> Response {
        guard let text = request.uri.queryParameters["token"] else {
            throw ControlError("token: must be the token of a device, a phone or a browser")
        }
        let token = try TokenText.bytes(checking: text, field: "token")
        // Payloads are parsed without the lock, because there may be many.
        let (entries, phone) = state.withLock { $0.delivered(to: token) }
        return try Response.json(Screen(entries, phone: phone))
    }

    // MARK: Devices

    private enum DeviceField: String, CaseIterable {
        case token, topic, environment, system
        case expiresAt = "expires_at"
    }

    private func makeDevice(_ request: Request) async throws -> Response {
        let body = try await ControlBody<DeviceField>(of: request)
        let token = try body.token(.token) ?? randomBytes(TokenText.usualSize)
        let topic = try body.string(.topic) ?? configuration.topic
        guard !topic.isEmpty, topic.utf8.count <= ControlLimits.topic else {
            throw ControlError("topic: must be 1 to \(ControlLimits.topic) bytes long")
        }
        let name = try body.string(.environment) ?? PushEnvironment.development.rawValue
        guard let environment = PushEnvironment(rawValue: name) else {
            throw ControlError("environment: must be development or production")
        }
        let expiresAt = try body.string(.expiresAt).map { text in
            guard let date = Date(rfc3339: text) else {
                throw ControlError("expires_at: must be a time such as 2026-01-31T09:30:00Z")
            }
            return date
        }
        let system = try body.integer(.system, in: 1...99)
        let device = try state.withLock { state in
            try state.devices.install(
                token: token, topic: topic, environment: environment, expiresAt: expiresAt, system: system,
                at: self.state.now())
        }
        return try Response.json(device, status: .created)
    }

    private func removeDevice(_ text: String) throws -> Response {
        let token = try TokenText.bytes(checking: text.removingPercentEncoding ?? text, field: "token")
        let device = try state.withLock { state in
            try state.removeDevice(token: token, topic: configuration.topic, at: self.state.now())
        }
        guard let device else { throw ControlError(.notFound, "token: there is no such device") }
        return try Response.json(device)
    }

    // MARK: Browsers

    private enum BrowserField: String, CaseIterable {
        case host
        case applicationServerKey = "application_server_key"
    }

    private func makeBrowser(_ request: Request) async throws -> Response {
        let body = try await ControlBody<BrowserField>(of: request)
        let key = try body.string(.applicationServerKey).map { text in
            guard let bytes = SandboxBrowser.applicationServerKey(text) else {
                throw ControlError(
                    "application_server_key: must be an uncompressed point on the curve P-256, 65 bytes in base64url")
            }
            return bytes
        }
        let host = try body.string(.host)
        guard host.map({ host in ServiceHost.browsers.contains { $0.matches(host) } }) ?? true else {
            throw ControlError("host: must be one of \(ServiceHost.browsers.map(\.name).joined(separator: ", "))")
        }
        let secret = Base64URL.text(randomBytes(SandboxBrowser.secretSize))
        let browser = try state.withLock { state in
            try state.browsers.subscribe(
                secret: secret, origin: host.map { "https://\($0)" } ?? pushOrigin, applicationServerKey: key,
                at: self.state.now())
        }
        return try Response.json(browser, status: .created)
    }

    private func removeBrowser(_ text: String) throws -> Response {
        let browser = state.withLock { state in
            Self.id(text).flatMap { state.removeBrowser(id: $0, at: self.state.now()) }
        }
        guard let browser else { throw ControlError(.notFound, "id: there is no such browser") }
        return try Response.json(browser)
    }

    // MARK: Fields

    /// Parses the number of a browser, an installation or an activity. The first one is 1.
    static func id(_ text: String) -> Int? { Int(text).flatMap { $0 > 0 ? $0 : nil } }

    /// Adds the call that returns a list in pages.
    func add(
        _ name: String, _ list: any KeyPath<SandboxState, some PagedList> & Sendable, to router: Router<ControlContext>
    ) {
        router.get("/\(name)") { request, _ in
            let (since, limit) = try page(request)
            let page = state.withLock { $0[keyPath: list].page(since: since, limit: limit) }
            return try Response.json([name: page.items, "next": page.next] as JSONMembers)
        }
    }

    /// Parses the `since` and `limit` of a list.
    private func page(_ request: Request) throws(ControlError) -> (since: Int, limit: Int) {
        (
            try integer("since", of: request, in: 0 ... .max, default: 0),
            try integer("limit", of: request, in: 1...Self.maxPageSize, default: Self.defaultPageSize)
        )
    }

    private func integer(
        _ name: String, of request: Request, in range: ClosedRange<Int>, default value: Int
    ) throws(ControlError) -> Int {
        guard let text = request.uri.queryParameters[Substring(name)] else { return value }
        guard let number = Int(text), range.contains(number) else {
            let upper = range.upperBound == .max ? "" : " to \(range.upperBound)"
            throw ControlError("\(name): must be a whole number from \(range.lowerBound)\(upper)")
        }
        return number
    }
}

import APNSWire
import Foundation
import Hummingbird
import NIOCore

/// The control API: what tests and the inbox page ask and change (interface.md, "The sandbox").
struct ControlAPI: Sendable {
    /// Bytes of a request's body.
    static let bodyLimit = 64 << 10
    static let defaultPage = 100
    static let largestPage = 1000
    /// Bytes of a topic.
    static let topicLimit = 255

    let world: SandboxWorld
    let configuration: SandboxConfiguration
    /// Random bytes for the tokens of new devices.
    let randomBytes: @Sendable (Int) -> [UInt8]

    /// Every route, in the order of interface.md.
    func router() -> Router<ControlContext> {
        let router = Router(context: ControlContext.self)
        router.add(middleware: ControlErrorMiddleware())
        router.add(middleware: ControlGuard(host: configuration.host, allowed: configuration.allowedHosts))
        for file in InboxPage.files(strict: configuration.strict) {
            router.get(RouterPath(file.path)) { request, _ in file.answer(request) }
        }
        router.get("/healthz") { _, _ in try Response.json(HealthBody()) }
        router.get("/notifications") { request, _ in try notifications(request) }
        router.delete("/notifications") { _, _ in
            world.withState { $0.inbox.clear() }
            return Response(status: .noContent)
        }
        router.get("/devices") { request, _ in try devices(request) }
        router.post("/devices") { request, _ in try await makeDevice(request) }
        router.delete("/devices/:token") { _, context in try removeDevice(context.parameters.require("token")) }
        router.get("/faults") { _, _ in
            try Response.json(FaultListBody(faults: world.withState { $0.faults.all }.map(FaultBody.init)))
        }
        router.post("/faults") { request, _ in try await makeFault(request) }
        router.delete("/faults") { _, _ in
            world.withState { $0.faults.clear() }
            return Response(status: .noContent)
        }
        router.get("/stats") { _, _ in try Response.json(world.withState { StatsBody($0) }) }
        return router
    }

    // MARK: Notifications

    private func notifications(_ request: Request) throws -> Response {
        let (since, limit) = try page(request)
        let token = try request.uri.queryParameters["token"].map { try Self.token(String($0), field: "token") }
        let gateway = try request.uri.queryParameters["protocol"].map { text in
            guard let gateway = GatewayProtocol(rawValue: String(text)) else {
                throw ControlError(.badRequest, "protocol: must be binary or http2")
            }
            return gateway
        }
        let answer = request.uri.queryParameters["answer"].map(String.init)
        let page = world.withState {
            $0.inbox.page(since: since, token: token, gateway: gateway, answer: answer, limit: limit)
        }
        return try Response.json(
            NotificationPageBody(notifications: page.entries.map(NotificationBody.init), next: page.next))
    }

    // MARK: Devices

    private func devices(_ request: Request) throws -> Response {
        let (since, limit) = try page(request)
        let page = world.withState { $0.devices.page(since: since, limit: limit) }
        return try Response.json(DevicePageBody(devices: page.devices.map(DeviceBody.init), next: page.next))
    }

    private func makeDevice(_ request: Request) async throws -> Response {
        let body = try await ControlBody(of: request, allowed: ["token", "topic", "environment", "expires_at"])
        let token = try body.token("token") ?? randomBytes(DeviceRegistry.tokenSize)
        let topic = try body.string("topic") ?? configuration.topic
        guard !topic.isEmpty, topic.utf8.count <= Self.topicLimit else {
            throw ControlError(.badRequest, "topic: must be 1 to \(Self.topicLimit) bytes long")
        }
        let environment = try body.string("environment") ?? SandboxDevice.Environment.development.rawValue
        guard let environment = SandboxDevice.Environment(rawValue: environment) else {
            throw ControlError(.badRequest, "environment: must be development or production")
        }
        let expiresAt = try body.string("expires_at").map { text in
            guard let date = Date(rfc3339: text) else {
                throw ControlError(.badRequest, "expires_at: must be a time such as 2026-01-31T09:30:00Z")
            }
            return date
        }
        do {
            let device = try world.withState { (state) throws(DeviceRegistry.Full) in
                try state.devices.install(
                    token: token, topic: topic, environment: environment, expiresAt: expiresAt, at: world.now())
            }
            return try Response.json(DeviceBody(device), status: .created)
        } catch is DeviceRegistry.Full {
            throw Self.tooManyDevices
        }
    }

    private func removeDevice(_ text: String) throws -> Response {
        let token = try Self.token(text.removingPercentEncoding ?? text, field: "token")
        do {
            let device = try world.withState { (state) throws(DeviceRegistry.Full) in
                try state.removeDevice(token: token, topic: configuration.topic, at: world.now())
            }
            guard let device else { throw ControlError(.notFound, "token: there is no such device") }
            return try Response.json(DeviceBody(device))
        } catch is DeviceRegistry.Full {
            throw Self.tooManyDevices
        }
    }

    private static let tooManyDevices = ControlError(
        .badRequest, "there are \(DeviceRegistry.limit) devices already, and no more can be made")

    // MARK: Faults

    private func makeFault(_ request: Request) async throws -> Response {
        let body = try await ControlBody(of: request, allowed: FaultRequest.fields)
        let made = try FaultRequest(body)
        do {
            let fault = try world.withState { (state) throws(FaultTable.Full) in
                try state.faults.add(
                    to: made.gateway, token: made.token, after: made.after, times: made.times, every: made.every,
                    action: made.action)
            }
            return try Response.json(FaultBody(fault), status: .created)
        } catch is FaultTable.Full {
            throw ControlError(.badRequest, "\(FaultTable.limit) faults wait already, and no more can be made")
        }
    }

    // MARK: Fields

    /// `since` and `limit` of a list.
    private func page(_ request: Request) throws -> (since: Int, limit: Int) {
        func integer(_ name: String, in range: ClosedRange<Int>, default value: Int) throws -> Int {
            guard let text = request.uri.queryParameters[Substring(name)] else { return value }
            guard let number = Int(text), range.contains(number) else {
                let upper = range.upperBound == .max ? "" : " to \(range.upperBound)"
                throw ControlError(.badRequest, "\(name): must be a whole number from \(range.lowerBound)\(upper)")
            }
            return number
        }
        return (
            try integer("since", in: 0 ... .max, default: 0),
            try integer("limit", in: 1...Self.largestPage, default: Self.defaultPage)
        )
    }

    static func token(_ text: String, field: String) throws -> [UInt8] {
        guard let token = TokenText.bytes(of: text) else {
            throw ControlError(
                .badRequest, "\(field): must be 1 to \(TokenText.longest) bytes in hexadecimal digits")
        }
        return token
    }
}

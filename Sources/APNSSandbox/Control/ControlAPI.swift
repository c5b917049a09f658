import APNSWire
import Foundation
import Hummingbird
import NIOCore

/// The actions of a fault, as `POST /faults` spells them.
enum FaultAction: String, CaseIterable {
    case status
    case close
    case reset
    case stopReading = "stop_reading"
    case delay
    case drop
}

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
        router.get("/") { _, _ in StartPage.response(strict: configuration.strict) }
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
        let page = world.withState { $0.inbox.page(since: since, token: token, limit: limit) }
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
        let body = try await ControlBody(of: request, allowed: ["token", "topic"])
        let token = try body.token("token") ?? randomBytes(DeviceRegistry.tokenSize)
        let topic = try body.string("topic") ?? configuration.topic
        guard !topic.isEmpty, topic.utf8.count <= Self.topicLimit else {
            throw ControlError(.badRequest, "topic: must be 1 to \(Self.topicLimit) bytes long")
        }
        do {
            let device = try world.withState { (state) throws(DeviceRegistry.Full) in
                try state.devices.install(token: token, topic: topic, at: world.now())
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
        let body = try await ControlBody(
            of: request,
            allowed: ["protocol", "token", "after", "times", "action", "status", "identifier", "delay_ms"])
        guard let name = try body.string("protocol"), name == "binary" else {
            throw ControlError(.badRequest, "protocol: must be \"binary\"; there are no faults for http2 yet")
        }
        let token = try body.token("token")
        let after = try body.integer("after", in: 0...Fault.largestCount) ?? 0
        let times = try body.integer("times", in: 1...Fault.largestCount) ?? 1
        let action = try Self.action(body)
        do {
            let fault = try world.withState { (state) throws(FaultTable.Full) in
                try state.faults.add(token: token, after: after, times: times, action: action)
            }
            return try Response.json(FaultBody(fault), status: .created)
        } catch is FaultTable.Full {
            throw ControlError(.badRequest, "\(FaultTable.limit) faults wait already, and no more can be made")
        }
    }

    private static func action(_ body: ControlBody) throws -> Fault.Action {
        let names = FaultAction.allCases.map(\.rawValue).joined(separator: ", ")
        guard let action = try body.string("action").flatMap(FaultAction.init) else {
            throw ControlError(.badRequest, "action: must be one of \(names)")
        }
        if action != .status {
            for field in ["status", "identifier"] where body.has(field) {
                throw ControlError(.badRequest, "\(field): only with the action status")
            }
        }
        let delay = try body.integer("delay_ms", in: 0...Fault.longestDelay)
        switch action {
        case .status:
            guard let status = try body.integer("status", in: 0...255) else {
                throw ControlError(.badRequest, "status: must be given with the action status, from 0 to 255")
            }
            let identifier = try body.integer("identifier", in: 0...Int(UInt32.max))
            return .status(
                BinaryStatus(rawValue: UInt8(status)), delay: delay ?? 0, identifier: identifier.map(UInt32.init))
        case .stopReading:
            return .stopReading(delay)
        case .delay:
            guard let delay else {
                throw ControlError(
                    .badRequest, "delay_ms: must be given with the action delay, from 0 to \(Fault.longestDelay)")
            }
            return .delay(delay)
        case .close, .reset, .drop:
            guard delay == nil else {
                throw ControlError(.badRequest, "delay_ms: not with the action \(action.rawValue)")
            }
            return action == .close ? .close : action == .reset ? .reset : .drop
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

import Foundation
import HTTPTypes
import Hummingbird
import HummingbirdCore
import HummingbirdHTTP2
import Logging
import NIOCore
import NIOHTTP1
import NIOSSL
import PushWire

/// The sandbox's push service (RFC 8030). It serves simulated browsers and real ones, and checks messages as strictly
/// as the browser vendors' services.
struct PushService: Sendable {
    /// The time after which an idle connection is closed.
    private static let idleTimeout = Duration.seconds(600)

    /// The address on which the service listens.
    let host: String
    let state: SharedState
    /// The connections of real browsers.
    let sockets: PushSockets
    let logger: Logger

    /// Returns the server, which accepts HTTP/1.1 and HTTP/2.
    static func server(tls: TLSConfiguration) throws -> HTTPServerBuilder {
        try .http2Upgrade(
            tlsConfiguration: tls,
            configuration: .init(
                idleTimeout: idleTimeout, streamConfiguration: .init(idleTimeout: TimeAmount(idleTimeout))))
    }

    func router() -> Router<PushContext> {
        let router = Router(context: PushContext.self)
        router.add(middleware: PushErrorMiddleware())
        router.post("\(SandboxBrowser.path):secret") { request, context in
            try await respond(to: request, secret: context.parameters.require("secret"), on: context.channel)
        }
        return router
    }

    private func respond(to request: Request, secret: String, on channel: any Channel) async throws -> Response {
        let browser = state.withLock { $0.browsers[secret] }
        let origin = browser?.origin ?? SandboxAddress(host: host, port: channel.localAddress?.port ?? 0).pushOrigin
        let body = try await Self.body(of: request)
        // Decrypt outside the lock.
        let payload = body.flatMap { body in
            browser.map { browser in Result { () throws(WebPushError) in try browser.read(body) } }
        }
        let push = BrowserPush(origin: origin, secret: secret, headers: request.headers, payload: payload)
        return try await state.respond(on: channel, logger) { state, now, faults in
            state.decide(push, at: now, faults: faults)
        } accepted: { receipt in
            if let connection = receipt.wakes { sockets.wake(connection) }
            return Response(
                status: .created,
                headers: [
                    .location: "\(origin)/message/\(UUID().uuidString.lowercased())", .ttl: "\(receipt.ttl)",
                ])
        } refused: { refusal in
            try refusal.response
        }
    }

    /// Returns the body. `nil` if it is longer than the largest body that every push service accepts.
    private static func body(of request: Request) async throws -> [UInt8]? {
        do {
            return Array(try await request.body.collect(upTo: MessageEncryption.largestBody).readableBytesView)
        } catch is NIOTooManyBytesError {
            return nil
        }
    }
}

extension SandboxAddress {
    /// The origin of the push service at this address: scheme, host and port, as in endpoints and VAPID tokens.
    ///
    /// The host is `localhost` if the service listens on loopback or on every address of the machine, because the
    /// host of a push service must be a name.
    var pushOrigin: String {
        let isLocal = ["127.0.0.1", "::1", "0.0.0.0", "::"].contains(host)
        return "https://\(isLocal ? SandboxAddress(host: "localhost", port: port) : self)"
    }
}

/// Headers of Windows' service.
extension HTTPField.Name {
    fileprivate static let errorDescription = Self("X-WNS-Error-Description")!
    fileprivate static let wnsStatus = Self("X-WNS-Status")!
    fileprivate static let notificationStatus = Self("X-WNS-NotificationStatus")!
}

extension WebPushRefusal {
    fileprivate var response: Response {
        get throws {
            struct Body: Encodable {
                let code: Int, errno: Int, error: String, message: String
            }
            let code = HTTPResponse.Status(code: status)
            var response: Response
            switch form {
            case .mozilla:
                let error = HTTPResponseStatus(statusCode: status).reasonPhrase
                response = try .json(
                    Body(code: status, errno: errno, error: error, message: message), status: code)
            case .apple(let reason): response = try .json(["reason": reason], status: code)
            case .windows(let description):
                response = Response(
                    status: code,
                    headers: [
                        .errorDescription: description, .wnsStatus: "dropped", .notificationStatus: "dropped",
                    ])
            }
            response.headers[.retryAfter] = retryAfter.map { "\($0)" }
            return response
        }
    }
}

/// Converts the router's errors to the push service's form: no such path, no such method.
private struct PushErrorMiddleware: RouterMiddleware {
    func handle(
        _ request: Request, context: PushContext, next: (Request, PushContext) async throws -> Response
    ) async throws -> Response {
        do {
            return try await next(request, context)
        } catch let error as any HTTPResponseError {
            return try WebPushRefusal(
                error.status.code, 102, "there is no \(request.method.rawValue) \(request.uri.path.prefix(100))"
            ).response
        }
    }
}

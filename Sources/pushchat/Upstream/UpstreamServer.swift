import AsyncHTTPClient
import ChatDomain
import Crypto
import Foundation
import GatewayPool
import NIOCore
import NIOHTTP1

/// The server that tells ntfy's app on iPhones to poll a topic, and the address of the relay that the app knows.
struct UpstreamServer: Sendable, Hashable {
    /// The server's address, without a slash at the end.
    let url: String
    /// The access token. `nil` for none.
    let token: String?
    /// The relay's address as users typed it into the app, without a slash at the end.
    let baseURL: String
    /// The program and its version.
    let userAgent: String

    /// The topic at the upstream server that stands for a room. The app subscribes to it without the
    /// user's help. It contains only a hash of the alias, which cannot be guessed.
    func topic(_ alias: RoomAlias) -> String {
        Hex.text(Array(SHA256.hash(data: Data("\(baseURL)/\(alias.text)".utf8))))
    }

    func request(_ request: PollRequest) -> HTTPClientRequest {
        var call = HTTPClientRequest(url: "\(url)/\(topic(request.alias))")
        call.method = .POST
        call.headers.add(name: "X-Poll-ID", value: NtfyMessageID.text(request.message))
        call.headers.add(name: "User-Agent", value: userAgent)
        if let token { call.headers.add(name: "Authorization", value: "Bearer \(token)") }
        return call
    }
}

/// The response of the upstream server to a request.
enum UpstreamResponse: Sendable, Hashable {
    case accepted
    /// The server rejects this message, and would reject it again.
    case rejected(String)
    /// The server takes nothing at the moment, or cannot be reached. `after` is the time that it asks for.
    case unavailable(String, after: Duration?)
    /// Nothing was sent, because the relay stops.
    case notSent

    init(status: UInt, retryAfter: String?, now: Timestamp = .now()) {
        switch status {
        case 200..<300: self = .accepted
        // After 401 and 403, the operator may correct the token in time. With a redirection, another server has responded.
        case 300..<400, 401, 403, 408, 421, 425, 429, 500...:
            let end = retryAfter.flatMap { Timestamp(retryAfter: $0, now: now) }
            self = .unavailable(
                "status \(status)", after: end.map { .milliseconds(max(0, $0.milliseconds - now.milliseconds)) })
        default: self = .rejected("status \(status)")
        }
    }
}

/// Sends requests to the upstream server.
final class UpstreamClient: Sendable {
    /// The maximum size of a response's body, which is not used.
    private static let maxBody = 65_536

    private let client: HTTPClient
    private let timeLimit: TimeAmount

    /// - Parameter timeLimit: The time limit of a request and its whole response.
    init(timeLimit: TimeAmount = .seconds(10)) {
        self.timeLimit = timeLimit
        var configuration = HTTPClient.Configuration(
            redirectConfiguration: .disallow, timeout: .init(connect: timeLimit, read: timeLimit))
        configuration.connectionPool.retryConnectionEstablishment = false
        configuration.tracing.tracer = nil
        client = HTTPClient.services(configuration)
    }

    func close() async { try? await client.shutdown() }

    func send(_ request: PollRequest, to server: UpstreamServer) async -> UpstreamResponse {
        do {
            // Reading the body lets the next request use the connection.
            let response = try await client.exchange(
                server.request(request), upTo: Self.maxBody, by: .now() + timeLimit)
            return UpstreamResponse(
                status: response.status.code, retryAfter: response.headers.first(name: "Retry-After"))
        } catch {
            return Task.isCancelled ? .notSent : .unavailable("\(error)".oneLine, after: nil)
        }
    }
}

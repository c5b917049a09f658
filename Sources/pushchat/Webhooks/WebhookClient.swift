import AsyncHTTPClient
import ChatDomain
import Foundation
import GatewayPool
import NIOCore
import NIOHTTP1
import NIOPosix
import PushWire
import WebPushGateway

/// Sends requests of webhooks.
///
/// The client looks names up itself, checks each address with the guard of Web Push, and connects to the checked one.
/// Each request has a new connection, because the next one may have to go to another address.
struct WebhookClient: WebhookTransport {
    /// The maximum size of a response's body. The rest is cut.
    static let maxBody = 65_536

    /// The rules in force, which a reload may replace.
    let rules: @Sendable () -> EndpointRules
    /// The time limit of a request, with the lookup and the whole response.
    var timeLimit = TimeAmount.seconds(15)
    var addresses: @Sendable (_ host: String) async throws -> [IPAddress] = HostResolver.addresses
    var now: TimeSource = Timestamp.now
    var userAgent = "pushchat/\(Build.version)"

    func send(_ request: WebhookRequest) async -> WebhookResponse {
        let deadline = NIODeadline.now() + timeLimit
        do {
            let endpoint = try PushEndpoint(request.url, admitsHTTP: true)
            let address = try await address(of: endpoint, by: deadline)
            let client = HTTPClient.services(
                HTTPClient.Configuration(endpoint, at: address, .ofChosenHost(), timeLimit: timeLimit))
            let response: BoundedResponse
            do {
                response = try await client.exchange(call(request, endpoint), upTo: Self.maxBody, by: deadline)
            } catch {
                try? await client.shutdown()
                throw error
            }
            try? await client.shutdown()
            return answer(response)
        } catch let error as WebPushError {
            return WebhookResponse(
                .unanswered("the receiver's \(error.field == "host" ? "host" : "address") \(error.rule)"))
        } catch {
            return WebhookResponse(.unanswered(Self.reason(error)))
        }
    }

    private func call(_ request: WebhookRequest, _ endpoint: PushEndpoint) -> HTTPClientRequest {
        var call = HTTPClientRequest(url: endpoint.url)
        call.method = .POST
        call.headers.add(name: "Content-Type", value: "application/json")
        call.headers.add(name: "User-Agent", value: userAgent)
        for header in WebhookSignature.headers(of: request) { call.headers.add(name: header.name, value: header.value) }
        call.body = .bytes(request.body)
        return call
    }

    private func answer(_ response: BoundedResponse) -> WebhookResponse {
        let status = Int(response.status.code)
        let retryAfter = response.headers.first(name: "Retry-After").flatMap { Timestamp(retryAfter: $0, now: now()) }
        let type = response.headers.first(name: "Content-Type")?.lowercased() ?? ""
        return WebhookResponse(
            .answered(status: status, retryAfter: retryAfter),
            isJSON: type.prefix { $0 != ";" } == "application/json", body: response.body)
    }

    /// Returns an allowed address of the receiver.
    private func address(of endpoint: PushEndpoint, by deadline: NIODeadline) async throws -> IPAddress {
        let rules = rules()
        // A reload may have removed the host from the settings.
        try rules.check(endpoint)
        let found: [IPAddress]
        if let address = IPAddress(endpoint.host) {
            found = [address]
        } else {
            found = try await lookup(endpoint.host, by: deadline)
        }
        guard let address = found.first(where: { rules.allows($0, of: endpoint) }) else {
            throw found.isEmpty
                ? WebPushError("host", "has no address")
                : WebPushError("endpoint", "leads into a private or local network; webhooks.hosts may name it")
        }
        return address
    }

    /// The system's lookup cannot be interrupted, so it goes on after the deadline.
    private func lookup(_ host: String, by deadline: NIODeadline) async throws -> [IPAddress] {
        let (results, continuation) = AsyncStream.makeStream(of: Result<[IPAddress], any Error>.self)
        let lookup = addresses
        Task {
            do { continuation.yield(.success(try await lookup(host))) } catch { continuation.yield(.failure(error)) }
        }
        let timer = Task {
            try? await Task.sleep(for: Duration(deadline - .now()))
            continuation.finish()
        }
        defer { timer.cancel() }
        for await result in results { return try result.get() }
        throw WebPushError("host", "was not looked up in time")
    }

    /// Describes an error without the receiver's URL.
    private static func reason(_ error: any Error) -> String {
        switch error as? HTTPClientError {
        case .deadlineExceeded?, .readTimeout?, .connectTimeout?: "no response in time"
        case .remoteConnectionClosed?: "the receiver closed the connection"
        case let error?: error.shortDescription
        case nil:
            error is NIOConnectionError ? "the receiver cannot be reached" : "\(type(of: error)): \(error)".oneLine
        }
    }
}

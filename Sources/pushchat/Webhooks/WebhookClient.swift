import AsyncHTTPClient
import ChatDomain
import Foundation
import GatewayPool
import NIOCore
import NIOHTTP1
import NIOPosix
import PushWire
import Synchronization
import WebPushGateway

/// Sends requests of webhooks.
///
/// The client looks names up itself, checks each address with the guard of Web Push, and connects to the checked one.
/// For some seconds, further requests use the same connection.
final class WebhookClient: WebhookTransport {
    /// The time after which a name is looked up again.
    private static let checkedFor = TimeAmount.seconds(10)
    /// The time after which an idle connection is closed. Receivers must not close it first, because a request that is
    /// under way at that moment fails.
    private let idleLimit: TimeAmount
    /// The maximum number of connections to a receiver, which may have several webhooks.
    private static let connections = 16

    /// The rules in force, which a reload may replace.
    private let rules: @Sendable () -> EndpointRules
    /// The time limit of a request, with the lookup and the whole response.
    private let timeLimit: TimeAmount
    private let addresses: @Sendable (_ host: String) async throws -> [IPAddress]
    private let now: TimeSource
    private let monotonic: @Sendable () -> NIODeadline
    private let state = Mutex(State())

    private struct State {
        /// The clients by origin, with the time until which their addresses are checked.
        var clients: [String: (client: CheckedClient, until: NIODeadline)] = [:]
        /// The addresses of the last requests that got no response, by origin. The next request uses another address.
        var failed: [String: IPAddress] = [:]
    }

    init(
        rules: @escaping @Sendable () -> EndpointRules, timeLimit: TimeAmount = .seconds(15),
        idleLimit: TimeAmount = .seconds(1),
        addresses: @escaping @Sendable (_ host: String) async throws -> [IPAddress] = HostResolver().addresses,
        now: @escaping TimeSource = Timestamp.now,
        monotonic: @escaping @Sendable () -> NIODeadline = { .now() }
    ) {
        self.rules = rules
        self.timeLimit = timeLimit
        self.idleLimit = idleLimit
        self.addresses = addresses
        self.now = now
        self.monotonic = monotonic
    }

    func send(_ request: WebhookRequest) async -> WebhookResponse {
        let deadline = NIODeadline.now() + timeLimit
        do {
            let endpoint = try PushEndpoint(request.url, admitsHTTP: true)
            // A reload may have removed the host from the settings.
            try rules().check(endpoint)
            let (client, isKept) = try await client(for: endpoint, by: deadline)
            do {
                return try await exchange(request, endpoint, over: client, by: deadline)
            } catch  where isKept && Self.isClosed(error) {
                // The receiver has closed the kept connection, perhaps before it got the request. It recognises a second
                // delivery by its id.
                let (client, _) = try await self.client(for: endpoint, by: deadline)
                return try await exchange(request, endpoint, over: client, by: deadline)
            }
        } catch let error as WebPushError {
            return WebhookResponse(
                .unanswered("the receiver's \(error.field == "host" ? "host" : "address") \(error.rule)"))
        } catch {
            return WebhookResponse(.unanswered(Self.reason(error)))
        }
    }

    private func exchange(
        _ request: WebhookRequest, _ endpoint: PushEndpoint, over client: CheckedClient, by deadline: NIODeadline
    ) async throws -> WebhookResponse {
        do {
            let response = try await client.exchange(
                call(request, endpoint), upTo: WebhookResponse.bodyLimit, by: deadline)
            state.withLock { $0.failed[endpoint.origin] = nil }
            return answer(response)
        } catch {
            state.withLock { state in
                if state.clients[endpoint.origin]?.client === client { state.clients[endpoint.origin] = nil }
                // An open connection that was closed says nothing about the address.
                if Self.isClosed(error) { return }
                if state.failed.count >= WebhookSettings.most { state.failed = [:] }
                state.failed[endpoint.origin] = client.address
            }
            throw error
        }
    }

    /// Returns a client for an address that the rules allow, and whether it was used before.
    private func client(
        for endpoint: PushEndpoint, by deadline: NIODeadline
    ) async throws -> (CheckedClient, isKept: Bool) {
        let (rules, now) = (rules(), monotonic())
        let (last, failed) = state.withLock { state in
            let last = state.clients[endpoint.origin]
            state.clients = state.clients.filter { now < $0.value.until }
            return (last, state.failed[endpoint.origin])
        }
        if let last, now < last.until, rules.allows(last.client.address, of: endpoint) { return (last.client, true) }
        let lookup = Task { [addresses] in try await endpoint.addresses(by: rules, addresses) }
        let allowed = try await lookup.value(within: Duration(deadline - .now()))
        let client: CheckedClient
        if let last, allowed.contains(last.client.address) {
            client = last.client
        } else {
            let next = failed.flatMap(allowed.firstIndex).map { $0 + 1 } ?? 0
            client = CheckedClient(
                endpoint, at: allowed[next % allowed.count], timeLimit: timeLimit, connections: Self.connections,
                idleLimit: idleLimit)
        }
        state.withLock { $0.clients[endpoint.origin] = (client, now + Self.checkedFor) }
        return (client, client === last?.client)
    }

    private func call(_ request: WebhookRequest, _ endpoint: PushEndpoint) -> HTTPClientRequest {
        var call = HTTPClientRequest(url: endpoint.url)
        call.method = .POST
        call.headers.add(name: "Content-Type", value: "application/json")
        call.headers.add(name: "User-Agent", value: "pushchat/\(Build.version)")
        for header in WebhookSignature.headers(of: request) { call.headers.add(name: header.name, value: header.value) }
        call.body = .bytes(request.body)
        return call
    }

    private func answer(_ response: BoundedResponse) -> WebhookResponse {
        let retryAfter = response.headers.first(name: "Retry-After").flatMap {
            Timestamp(retryAfter: $0, now: now(), longest: WebhookLifeCycle.longestThrottle)
        }
        let type = response.headers.first(name: "Content-Type")?.lowercased().prefix { $0 != ";" } ?? ""
        return WebhookResponse(
            .answered(status: Int(response.status.code), retryAfter: retryAfter),
            isJSON: FieldText.trimmed(String(type)) == "application/json", body: response.body)
    }

    private static func isClosed(_ error: any Error) -> Bool {
        if let error = error as? IOError { return [ECONNRESET, EPIPE].contains(error.errnoCode) }
        return error as? HTTPClientError == .remoteConnectionClosed
    }

    /// Describes an error without the receiver's URL.
    private static func reason(_ error: any Error) -> String {
        if isClosed(error) { return "the receiver closed the connection" }
        return switch error {
        case let error as HTTPClientError:
            switch error {
            case .deadlineExceeded, .readTimeout, .connectTimeout: "no response in time"
            default: error.shortDescription
            }
        case is IOError, is NIOConnectionError: "the receiver cannot be reached"
        default: "\(type(of: error)): \(error)".oneLine
        }
    }
}

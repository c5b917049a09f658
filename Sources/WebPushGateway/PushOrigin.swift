import AsyncHTTPClient
import ChatDomain
import Foundation
import GatewayPool
import HTTP2Wire
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import PushWire
import Synchronization

/// One push service with its connections, its VAPID token, and its state (``OriginState``).
///
/// The relay looks names up itself instead of the HTTP client. It checks every address and connects to exactly the
/// checked one.
final class PushOrigin: Sendable {
    /// The time for which a VAPID token is used, and the time for which it is valid. Apple wants it renewed at most
    /// once an hour.
    private static let tokenUse = Duration.seconds(12 * 3600)
    private static let tokenLife = Duration.seconds(20 * 3600)

    /// The maximum number of connections to a service that does not offer HTTP/2.
    private static let connections = 16
    /// The maximum number of times that a request is sent if connections return it, and of attempts to get a connection
    /// for it. Afterwards the request counts as lost.
    private static let maxAttempts = 5

    let name: String
    private let endpoint: PushEndpoint
    private let sender: WebPushGateway.Sender
    private let options: WebPushGateway.Options
    private let listener: @Sendable (PushOrigin, Event) -> Void
    private let logger: Logger
    private let state: Mutex<OriginState>
    private let token = Mutex<(authorization: String, issuedAt: Timestamp)?>(nil)
    private let connection = Mutex(Connection())

    /// The connection or client that carries requests.
    private enum Link {
        case http2(OriginConnection)
        /// For a service that does not offer HTTP/2.
        case http1(CheckedClient)
    }

    private struct Connection {
        var link: Link?
        /// Looks up the name and connects. Requests that arrive during this time wait for it.
        var opening: Task<Void, any Error>?
        /// The number of attempts to open a connection. Each attempt uses the next of the name's addresses.
        var opened = 0
        var isClosed = false
    }

    /// The origin was closed before the push was sent.
    private struct Closed: Error {}

    /// A push and the service's response to it.
    struct Answered: Sendable {
        let push: AddressedPush
        let sentAt: Timestamp
        let response: WebPushResponse
    }

    enum Event: Sendable {
        case answered([Answered])
        /// Requests that must be sent again, because a connection did not accept them.
        case returned([WebPushRequest])
    }

    /// Creates an origin without connections.
    /// - Parameters:
    ///   - options: Contains the time limit of a request, which includes the wait for a connection.
    ///   - listener: Called with the results of pushes.
    init(
        _ endpoint: PushEndpoint, sender: WebPushGateway.Sender, options: WebPushGateway.Options, now: Timestamp,
        logger: Logger, listener: @escaping @Sendable (PushOrigin, Event) -> Void
    ) {
        self.options = options
        self.listener = listener
        name = endpoint.origin
        self.endpoint = endpoint
        self.sender = sender
        self.logger = logger
        state = Mutex(OriginState(now: now))
    }

    func capacity(at now: Timestamp, isAlone: Bool) -> Int? {
        state.withLock { $0.capacity(at: now, isAlone: isAlone) }
    }
    /// The contact that the sender names.
    var contact: String? { sender.subject }
    var isIdle: Bool { state.withLock { $0.outstanding == 0 } }
    func isAuthorized(at now: Timestamp) -> Bool { state.withLock { $0.isAuthorized(at: now) } }
    func refusesCredentials(at now: Timestamp) -> Bool { state.withLock { $0.refusesCredentials(at: now) } }
    func submit(_ push: AddressedPush, at now: Timestamp) -> OriginState.Decision {
        state.withLock { $0.submit(push, at: now) }
    }
    func withdrawWaiting() -> [AddressedPush] { state.withLock { $0.withdrawWaiting() } }
    func finished(_ result: OriginState.Result, of push: AddressedPush, at now: Timestamp) -> OriginState.Next {
        state.withLock { $0.finished(result, of: push.subscription.address, at: now) }
    }
    func condition(at now: Timestamp) -> PushServiceStatus? {
        state.withLock { $0.condition(at: now) }.map { PushServiceStatus(origin: name, condition: $0) }
    }

    // MARK: - Sending

    /// Encrypts and sends pushes. The listener gets a response for each push, at any time from now on.
    func send(_ pushes: [AddressedPush], now: Timestamp) async {
        let deadline = NIODeadline.now() + TimeAmount(options.answerLimit)
        var requests: [WebPushRequest] = []
        requests.reserveCapacity(pushes.count)
        for push in pushes {
            do {
                requests.append(
                    try WebPushRequest(
                        push, authorization: try authorization(at: now), lifetime: options.lifetime, now: now,
                        deadline: deadline))
            } catch {
                listener(self, .answered([Answered(push: push, sentAt: now, response: .unusable("\(error)"))]))
            }
        }
        await send(requests)
    }

    func send(_ requests: [WebPushRequest]) async {
        guard !requests.isEmpty else { return }
        do {
            switch try await link() {
            case .http2(let connection): connection.submit(requests)
            case .http1(let client):
                await withDiscardingTaskGroup { group in
                    for request in requests {
                        group.addTask { self.conclude([request], await self.response(to: request, over: client)) }
                    }
                }
            }
        } catch {
            conclude(requests, failed(error))
        }
    }

    func conclude(_ requests: [WebPushRequest], _ response: WebPushResponse) {
        listener(self, .answered(requests.map { Answered(push: $0.push, sentAt: $0.sentAt, response: response) }))
    }

    private func conclude(_ concluded: [OriginRequests.Concluded]) {
        var answered: [Answered] = []
        var returned: [WebPushRequest] = []
        answered.reserveCapacity(concluded.count)
        for (request, response) in concluded {
            if response == nil, request.returns.add(1, ordering: .relaxed).newValue < Self.maxAttempts {
                returned.append(request)
            } else {
                let response = response ?? .lost("RefusedStream")
                answered.append(Answered(push: request.push, sentAt: request.sentAt, response: response))
            }
        }
        if !answered.isEmpty { listener(self, .answered(answered)) }
        if !returned.isEmpty { listener(self, .returned(returned)) }
    }

    private func response(to request: WebPushRequest, over client: CheckedClient) async -> WebPushResponse {
        do {
            return try await client.send(request)
        } catch {
            // The next request looks up the name again.
            if Self.isUnreachable(error) { client.retire() }
            return failed(error)
        }
    }

    private func failed(_ error: any Error) -> WebPushResponse {
        if error is Closed { return .notSent }
        logger.debug("a push service was not reached", metadata: ["origin": "\(name)", "error": "\(error)"])
        return Self.isUnreachable(error) ? .unreached(Self.reason(error)) : .lost(Self.reason(error))
    }

    private func authorization(at now: Timestamp) throws -> String {
        try token.withLock { token in
            if let token, token.issuedAt <= now, now < token.issuedAt + Self.tokenUse { return token.authorization }
            let text = try sender.key.authorization(
                audience: endpoint.origin, expiresAt: (now + Self.tokenLife).seconds, subject: sender.subject)
            token = (text, now)
            return text
        }
    }

    private static func reason(_ error: any Error) -> String {
        switch error {
        case let error as WebPushError: "NotReached: \(error)"
        case is CancellationError: "NotReached: the relay is stopping"
        default: "NotReached"
        }
    }

    /// Whether no connection could be opened, so that the name may have another address by now. `false` if an open
    /// connection was lost.
    private static func isUnreachable(_ error: any Error) -> Bool {
        guard let error = error as? HTTPClientError else { return !(error is CancellationError) }
        return error == .connectTimeout
    }

    // MARK: - Connections

    /// Returns a connection or client that is ready for use.
    private func link() async throws -> Link {
        for _ in 0..<Self.maxAttempts {
            let (link, opening) = try acquire()
            if let link { return link }
            try await opening?.value(within: options.answerLimit)
        }
        throw WebPushError("host", "ends each connection at once")
    }

    private func acquire() throws -> (Link?, opening: Task<Void, any Error>?) {
        try connection.withLock { connection in
            if connection.isClosed { throw Closed() }
            switch connection.link {
            case .http2(let http2) where !http2.isRetired: return (connection.link, nil)
            case .http1(let client) where !client.isRetired: return (connection.link, nil)
            default: break
            }
            let opening = connection.opening ?? Task { try await self.open() }
            connection.opening = opening
            return (nil, opening)
        }
    }

    /// Closes the connection after the requests in flight have ended.
    func close() {
        // A client shuts down after its last request.
        if case .http2(let connection) = leave() { connection.close() }
    }

    /// Closes the connection at once. Must be called after the sending tasks have been cancelled.
    func stop() {
        if case .http2(let connection) = leave() { connection.stop() }
    }

    private func leave() -> Link? {
        connection.withLock { connection in
            defer { connection.link = nil }
            connection.isClosed = true
            return connection.link
        }
    }

    private func open() async throws {
        do {
            let link = try await makeLink()
            let isClosed = connection.withLock { connection in
                (connection.link, connection.opening) = (link, nil)
                return connection.isClosed
            }
            if isClosed { close() }
        } catch {
            connection.withLock { $0.opening = nil }
            throw error
        }
    }

    /// Connects to an allowed address of the service.
    private func makeLink() async throws -> Link {
        let address = try await address()
        var tls = TLSConfiguration.ofChosenHost()
        tls.additionalTrustRoots = sender.trust.isEmpty ? [] : [.certificates(sender.trust)]
        var offer = tls
        offer.applicationProtocols = [HTTP2Session.tlsName, "http/1.1"]
        let connection = try await OriginConnection.connect(
            to: ConnectorPeer(
                .address(try SocketAddress(ipAddress: address.description, port: endpoint.port)),
                tls: try NIOSSLContext(configuration: offer),
                serverName: IPAddress(endpoint.host) == nil ? endpoint.host : nil),
            over: options.connector, limit: TimeAmount(options.answerLimit), logger: logger
        ) { [self] in conclude($0) }
        return connection.map(Link.http2) ?? .http1(client(address, tls))
    }

    private func client(_ address: IPAddress, _ tls: TLSConfiguration) -> CheckedClient {
        CheckedClient(
            endpoint, at: address, tls, timeLimit: TimeAmount(options.answerLimit), connections: Self.connections)
    }

    /// Returns one of the name's allowed addresses. Each call returns the next one, in the system's order.
    private func address() async throws -> IPAddress {
        let allowed = try await endpoint.addresses(by: sender.rules, sender.addresses)
        let number = connection.withLock { connection in
            defer { connection.opened += 1 }
            return connection.opened
        }
        return allowed[number % allowed.count]
    }
}

extension CheckedClient {
    fileprivate func send(_ request: WebPushRequest) async throws -> WebPushResponse {
        let response = try await exchange(request.http1, upTo: HTTP2Response.bodyLimit, by: request.http2.deadline)
        return WebPushResponse(
            Int(response.status.code), retryAfter: response.headers.first(name: "Retry-After"),
            body: response.body, now: request.sentAt)
    }
}

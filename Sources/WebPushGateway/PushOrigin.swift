import AsyncHTTPClient
import ChatDomain
import Foundation
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import Synchronization
import WebPushWire

/// One push service: its connections, its VAPID token, and how much it is given (``OriginState``).
///
/// Names are looked up here and not by the client: every address is checked, and the one that was checked is connected to.
final class PushOrigin: Sendable {
    /// How long a VAPID token is used, and how long it is good; Apple wants it renewed at most once an hour.
    private static let tokenUse = Duration.seconds(12 * 3600)
    private static let tokenLife = Duration.seconds(20 * 3600)

    /// Connections to a service that does not offer HTTP/2.
    private static let connections = 16

    let name: String
    private let endpoint: PushEndpoint
    private let sender: WebPushGateway.Sender
    private let answerLimit: Duration
    private let logger: Logger
    private let state: Mutex<OriginState>
    private let token = Mutex<(authorization: String, issuedAt: Timestamp)?>(nil)
    private let connection = Mutex(Connection())

    private struct Connection {
        /// Looks up and makes a client; those that come meanwhile wait for it.
        var opening: Task<OriginClient, any Error>?
        var isClosed = false
    }

    /// - Parameter answerLimit: how long a request may take, with the wait for a connection.
    init(
        _ endpoint: PushEndpoint, sender: WebPushGateway.Sender, answerLimit: Duration, now: Timestamp, logger: Logger
    ) {
        self.answerLimit = answerLimit
        name = endpoint.origin
        self.endpoint = endpoint
        self.sender = sender
        self.logger = logger
        state = Mutex(OriginState(now: now))
    }

    func capacity(at now: Timestamp, isAlone: Bool) -> Int? {
        state.withLock { $0.capacity(at: now, isAlone: isAlone) }
    }
    func isAuthorized(at now: Timestamp) -> Bool { state.withLock { $0.isAuthorized(at: now) } }
    func submit(_ push: BrowserPush, at now: Timestamp) -> OriginState.Decision {
        state.withLock { $0.submit(push, at: now) }
    }
    func withdrawWaiting() -> [BrowserPush] { state.withLock { $0.withdrawWaiting() } }
    func finished(_ result: OriginState.Result, at now: Timestamp) -> OriginState.Next {
        state.withLock { $0.finished(result, at: now) }
    }

    // MARK: - Sending

    func send(_ request: WebPushRequest, now: Timestamp) async -> WebPushAnswer {
        let prepared: HTTPClientRequest
        do {
            prepared = try request.encrypted(authorization: try authorization(at: now))
        } catch {
            return .unusable("\(error)")
        }
        do {
            let client = try await client()
            defer { client.release() }
            do {
                return try await client.send(prepared, timeout: answerLimit, now: now)
            } catch {
                if Self.isUnreachable(error) { giveUp(client) }
                throw error
            }
        } catch {
            logger.debug("a push service was not reached", metadata: ["origin": "\(name)", "error": "\(error)"])
            return .lost(Self.reason(error))
        }
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

    /// There is no connection: the name may have another address by now. A connection that was lost says no such thing.
    private static func isUnreachable(_ error: any Error) -> Bool {
        guard let error = error as? HTTPClientError else { return !(error is CancellationError) }
        return error == .connectTimeout
    }

    // MARK: - Connections

    private func client() async throws -> OriginClient {
        while true {
            let opening = try connection.withLock { connection in
                if connection.isClosed { throw CancellationError() }
                if let opening = connection.opening { return opening }
                let opening = Task { try await self.open() }
                connection.opening = opening
                return opening
            }
            do {
                let client = try await opening.value
                if client.acquire() { return client }
            } catch {
                connection.withLock { if $0.opening == opening { $0.opening = nil } }
                throw error
            }
        }
    }

    /// The next request looks the name up anew.
    private func giveUp(_ client: OriginClient) {
        connection.withLock { if client.retire() { $0.opening = nil } }
    }

    /// Requests that are on their way end first.
    func close() async {
        let opening = connection.withLock { connection in
            defer { (connection.opening, connection.isClosed) = (nil, true) }
            return connection.opening
        }
        _ = try? await opening?.value.retire()
    }

    private func open() async throws -> OriginClient {
        let address = try await address()
        var tls = TLSConfiguration.makeClientConfiguration()
        tls.additionalTrustRoots = sender.trust.isEmpty ? [] : [.certificates(sender.trust)]
        var configuration = HTTPClient.Configuration(
            tlsConfiguration: tls, redirectConfiguration: .disallow,
            timeout: .init(connect: TimeAmount(answerLimit), read: TimeAmount(answerLimit)), decompression: .disabled)
        configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = Self.connections
        configuration.connectionPool.retryConnectionEstablishment = false
        // Nobody reads spans, and a request's costs.
        configuration.tracing.tracer = nil
        // A proxy of the environment would look the name up for itself.
        configuration.proxy = nil
        if IPAddress(endpoint.host) == nil { configuration.dnsOverride = [endpoint.host: address.description] }
        return OriginClient(
            HTTPClient(eventLoopGroup: MultiThreadedEventLoopGroup.singleton, configuration: configuration))
    }

    /// One of the name's addresses; another each time.
    private func address() async throws -> IPAddress {
        if let address = IPAddress(endpoint.host) {
            guard sender.rules.allows(address, of: endpoint) else { throw Self.forbidden }
            return address
        }
        let found = try await sender.addresses(endpoint.host)
        let allowed = found.filter { sender.rules.allows($0, of: endpoint) }
        guard let address = allowed.randomElement() else {
            throw found.isEmpty ? WebPushError("host", "has no address") : Self.forbidden
        }
        return address
    }

    private static let forbidden = WebPushError("endpoint", "must not lead into a private or local network")
}

/// A client for one address of a service. Ends when it was retired and its last request is over.
private final class OriginClient: Sendable {
    private let client: HTTPClient
    private let state = Mutex((users: 0, isRetired: false))

    init(_ client: HTTPClient) {
        self.client = client
    }

    /// - Returns: false once it was retired.
    func acquire() -> Bool {
        state.withLock { state in
            if !state.isRetired { state.users += 1 }
            return !state.isRetired
        }
    }

    func release() {
        shutDown { $0.users -= 1 }
    }

    /// - Returns: false if it was retired before.
    @discardableResult
    func retire() -> Bool {
        var isNew = false
        shutDown { state in
            isNew = !state.isRetired
            state.isRetired = true
        }
        return isNew
    }

    private func shutDown(after change: (inout (users: Int, isRetired: Bool)) -> Void) {
        let isLast = state.withLock { state in
            let wasLast = state.isRetired && state.users == 0
            change(&state)
            return !wasLast && state.isRetired && state.users == 0
        }
        if isLast { client.shutdown { _ in } }
    }

    func send(_ request: HTTPClientRequest, timeout: Duration, now: Timestamp) async throws -> WebPushAnswer {
        let response = try await client.execute(request, timeout: TimeAmount(timeout))
        var body = ByteBuffer()
        // What is longer is not read; it ends with the response.
        for try await part in response.body {
            body.writeImmutableBuffer(part)
            if body.readableBytes >= WebPushRequest.longestAnswer { break }
        }
        return WebPushAnswer(response.status.code, response.headers, body: body, now: now)
    }
}

/// Looks names up as the system does.
enum HostResolver {
    @Sendable static func addresses(_ host: String) async throws -> [IPAddress] {
        try await NIOThreadPool.singleton.runIfActive {
            var hints = addrinfo()
            hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
            var list: UnsafeMutablePointer<addrinfo>?
            let result = getaddrinfo(host, nil, &hints, &list)
            guard result == 0 else {
                throw WebPushError("host", "cannot be looked up: \(String(cString: gai_strerror(result)))")
            }
            defer { freeaddrinfo(list) }
            var addresses: [IPAddress] = []
            var next = list
            while let entry = next {
                if let address = IPAddress(numeric(entry.pointee)) { addresses.append(address) }
                next = entry.pointee.ai_next
            }
            return addresses
        }
    }

    private static func numeric(_ entry: addrinfo) -> String {
        var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        getnameinfo(entry.ai_addr, entry.ai_addrlen, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST)
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}

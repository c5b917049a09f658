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
        var client: OriginClient?
        /// Looks up and makes a client; those that come meanwhile wait for it.
        var opening: Task<OriginClient, any Error>?
        /// How many were made: each connects to the next of the name's addresses.
        var opened = 0
        var isClosed = false
    }

    /// It was closed before the push was sent.
    private struct Closed: Error {}

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
    var isIdle: Bool { state.withLock { $0.outstanding == 0 } }
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
        } catch is Closed {
            return .notSent
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

    /// One that may be used, until it is released.
    private func client() async throws -> OriginClient {
        while true {
            let (client, opening) = try acquire()
            if let client { return client }
            _ = try await opening?.value(within: answerLimit)
        }
    }

    private func acquire() throws -> (OriginClient?, opening: Task<OriginClient, any Error>?) {
        try connection.withLock { connection in
            if connection.isClosed { throw Closed() }
            if let client = connection.client, client.acquire() { return (client, nil) }
            let opening = connection.opening ?? Task { try await self.open() }
            connection.opening = opening
            return (nil, opening)
        }
    }

    /// The next request looks the name up anew.
    private func giveUp(_ client: OriginClient) {
        connection.withLock { if client.retire() { $0.client = nil } }
    }

    /// Requests that are on their way end first.
    func close() {
        connection.withLock { connection in
            connection.isClosed = true
            return connection.client
        }?.retire()
    }

    private func open() async throws -> OriginClient {
        do {
            let client = try await makeClient()
            let isClosed = connection.withLock { connection in
                (connection.client, connection.opening) = (client, nil)
                return connection.isClosed
            }
            if isClosed { client.retire() }
            return client
        } catch {
            connection.withLock { $0.opening = nil }
            throw error
        }
    }

    private func makeClient() async throws -> OriginClient {
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

    /// One of the name's addresses, in the system's order; the next each time.
    private func address() async throws -> IPAddress {
        if let address = IPAddress(endpoint.host) {
            guard sender.rules.allows(address, of: endpoint) else { throw Self.forbidden }
            return address
        }
        let found = try await sender.addresses(endpoint.host)
        let allowed = found.filter { sender.rules.allows($0, of: endpoint) }
        guard !allowed.isEmpty else {
            throw found.isEmpty ? WebPushError("host", "has no address") : Self.forbidden
        }
        let number = connection.withLock { connection in
            defer { connection.opened += 1 }
            return connection.opened
        }
        return allowed[number % allowed.count]
    }

    private static let forbidden = WebPushError("endpoint", "must not lead into a private or local network")
}

extension Task where Failure == any Error {
    /// Waits for it no longer than the limit, or the waiting task, allows: neither reaches a look-up by the system.
    fileprivate func value(within limit: Duration) async throws -> Success {
        let (results, continuation) = AsyncStream.makeStream(of: Result<Success, any Error>.self)
        Task<Void, Never> { continuation.yield(await result) }
        let timer = Task<Void, Never> {
            try? await Task<Never, Never>.sleep(for: limit)
            continuation.finish()
        }
        defer { timer.cancel() }
        for await result in results { return try result.get() }
        try Task<Never, Never>.checkCancellation()
        throw WebPushError("host", "was not looked up in time")
    }
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
        let deadline = ContinuousClock.now + timeout
        let response = try await client.execute(request, timeout: TimeAmount(timeout))
        var body = ByteBuffer()
        do {
            // What is longer, or comes later, is not read; it ends with the response.
            for try await part in response.body {
                body.writeImmutableBuffer(part)
                if body.readableBytes >= WebPushRequest.longestAnswer || ContinuousClock.now >= deadline { break }
            }
        } catch {
            // The status is the answer, whatever becomes of its explanation.
        }
        return WebPushAnswer(response.status.code, response.headers, body: body, now: now)
    }
}

/// Looks names up as the system does.
enum HostResolver {
    @Sendable static func addresses(_ host: String) async throws -> [IPAddress] {
        try await NIOThreadPool.singleton.runIfActive {
            var hints = addrinfo()
            hints.ai_flags = AI_ADDRCONFIG
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

package import AsyncHTTPClient
package import ChatDomain
package import GatewayPool
package import NIOCore
package import NIOSSL
import PushWire
import Synchronization

extension PushEndpoint {
    /// Returns the addresses of the host to which the relay may connect, at least one, in the order of the lookup.
    package func addresses(
        by rules: EndpointRules, _ lookup: @Sendable (_ host: String) async throws -> [IPAddress]
    ) async throws -> [IPAddress] {
        let found = if let address = IPAddress(host) { [address] } else { try await lookup(host) }
        guard !found.isEmpty else { throw WebPushError("host", "has no address") }
        let allowed = found.filter { rules.allows($0, of: self) }
        guard !allowed.isEmpty else {
            throw rules.broken("must not lead into a private or local network", by: self)
        }
        return allowed
    }
}

extension Task where Failure == any Error {
    /// Waits for the value until the limit is over or the waiting task is cancelled. Neither event can interrupt a
    /// lookup by the system.
    package func value(within limit: Duration) async throws -> Success {
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

extension TLSConfiguration {
    /// The client configuration for hosts that strangers choose.
    package static func ofChosenHost() -> TLSConfiguration {
        var tls = makeClientConfiguration()
        tls.minimumTLSVersion = .tlsv12
        // Do not wait for a service that does not respond to the TLS close.
        tls.shutdownTimeout = .milliseconds(500)
        return tls
    }
}

/// A client for one address of an endpoint, which the caller has checked, over HTTP/1.1. It shuts down when nothing
/// refers to it any more, and so after its last request.
package final class CheckedClient: Sendable {
    package let address: IPAddress
    private let client: HTTPClient
    private let retired = Atomic(false)

    /// - Parameters:
    ///   - connections: The maximum number of connections.
    ///   - idleLimit: The time after which an idle connection is closed.
    package init(
        _ endpoint: PushEndpoint, at address: IPAddress, _ tls: TLSConfiguration = .ofChosenHost(),
        timeLimit: TimeAmount, connections: Int, idleLimit: TimeAmount = .seconds(60)
    ) {
        self.address = address
        var configuration = HTTPClient.Configuration(
            tlsConfiguration: tls, redirectConfiguration: .disallow,
            timeout: .init(connect: timeLimit, read: timeLimit),
            connectionPool: .init(
                idleTimeout: idleLimit, concurrentHTTP1ConnectionsPerHostSoftLimit: connections),
            decompression: .disabled)
        configuration.httpVersion = .http1Only
        configuration.connectionPool.retryConnectionEstablishment = false
        // The relay does not read trace spans, and a span for each request would cost time.
        configuration.tracing.tracer = nil
        // A proxy from the environment would look up the name itself.
        configuration.proxy = nil
        if IPAddress(endpoint.host) == nil { configuration.dnsOverride = [endpoint.host: address.description] }
        client = .services(configuration)
    }

    deinit { client.shutdown { _ in } }

    /// Whether the client must not be used for further requests, because the host may have another address by now.
    package var isRetired: Bool { retired.load(ordering: .relaxed) }
    package func retire() { retired.store(true, ordering: .relaxed) }

    package func exchange(
        _ request: HTTPClientRequest, upTo bytes: Int, by deadline: NIODeadline
    ) async throws -> BoundedResponse {
        defer { withExtendedLifetime(self) {} }
        return try await client.exchange(request, upTo: bytes, by: deadline)
    }
}

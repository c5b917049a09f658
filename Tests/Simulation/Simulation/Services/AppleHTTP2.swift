import CSimulation
import ChatDomain
import Logging
import PushWire

@testable import APNSGateway
@testable import GatewayPool

/// Apple's HTTP/2 provider API (docs/http2-gateway.md).
final class AppleHTTP2: HTTP2PushService {
    private var usesTokens = false
    /// The provider tokens that the service has seen. Each ends with the second of its issue.
    private var tokens: [String] = []
    private var signed = 0
    /// The token that is too old, by the service's clock.
    private var expired: String?
    private let beganAt = Moment.now

    required init(_ world: World) {
        super.init(
            world,
            ServiceDialect(
                format: APNSFormat(.http2, payloadLimit: 4096),
                final: [
                    (400, "BadDeviceToken"), (413, "PayloadTooLarge"), (400, "DeviceTokenNotForTopic"),
                    (404, "BadPath"), (403, "Forbidden"), (400, "SomethingNew"),
                ],
                temporary: [
                    (500, "InternalServerError"), (429, "TooManyRequests"), (503, "ServiceUnavailable"), (408, ""),
                    (302, ""),
                ],
                returns: [(503, "Shutdown"), (400, "IdleTimeout"), (421, "")],
                credentials: [(403, "BadCertificate"), (403, "InvalidProviderToken"), (403, "SomethingNew")],
                gone: (410, "Unregistered"), body: { ProviderRefusal.body(reason: $0) }))
    }

    override func plan(_ choices: Choices) {
        super.plan(choices)
        if choices.dice.chance(50) { choices.add("provider tokens") { self.usesTokens = true } }
        if choices.dice.chance(30) {
            choices.add(choices.dice.within(1...3)) { dice in
                let length = dice.within(.milliseconds(1)...(.seconds(30)))
                return ("the provider token expires for \(length)", { self.expire(for: length) })
            }
        }
    }

    // MARK: - Provider tokens

    /// Lets the service's clock be wrong for a while.
    private func expire(for length: Duration) {
        guard !world.isCalm else { return }
        expired = tokens.last
        simulation_world.run(after: length) { self.expired = nil }
    }

    override func calmDown() {
        super.calmDown()
        expired = nil
    }

    override func refusal(of request: HTTP2PeerRequest) -> ServiceDialect.Response? {
        guard usesTokens else { return nil }
        guard let header = request.headers.first(name: "authorization"), header.hasPrefix("bearer ") else {
            return (403, "MissingProviderToken")
        }
        let text = String(header.dropFirst("bearer ".count))
        note(text)
        return text == expired ? (403, "ExpiredProviderToken") : nil
    }

    /// The service accepts a new token only twenty minutes after the one before.
    private func note(_ token: String) {
        guard !tokens.contains(token) else { return }
        defer { tokens.append(token) }
        // A clock that steps may make a token too old.
        guard !world.retention.hasStepped(since: beganAt) else { return }
        let shortestLife = IssuedToken.shortestLife.components.seconds
        for other in tokens where abs(issueTime(token) - issueTime(other)) < shortestLife {
            world.violate(.oneProviderToken, "\(token) was issued besides \(other)")
        }
    }

    private func issueTime(_ token: String) -> Int64 { token.split(separator: ".").last.flatMap { Int64($0) } ?? 0 }

    /// The relay's store, with signatures that need no random numbers.
    private struct SimulatedTokens: ProviderTokenStore, @unchecked Sendable {
        let store: any ProviderTokenStore
        let service: AppleHTTP2

        func providerToken(
            for key: ProviderKeyName, refused: String?, sign: @escaping @Sendable (Timestamp) throws -> String
        ) async throws(ChatError) -> IssuedToken {
            try await store.providerToken(for: key, refused: refused) { service.sign($0) }
        }
    }

    private func sign(_ time: Timestamp) -> String {
        signed += 1
        return "token\(signed).\(time.seconds)"
    }

    // MARK: - The gateway

    override func gateway(
        for life: Life, over connector: any Connector, logger: Logger
    ) throws -> any PushGateway {
        let endpoint = try GatewayEndpoint(
            host: "api.push.apple.com", port: 443, trust: nil, applicationProtocols: [GatewayEndpoint.http2])
        var options = HTTP2Options(connections: 3)
        options.connector = connector
        let key = try ProviderKey(pem: Self.key, keyID: "ABCDE12345", teamID: "FGHIJ67890")
        let tokens = TokenSource(key: key, store: SimulatedTokens(store: life.stores.providerTokens, service: self))
        let service = APNSService(
            endpoint: endpoint, bundleID: "com.example.app", tokens: usesTokens ? tokens : nil)
        let gateway = HTTP2Gateway(
            service: service, format: format, options: options, connectionIDs: ids, logger: logger)
        reload = { gateway.reconfigure(service: service) }
        return gateway
    }

    override func payload(of request: HTTP2PeerRequest) -> [UInt8]? { Array(buffer: request.body) }

    /// Made for the simulation. It signs nothing.
    private static let key = """
        -----BEGIN PRIVATE KEY-----
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgg+YwPCZg7gKwaKvo
        sbPhjFQD2bV+opke1CK70dmFGcKhRANCAAR+KdE0x3Z8rrVl5eY23GVcaLjL5ESf
        VDhr4O+LPXJj2vcjUsNzpc217dsBhtgcNCS6IMT6d3luQw7JsCgJv2ti
        -----END PRIVATE KEY-----
        """
}

package import ChatDomain
package import GatewayPool
package import PushWire
import Synchronization

/// Apple's HTTP/2 provider API, and an app's credentials for it. See `docs/http2-gateway.md`, and Apple, "Sending
/// notification requests to APNs" and "Establishing a connection to APNs".
package struct APNSService: HTTP2Service {
    package let endpoint: GatewayEndpoint
    /// The app's bundle id, from which topics are made. `nil` if the certificate's own topic is used.
    package let bundleID: String?
    /// The source of provider tokens. `nil` if the endpoint's certificate is the credential.
    package let tokens: TokenSource?
    /// The last provider token that the gateway rejected.
    private let refused = RefusedToken()

    package init(endpoint: GatewayEndpoint, bundleID: String?, tokens: TokenSource?) {
        self.endpoint = endpoint
        self.bundleID = bundleID
        self.tokens = tokens
    }

    package func client() async throws -> APNSClient {
        let token = try await tokens?.token(refused: refused.text.withLock { $0 })
        return APNSClient(host: endpoint.host, bundleID: bundleID, token: token, refused: refused)
    }
}

final class RefusedToken: Sendable {
    let text = Mutex<String?>(nil)
}

/// The requests and responses of one connection to Apple's HTTP/2 provider API.
package struct APNSClient: HTTP2PushClient {
    private let template: HTTP2RequestTemplate
    private let mapping: OutcomeMapping
    private let token: IssuedToken?
    private let refused: RefusedToken

    init(host: String, bundleID: String?, token: IssuedToken?, refused: RefusedToken = RefusedToken()) {
        template = HTTP2RequestTemplate(host: host, bundleID: bundleID, token: token?.text)
        mapping = OutcomeMapping(host: host, bundleID: bundleID)
        self.token = token
        self.refused = refused
    }

    package func lifeLeft(at now: Timestamp) -> Duration? {
        token.map { .milliseconds(max(0, ($0.issuedAt + IssuedToken.lifetime).milliseconds - now.milliseconds)) }
    }

    package func request(for push: Push) -> HTTP2Request { template.request(for: push) }

    package func answer(to response: HTTP2Response) -> HTTP2Answer {
        mapping.answer(
            to: ProviderRefusal(status: response.status, body: response.body), type: response.type,
            writtenAt: response.writtenAt,
            notBefore: response.retryAfter.flatMap { Timestamp(retryAfter: $0, now: response.writtenAt) })
    }

    package func goAwayReason(_ debugData: [UInt8]) -> String? { ProviderRefusal.reason(in: debugData) }
    package func knows(type: String) -> Bool { PushType(rawValue: type).isDocumented }

    package func refused(_ problem: CredentialsProblem) {
        guard let token, problem.blamesToken else { return }
        refused.text.withLock { $0 = token.text }
    }
}

/// The source of an app's provider tokens: a key signs them, and a store keeps them for as long as they must be reused.
package struct TokenSource: Sendable {
    private let key: ProviderKey
    private let name: ProviderKeyName
    private let store: any ProviderTokenStore

    package init(key: ProviderKey, store: any ProviderTokenStore) {
        self.key = key
        self.name = ProviderKeyName(teamID: key.teamID, keyID: key.keyID, fingerprint: key.fingerprint)
        self.store = store
    }

    /// Returns the current token.
    /// - Parameter refused: The token that the service rejected. The store returns another one if the rejected token
    ///   may be replaced already.
    package func token(refused: String?) async throws -> IssuedToken {
        let key = key
        return try await store.providerToken(for: name, refused: refused) { try key.token(issuedAt: $0.seconds) }
    }
}

import AsyncHTTPClient
package import ChatDomain
import Foundation
package import GatewayPool
import NIOCore
import NIOSSL

/// A bearer token for FCM.
package struct OAuthToken: Sendable, Hashable {
    /// The time before a token's end from which it is not used for new connections. Google's own library uses this time.
    private static let margin = Duration.seconds(225)
    /// The range of a token's lifetime in seconds. A connection cannot be opened and used within a shorter life. If the
    /// token really ends before, FCM rejects it and the relay requests another.
    private static let lifetimes: ClosedRange<Int64> = 60...86_400

    let text: String
    /// The time until which connections use the token.
    let usableUntil: Timestamp
    /// Whether the token replaced one that FCM had rejected.
    var isReplacement = false

    /// Reads the response of the token endpoint. `nil` if it contains no usable token.
    init?(response: [UInt8], now: Timestamp) {
        guard let object = (try? JSONValue(parsing: response))?.object, let text = object["access_token"]?.text,
            (1...4096).contains(text.utf8.count), text.isVisibleASCII
        else { return nil }
        let seconds = object["expires_in"]?.integer ?? 3599
        let lifetime = Duration.seconds(min(max(seconds, Self.lifetimes.lowerBound), Self.lifetimes.upperBound))
        self.text = text
        usableUntil = now + max(lifetime - Self.margin, lifetime / 2)
    }
}

/// The reason why the token endpoint issued no token.
package struct OAuthTokenError: Error, Sendable, Hashable, CustomStringConvertible {
    package let description: String
    /// Whether the endpoint refused the account. A repetition does not help then.
    let isRefusal: Bool

    /// Reads a response without a token: `{"error":"invalid_grant","error_description":"…"}`.
    init(status: UInt, body: [UInt8], email: String) {
        let object = (try? JSONValue(parsing: body))?.object
        let reason = (object?["error"]?.text ?? "status \(status)").printableASCII(limit: 200)
        let detail = object?["error_description"]?.text.map { ": " + $0.printableASCII(limit: 200) } ?? ""
        isRefusal = (400..<500).contains(status) && ![408, 421, 425, 429].contains(status)
        let advice =
            switch object?["error"]?.text {
            case _ where !isRefusal: ""
            case "invalid_grant":
                "; is this machine's clock right, and do the service account \(email) and its key still exist?"
            default: "; check the service account \(email)"
            }
        description = "no access token from Google: \(reason)\(detail)\(advice)"
    }

    init(_ problem: String) {
        description = "no access token from Google: \(problem)"
        isRefusal = false
    }
}

/// Obtains access tokens for one service account. Several connections share a token, and wait for the same renewal.
package actor OAuthTokens {
    private static let timeLimit = TimeAmount.seconds(15)
    private static let longestResponse = 1 << 16

    package nonisolated let account: ServiceAccountFile
    private let fetch: @Sendable (ServiceAccountFile, Timestamp) async throws(OAuthTokenError) -> OAuthToken
    private let now: TimeSource
    private var current: OAuthToken?
    private var renewal: Task<Result<OAuthToken, OAuthTokenError>, Never>?
    /// The last refusal of the account, and the time until which the endpoint is not asked again.
    private var refusal: (error: OAuthTokenError, until: Timestamp)?
    private var pauses = Backoff(first: .seconds(30), longest: .seconds(900))

    /// - Parameter trust: A PEM file with further authorities, for a sandbox.
    package init(
        account: ServiceAccountFile, trust: String?, now: @escaping TimeSource = Timestamp.now
    ) throws(CredentialsError) {
        let tls = try TLSConfiguration.client(trust: trust)
        self.init(account: account, now: now) { account, now throws(OAuthTokenError) in
            try await Self.fetch(account, tls, now)
        }
    }

    /// - Parameter fetch: Asks the token endpoint.
    init(
        account: ServiceAccountFile, now: @escaping TimeSource,
        fetch: @escaping @Sendable (ServiceAccountFile, Timestamp) async throws(OAuthTokenError) -> OAuthToken
    ) {
        self.account = account
        self.now = now
        self.fetch = fetch
    }

    /// Returns a token that is usable for some time.
    ///
    /// - Parameter refused: A token that FCM has rejected. Another one is returned.
    package func token(refused: String? = nil) async throws(OAuthTokenError) -> OAuthToken {
        if let current, current.usableUntil > now(), current.text != refused { return current }
        if let refusal, refusal.until > now() { throw refusal.error }
        let isReplacement = refused != nil && current?.text == refused
        let renewal =
            renewal
            ?? Task { [fetch, account, now] in
                do throws(OAuthTokenError) {
                    return .success(try await fetch(account, now()))
                } catch {
                    return .failure(error)
                }
            }
        self.renewal = renewal
        let result = await renewal.value
        // Several callers may wait for this renewal. The first one records the result.
        if self.renewal == renewal {
            self.renewal = nil
            record(result, isReplacement: isReplacement)
        }
        switch result {
        case .success(let token): return current ?? token
        case .failure(let error): throw error
        }
    }

    private func record(_ result: Result<OAuthToken, OAuthTokenError>, isReplacement: Bool) {
        switch result {
        case .success(var token):
            token.isReplacement = isReplacement
            current = token
            refusal = nil
            pauses.reset()
        case .failure(let error) where error.isRefusal:
            refusal = (error, now() + pauses.delay())
        case .failure: break
        }
    }

    private static func fetch(
        _ account: ServiceAccountFile, _ tls: TLSConfiguration, _ now: Timestamp
    ) async throws(OAuthTokenError) -> OAuthToken {
        var configuration = HTTPClient.Configuration(
            tlsConfiguration: tls, redirectConfiguration: .disallow,
            timeout: .init(connect: timeLimit, read: timeLimit))
        configuration.httpVersion = .http1Only
        let client = HTTPClient.services(configuration)
        let result: Result<BoundedResponse, any Error>
        do {
            var request = HTTPClientRequest(url: account.tokenURL)
            request.method = .POST
            request.headers.add(name: "content-type", value: "application/x-www-form-urlencoded")
            let assertion = try account.assertion(issuedAt: now.seconds)
            request.body = .bytes(
                ByteBuffer(
                    string: "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=\(assertion)"))
            result = .success(try await client.exchange(request, upTo: longestResponse, by: .now() + timeLimit))
        } catch {
            result = .failure(error)
        }
        try? await client.shutdown()
        switch result {
        case .success(let response) where response.status == .ok:
            guard let token = OAuthToken(response: response.body, now: now) else {
                throw OAuthTokenError("the response has no token")
            }
            return token
        case .success(let response):
            throw OAuthTokenError(status: response.status.code, body: response.body, email: account.email)
        case .failure(let error):
            throw OAuthTokenError(ConnectionFailure.text(error))
        }
    }
}

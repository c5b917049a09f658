import Crypto
import CryptoExtras
import Foundation
import PushWire

/// The token endpoint: verifies a client's signed request, and issues access tokens (RFC 7523; Google, "Using OAuth 2.0
/// for Server to Server Applications").
struct AccessTokens: Sendable {
    /// An error of the token endpoint (RFC 6749, section 5.2). All have the status 400.
    struct Refusal: Error, Sendable, Hashable, JSONRecord {
        let error: String
        let errorDescription: String

        var json: JSONMembers { ["error": error, "error_description": errorDescription] }

        static func grant(_ description: String) -> Refusal {
            Refusal(error: "invalid_grant", errorDescription: description)
        }
    }

    /// An access token, encoded as in the endpoint's response.
    struct Grant: Sendable, Hashable, JSONRecord {
        let token: String
        /// The validity in seconds.
        let lifetime: Int

        var json: JSONMembers { ["access_token": token, "expires_in": lifetime, "token_type": "Bearer"] }
    }

    /// The validity of an access token in seconds, as Google issues them.
    static let lifetime = 3599
    /// The maximum number of valid access tokens. A further one ends the oldest.
    static let limit = 1000
    /// The maximum size of a request in bytes.
    static let maxBody = 16_384
    private static let grantType = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    /// The maximum validity of a client's assertion, and the maximum difference of the clocks, in seconds.
    private static let assertionLifetime: Int64 = 3600
    private static let clockTolerance: Int64 = 300
    /// One of these scopes must be among those that the client asks for.
    private static let scopes = ["firebase.messaging", "cloud-platform"].map { "https://www.googleapis.com/auth/" + $0 }

    private let account: ServiceAccount
    /// The project whose messages the tokens allow.
    var project: String { account.projectID }
    private let key: _RSA.Signing.PublicKey
    /// The valid tokens and the times at which they expire, oldest first.
    private var issued: [(token: String, expiresAt: Date)] = []

    init(_ account: ServiceAccount) throws {
        self.account = account
        key = try account.publicKey
    }

    /// Decides on a request for an access token.
    ///
    /// - Parameter form: The fields of the form.
    mutating func grant(
        _ form: [String: String], at now: Date, randomBytes: (Int) -> [UInt8]
    ) throws(Refusal) -> Grant {
        guard form["grant_type"] == Self.grantType else {
            throw Refusal(
                error: "unsupported_grant_type", errorDescription: "Invalid grant_type: must be \(Self.grantType)")
        }
        guard let assertion = form["assertion"], !assertion.isEmpty else {
            throw Refusal(error: "invalid_request", errorDescription: "Missing required parameter: assertion")
        }
        try check(assertion, at: Int64(now.timeIntervalSince1970))
        let token = "ya29." + Base64URL.text(randomBytes(48))
        if issued.count == Self.limit { issued.removeFirst() }
        issued.append((token, now.addingTimeInterval(Double(Self.lifetime))))
        return Grant(token: token, lifetime: Self.lifetime)
    }

    /// Checks the header `Authorization` of a call.
    func check(authorization value: String?, at now: Date) throws(FCMRefusal) {
        let parts = (value ?? "").split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "bearer",
            issued.contains(where: { $0.token == parts[1] && $0.expiresAt > now })
        else { throw .unauthenticated }
    }

    /// Ends all access tokens.
    mutating func expireAll() { issued = [] }

    // MARK: - Assertions

    private struct Header: Decodable {
        let alg: String
        let kid: String?
    }

    private struct Claims: Decodable {
        let iss: String
        let scope: String?
        let aud: String
        let iat: Int64
        let exp: Int64
    }

    private func check(_ assertion: String, at now: Int64) throws(Refusal) {
        let parts = assertion.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3, let header: Header = Self.decode(parts[0]), let signature = Base64URL.bytes(parts[2])
        else { throw .grant("Invalid JWT: must be three parts in base64url, separated by dots.") }
        guard header.alg == "RS256" else { throw .grant("Invalid JWT: alg must be RS256.") }
        guard header.kid == nil || header.kid == account.privateKeyID,
            key.isValidSignature(
                .init(rawRepresentation: Data(signature)), for: Data("\(parts[0]).\(parts[1])".utf8),
                padding: .insecurePKCS1v1_5)
        else { throw .grant("Invalid JWT Signature.") }
        guard let claims: Claims = Self.decode(parts[1]) else {
            throw .grant("Invalid JWT: must have iss, aud, iat and exp.")
        }
        guard claims.iss == account.clientEmail else { throw .grant("Invalid grant: account not found") }
        guard [ServiceAccount.audience, account.tokenURL].contains(claims.aud) else {
            throw .grant("Invalid JWT: aud must be \(ServiceAccount.audience) or \(account.tokenURL).")
        }
        // The first rules keep the difference in the last one from overflowing.
        guard claims.iat >= 0, claims.iat <= now + Self.clockTolerance, now - Self.clockTolerance < claims.exp,
            (0...Self.assertionLifetime).contains(claims.exp - claims.iat)
        else {
            throw .grant(
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat "
                    + "and exp values in the JWT claim.")
        }
        let scopes = (claims.scope ?? "").split(separator: " ").map(String.init)
        guard scopes.contains(where: Self.scopes.contains) else {
            throw Refusal(
                error: "invalid_scope", errorDescription: "Invalid OAuth scope or ID token audience provided.")
        }
    }

    private static func decode<Value: Decodable>(_ part: Substring) -> Value? {
        Base64URL.bytes(part).flatMap { try? JSONDecoder().decode(Value.self, from: Data($0)) }
    }
}

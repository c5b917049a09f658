import ChatDomain
import JWTKit

/// Verifies session tokens: JSON Web Tokens signed by the operator's own system (RFC 7519), with HS256, ES256 or RS256.
struct TokenVerifier: SessionVerifier {
    /// The maximum size of a token, in bytes.
    static let maxTokenLength = 8192
    /// The maximum number of keys in a key set.
    static let maxKeys = 100

    /// A source of keys for verifying tokens.
    enum Source: Sendable {
        /// A secret shared with the signing system.
        case secret([UInt8])
        /// A public key or a certificate in PEM format.
        case pem(String)
        /// A JSON Web Key Set.
        case keySet([UInt8])
    }

    /// A source without usable keys. The description tells the operator why.
    struct Unusable: Error, Sendable, CustomStringConvertible {
        let description: String

        init(_ description: String) {
            self.description = description
        }
    }

    private let keys: [SessionKey]
    private let rules: SessionRules
    private let now: TimeSource

    /// Reads the keys of all sources.
    ///
    /// - Parameter sources: The sources of keys. A token must be signed with one of the keys.
    /// - Throws: The error of the first source that cannot be used.
    init(
        _ sources: [Source], rules: SessionRules = SessionRules(), now: @escaping TimeSource = Timestamp.now
    ) async throws(Unusable) {
        var keys: [SessionKey] = []
        for source in sources {
            switch source {
            case .secret(let secret): keys.append(try await SessionKey(secret: secret))
            case .pem(let pem): keys.append(try await SessionKey(pem: pem))
            case .keySet(let json): keys += try await Self.keys(of: json)
            }
        }
        self.keys = keys
        self.rules = rules
        self.now = now
    }

    private static func keys(of json: [UInt8]) async throws(Unusable) -> [SessionKey] {
        let set: JSONValue
        do throws(JSONValue.Malformed) {
            set = try JSONValue(parsing: json)
        } catch {
            throw Unusable("not valid JSON: \(error)")
        }
        guard let members = set.object?["keys"]?.array else {
            throw Unusable("not a JSON Web Key Set: it must be an object with an array named keys")
        }
        guard members.count <= maxKeys else {
            throw Unusable("a set of \(members.count) keys; at most \(maxKeys) are allowed")
        }
        var keys: [SessionKey] = []
        for case .object(let member) in members {
            if let key = try await SessionKey(jwk: member) { keys.append(key) }
        }
        guard !keys.isEmpty else {
            throw Unusable("a key set without a key for HS256, ES256 or RS256")
        }
        return keys
    }

    func session(of token: String) async throws(ChatError) -> UserSession {
        guard token.utf8.count <= Self.maxTokenLength else {
            throw .unauthorized("The session token has more than \(Self.maxTokenLength) bytes")
        }
        let header: JWTHeader
        do {
            header = try DefaultJWTParser().parse(Array(token.utf8), as: SessionClaims.self).header
        } catch {
            throw .unauthorized("The session token cannot be read: it must be a JSON Web Token")
        }
        // RFC 7515 §4.1.11: a token with a critical header that is not understood is invalid.
        guard header[dynamicMember: "crit"] == nil else { throw .unauthorized("The session token requires extensions") }
        let candidates = keys.filter { key in
            key.algorithm.rawValue == header.alg && (header.kid == nil || key.id == nil || key.id == header.kid)
        }
        guard !candidates.isEmpty else {
            let known = Set(keys.map(\.algorithm.rawValue)).sorted().joined(separator: " or ")
            throw .unauthorized("The session token is not signed with a key of this relay (\(known))")
        }
        for key in candidates {
            guard let claims = try? await key.collection.verify(token, as: SessionClaims.self) else { continue }
            return try claims.check(rules, now: now())
        }
        throw .unauthorized("The session token's signature is invalid")
    }
}

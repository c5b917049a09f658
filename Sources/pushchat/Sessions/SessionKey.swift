import ChatDomain
import Foundation
import JWTKit

/// A key, bound to one algorithm. The algorithm in a token's header only selects among the keys. It never decides how a
/// key is used.
struct SessionKey: Sendable {
    enum Algorithm: String, Sendable, CaseIterable {
        case hs256 = "HS256"
        case es256 = "ES256"
        case rs256 = "RS256"
    }

    /// The minimum size of a shared secret, in bytes (RFC 7518 §3.2).
    static let shortestSecret = 32

    let id: String?
    let algorithm: Algorithm
    /// A collection of only this key, so that JWTKit cannot select another one.
    let collection: JWTKeyCollection

    typealias Unusable = TokenVerifier.Unusable

    init(secret: [UInt8], id: String? = nil) async throws(Unusable) {
        guard secret.count >= Self.shortestSecret else {
            throw Unusable(
                "a secret for HS256 must have at least \(Self.shortestSecret) bytes, this one has \(secret.count)")
        }
        self.init(
            id, .hs256, await JWTKeyCollection().add(hmac: HMACKey(from: secret), digestAlgorithm: .sha256))
    }

    /// Reads a public key or a certificate in PEM format: P-256 for ES256, RSA for RS256.
    init(pem: String) async throws(Unusable) {
        let isCertificate = pem.contains("BEGIN CERTIFICATE")
        if let key = isCertificate ? try? ES256PublicKey(certificate: pem) : try? ES256PublicKey(pem: pem) {
            self = await SessionKey(key, id: nil)
        } else if let key = isCertificate
            ? try? Insecure.RSA.PublicKey(certificatePEM: pem) : try? Insecure.RSA.PublicKey(pem: pem)
        {
            self = await SessionKey(key, id: nil)
        } else if pem.contains("PRIVATE KEY") {
            throw Unusable("a private key; use its public key instead, which `openssl pkey -pubout` prints")
        } else {
            throw Unusable("neither a P-256 nor an RSA public key (2048 bits or more), nor a certificate with one")
        }
    }

    /// Reads one key of a JWKS (RFC 7517). `nil` if session tokens cannot be signed with keys of its type or use.
    init?(jwk: JSONObject) async throws(Unusable) {
        let id = jwk["kid"]?.text
        let name = id.map { "the key \($0)" } ?? "a key without kid"
        guard jwk["use"]?.text ?? "sig" == "sig" else { return nil }
        let algorithm = jwk["alg"]?.text
        switch jwk["kty"]?.text {
        case "oct" where algorithm ?? "HS256" == "HS256":
            guard let secret = jwk["k"]?.text.flatMap(Self.bytes) else {
                throw Unusable("\(name) has no k in Base64URL")
            }
            try await self.init(secret: secret, id: id)
        case "EC" where algorithm ?? "ES256" == "ES256" && jwk["crv"]?.text == "P-256":
            guard let x = jwk["x"]?.text, let y = jwk["y"]?.text, let key = try? ES256PublicKey(parameters: (x, y))
            else { throw Unusable("\(name) is not a point on P-256") }
            await self.init(key, id: id)
        case "RSA" where algorithm ?? "RS256" == "RS256":
            guard let n = jwk["n"]?.text, let e = jwk["e"]?.text,
                let key = try? Insecure.RSA.PublicKey(modulus: n, exponent: e)
            else { throw Unusable("\(name) is not an RSA key of 2048 bits or more") }
            await self.init(key, id: id)
        default: return nil
        }
    }

    private init(_ key: ES256PublicKey, id: String?) async {
        self.init(id, .es256, await JWTKeyCollection().add(ecdsa: key))
    }

    private init(_ key: Insecure.RSA.PublicKey, id: String?) async {
        self.init(id, .rs256, await JWTKeyCollection().add(rsa: key, digestAlgorithm: .sha256))
    }

    private init(_ id: String?, _ algorithm: Algorithm, _ collection: JWTKeyCollection) {
        self.id = id
        self.algorithm = algorithm
        self.collection = collection
    }

    private static func bytes(base64URL text: String) -> [UInt8]? {
        let plain = text.map { $0 == "-" ? "+" : $0 == "_" ? "/" : $0 }
        let padding = String(repeating: "=", count: (4 - plain.count % 4) % 4)
        return Data(base64Encoded: String(plain) + padding).map(Array.init)
    }
}

import Crypto
import CryptoExtras
import Foundation
import PushWire
import Testing

@testable import PushSandbox

@Suite("The token endpoint")
struct AccessTokensTests {
    private static let now = Date(timeIntervalSince1970: 1_796_000_000)
    private static let account = Result {
        try ServiceAccount(tokenURL: "https://localhost:2194/token") { SymmetricKey.randomBytes($0) }
    }

    private struct Claims: Encodable {
        var iss: String
        var scope: String? = "https://www.googleapis.com/auth/firebase.messaging"
        var aud = ServiceAccount.audience
        var iat = Int64(AccessTokensTests.now.timeIntervalSince1970)
        var exp = Int64(AccessTokensTests.now.timeIntervalSince1970) + 3600
    }

    /// Returns a form with a signed assertion.
    private static func form(
        _ account: ServiceAccount, header: String? = nil, change: (inout Claims) -> Void = { _ in }
    ) throws -> [String: String] {
        var claims = Claims(iss: account.clientEmail)
        change(&claims)
        let header = header ?? #"{"alg":"RS256","typ":"JWT","kid":"\#(account.privateKeyID)"}"#
        let text = Base64URL.text(Array(header.utf8)) + "." + Base64URL.text(Array(try JSONEncoder().encode(claims)))
        let key = try _RSA.Signing.PrivateKey(pemRepresentation: account.privateKey)
        let signature = try key.signature(for: Data(text.utf8), padding: .insecurePKCS1v1_5)
        return [
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": text + "." + Base64URL.text(Array(signature.rawRepresentation)),
        ]
    }

    private static func grant(_ form: [String: String]) throws -> AccessTokens.Grant {
        var tokens = try AccessTokens(account.get())
        return try tokens.grant(form, at: now) { SymmetricKey.randomBytes($0) }
    }

    @Test("A signed request gets a token that is valid for an hour")
    func granted() throws {
        let account = try Self.account.get()
        var tokens = try AccessTokens(account)
        let grant = try tokens.grant(Self.form(account), at: Self.now) { SymmetricKey.randomBytes($0) }
        #expect(grant.lifetime == 3599)
        try tokens.check(authorization: "Bearer \(grant.token)", at: Self.now.addingTimeInterval(3598))
        for (value, time) in [("Bearer \(grant.token)", 3600.0), ("Bearer x", 0), (grant.token, 0), ("", 0)] {
            #expect(throws: FCMRefusal.unauthenticated) {
                try tokens.check(authorization: value, at: Self.now.addingTimeInterval(time))
            }
        }
        tokens.expireAll()
        #expect(throws: FCMRefusal.unauthenticated) {
            try tokens.check(authorization: "Bearer \(grant.token)", at: Self.now)
        }
    }

    @Test("Requests of Google's libraries are accepted: the endpoint itself as audience, many scopes")
    func libraries() throws {
        let account = try Self.account.get()
        _ = try Self.grant(Self.form(account) { $0.aud = account.tokenURL })
        _ = try Self.grant(
            Self.form(account) { claims in
                claims.scope =
                    "https://www.googleapis.com/auth/datastore https://www.googleapis.com/auth/cloud-platform"
            })
    }

    @Test("Another signature, issuer, audience, scope or time is refused")
    func refused() throws {
        let account = try Self.account.get()
        var forged = try Self.form(account)
        forged["assertion"] = forged["assertion"].map { $0.dropLast(8) + "AAAAAAAA" }
        let wrongs: [(String, [String: String])] = [
            ("invalid_grant", forged),
            ("invalid_grant", try Self.form(account, header: #"{"alg":"HS256"}"#)),
            ("invalid_grant", try Self.form(account, header: #"{"alg":"RS256","kid":"other"}"#)),
            ("invalid_grant", try Self.form(account) { $0.iss = "other@example.org" }),
            ("invalid_grant", try Self.form(account) { $0.aud = "https://example.org" }),
            ("invalid_grant", try Self.form(account) { $0.exp = $0.iat + 3601 }),
            ("invalid_grant", try Self.form(account) { ($0.iat, $0.exp) = ($0.iat - 4000, $0.exp - 4000) }),
            ("invalid_grant", try Self.form(account) { ($0.iat, $0.exp) = ($0.iat + 400, $0.exp + 400) }),
            ("invalid_grant", try Self.form(account) { ($0.iat, $0.exp) = (-1, .max) }),
            ("invalid_grant", try Self.form(account) { ($0.iat, $0.exp) = (.min, .min) }),
            ("invalid_scope", try Self.form(account) { $0.scope = "https://www.googleapis.com/auth/drive" }),
            ("unsupported_grant_type", ["grant_type": "password"]),
            ("invalid_request", ["grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"]),
        ]
        for (error, form) in wrongs {
            let refusal = #expect(throws: AccessTokens.Refusal.self) { try Self.grant(form) }
            #expect(refusal?.error == error)
        }
    }

    @Test("A service account file keeps its key when the address changes")
    func file() throws {
        let account = try Self.account.get()
        var read = try #require(ServiceAccount(account.file))
        #expect(read == account)
        read.tokenURL = "https://localhost:4000/token"
        #expect(try ServiceAccount(read.file)?.privateKey == account.privateKey)
        #expect(ServiceAccount(Array("{}".utf8)) == nil)
    }
}

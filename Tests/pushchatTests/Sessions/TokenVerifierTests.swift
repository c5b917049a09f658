import ChatDomain
import Foundation
import JWTKit
import Testing

@testable import pushchat

@Suite("Session tokens")
struct TokenVerifierTests {
    static let now = Timestamp(seconds: 1_780_000_000)
    static let secret = Array("a secret that is long enough, 34 b".utf8)

    /// Signs as the operator's system does.
    struct Signer {
        let keys: JWTKeyCollection
        let source: TokenVerifier.Source
        let algorithm: String

        static func all() async throws -> [Signer] {
            let ec = ES256PrivateKey()
            let rsa = try Insecure.RSA.PrivateKey(pem: Keys.rsa)
            return [
                Signer(
                    keys: await JWTKeyCollection().add(hmac: HMACKey(from: secret), digestAlgorithm: .sha256),
                    source: .secret(secret), algorithm: "HS256"),
                Signer(
                    keys: await JWTKeyCollection().add(ecdsa: ec), source: .pem(ec.publicKey.pemRepresentation),
                    algorithm: "ES256"),
                Signer(
                    keys: await JWTKeyCollection().add(rsa: rsa, digestAlgorithm: .sha256),
                    source: .pem(rsa.publicKey.pemRepresentation), algorithm: "RS256"),
            ]
        }

        func sign(_ claims: SessionClaims, kid: String? = nil) async throws -> String {
            var header = JWTHeader()
            header.kid = kid
            return try await keys.sign(claims, header: header)
        }
    }

    static func claims(
        subject: String? = "alice", expires: Double? = 60, notBefore: Double? = nil, audience: [String]? = nil,
        issuer: String? = nil
    ) -> SessionClaims {
        let base = Double(now.seconds)
        return SessionClaims(
            subject: subject, expires: expires.map { base + $0 }, notBefore: notBefore.map { base + $0 },
            audience: audience, issuer: issuer)
    }

    static func verifier(
        _ source: TokenVerifier.Source, rules: SessionRules = SessionRules()
    ) async throws -> TokenVerifier {
        try await TokenVerifier([source], rules: rules, now: { now })
    }

    static func reason(_ token: String, _ verifier: TokenVerifier) async -> String? {
        do throws(ChatError) {
            _ = try await verifier.session(of: token)
            return nil
        } catch {
            #expect(error.code == .unauthorized)
            return error.message
        }
    }

    @Test("The subject of a good token is the user, with each algorithm")
    func good() async throws {
        for signer in try await Signer.all() {
            let verifier = try await Self.verifier(signer.source)
            #expect(try await verifier.session(of: signer.sign(Self.claims())).user.text == "alice")
        }
    }

    @Test(
        "A session ends when its token is refused, which is a minute after the token's own end",
        arguments: [(60.0, 120_000), (0.5, 60_500), (1e300, nil)] as [(Double, Int64?)])
    func end(expires: Double, milliseconds: Int64?) async throws {
        let signer = try await Signer.all()[0]
        let token = try await signer.sign(Self.claims(expires: expires))
        let session = try await Self.verifier(signer.source).session(of: token)
        #expect(session.end.milliseconds == milliseconds.map { Self.now.milliseconds + $0 } ?? 253_402_300_799_000)
        guard milliseconds != nil else { return }
        let late = try await TokenVerifier([signer.source], now: { session.end })
        #expect(await Self.reason(token, late)?.contains("has expired") == true)
    }

    @Test("A token of another key, or of another algorithm's key, is refused")
    func foreign() async throws {
        let (signers, others) = (try await Signer.all(), try await Signer.all())
        for (index, signer) in signers.enumerated() where index > 0 {
            let verifier = try await Self.verifier(signer.source)
            for other in others where other.algorithm != signer.algorithm {
                let reason = await Self.reason(try await other.sign(Self.claims()), verifier)
                #expect(reason == "The session token is not signed with a key of this relay (\(signer.algorithm))")
            }
        }
        let verifier = try await Self.verifier(signers[1].source)
        #expect(
            await Self.reason(try await others[1].sign(Self.claims()), verifier)
                == "The session token's signature is invalid")
    }

    @Test("A token signed with the public key's text as a shared secret is refused")
    func confusion() async throws {
        let signer = try await Signer.all()[2]
        guard case .pem(let pem) = signer.source else {
            Issue.record("RS256 is not signed with a key in PEM")
            return
        }
        let forger = await JWTKeyCollection().add(hmac: HMACKey(from: pem), digestAlgorithm: .sha256)
        let token = try await forger.sign(Self.claims())
        #expect(await Self.reason(token, try await Self.verifier(signer.source))?.contains("RS256") == true)
    }

    @Test("A token without a signature is refused")
    func unsigned() async throws {
        let verifier = try await Self.verifier(.secret(Self.secret))
        func part(_ text: String) -> String {
            Data(text.utf8).base64EncodedString().replacingOccurrences(of: "=", with: "")
        }
        let payload = part(#"{"sub":"alice","exp":99999999999}"#)
        for header in [#"{"alg":"none"}"#, #"{"alg":"None"}"#, "{}", #"{"alg":"HS256"}"#] {
            #expect(await Self.reason("\(part(header)).\(payload).", verifier) != nil)
        }
        for text in [
            "", ".", "..", "a.b.c", "no token", String(repeating: "x", count: 10_000), "\(payload).\(payload).",
        ] {
            #expect(await Self.reason(text, verifier) != nil)
        }
    }

    @Test(
        "Claims that are not valid now are refused",
        arguments: [
            (claims(expires: -61), "has expired"), (claims(expires: nil), "needs the claim exp"),
            (claims(notBefore: 61), "not valid yet"), (claims(subject: nil), "needs the claim sub"),
            (claims(subject: " "), "must not be empty"), (claims(audience: ["shop"]), "another audience"),
            (claims(subject: String(repeating: "x", count: 256)), "at most 255 bytes"),
        ])
    func refused(claims: SessionClaims, expected: String) async throws {
        let signer = try await Signer.all()[0]
        let reason = await Self.reason(try await signer.sign(claims), try await Self.verifier(signer.source))
        #expect(reason?.contains(expected) == true, "\(reason ?? "accepted")")
    }

    @Test("Clocks may differ by a minute")
    func leeway() async throws {
        let signer = try await Signer.all()[0]
        let verifier = try await Self.verifier(signer.source)
        #expect(await Self.reason(try await signer.sign(Self.claims(expires: -59)), verifier) == nil)
        #expect(await Self.reason(try await signer.sign(Self.claims(notBefore: 59)), verifier) == nil)
    }

    @Test("Audience and issuer are checked if the rules name them")
    func rules() async throws {
        let signer = try await Signer.all()[0]
        let verifier = try await Self.verifier(
            signer.source, rules: SessionRules(audience: "chat", issuer: "https://example.com"))
        func reason(_ audience: [String]?, _ issuer: String?) async throws -> String? {
            await Self.reason(try await signer.sign(Self.claims(audience: audience, issuer: issuer)), verifier)
        }
        #expect(try await reason(["shop", "chat"], "https://example.com") == nil)
        #expect(try await reason(["shop"], "https://example.com")?.contains("audience") == true)
        #expect(try await reason([], "https://example.com")?.contains("audience") == true)
        #expect(try await reason(nil, "https://example.com")?.contains("audience") == true)
        #expect(try await reason(["chat"], "https://example.org")?.contains("issuer") == true)
        #expect(try await reason(["chat"], nil)?.contains("issuer") == true)
    }

    @Test("A key set finds the key by its id and skips keys for other uses")
    func keySet() async throws {
        let (ec, other) = (ES256PrivateKey(), ES256PrivateKey())
        let rsa = try Insecure.RSA.PrivateKey(pem: Keys.rsa)
        let (n, e) = try rsa.publicKey.getKeyPrimitives()
        func url(_ data: Data) -> String {
            data.base64EncodedString().replacingOccurrences(of: "+", with: "-").replacingOccurrences(of: "/", with: "_")
                .replacingOccurrences(of: "=", with: "")
        }
        func jwk(_ key: ES256PrivateKey, _ kid: String) throws -> String {
            let point = try #require(key.publicKey.parameters)
            return #"{"kty":"EC","crv":"P-256","kid":"\#(kid)","x":"\#(point.x)","y":"\#(point.y)"}"#
        }
        let set = """
            {"keys":[\(try jwk(other, "old")),\(try jwk(ec, "new")),
            {"kty":"RSA","kid":"r","alg":"RS256","use":"sig","n":"\(url(n))","e":"\(url(e))"},
            {"kty":"oct","kid":"s","k":"\(url(Data(Self.secret)))"},
            {"kty":"RSA","kid":"enc","use":"enc","n":"AA","e":"AQAB"},{"kty":"OKP","crv":"Ed25519","x":"AA"}]}
            """
        let verifier = try await Self.verifier(.keySet(Array(set.utf8)))
        let ecKeys = await JWTKeyCollection().add(ecdsa: ec)
        func sign(_ keys: JWTKeyCollection, _ kid: String?) async throws -> String {
            var header = JWTHeader()
            header.kid = kid
            return try await keys.sign(Self.claims(), header: header)
        }
        #expect(await Self.reason(try await sign(ecKeys, "new"), verifier) == nil)
        #expect(await Self.reason(try await sign(ecKeys, nil), verifier) == nil)
        #expect(await Self.reason(try await sign(ecKeys, "old"), verifier)?.contains("signature") == true)
        #expect(await Self.reason(try await sign(ecKeys, "gone"), verifier)?.contains("not signed with a key") == true)
        let rsaKeys = await JWTKeyCollection().add(rsa: rsa, digestAlgorithm: .sha256)
        #expect(await Self.reason(try await sign(rsaKeys, "r"), verifier) == nil)
        let secret = await JWTKeyCollection().add(hmac: HMACKey(from: Self.secret), digestAlgorithm: .sha256)
        #expect(await Self.reason(try await sign(secret, "s"), verifier) == nil)
    }

    @Test("A token may be signed with a key of any source")
    func several() async throws {
        let signers = try await Signer.all()
        let verifier = try await TokenVerifier(signers.map(\.source), now: { Self.now })
        for signer in signers {
            #expect(
                try await verifier.session(of: signer.sign(Self.claims(subject: signer.algorithm))).user.text
                    == signer.algorithm)
        }
    }

    @Test(
        "A source without a usable key is refused with the reason",
        arguments: [
            (TokenVerifier.Source.secret(Array("short".utf8)), "at least 32 bytes"),
            (.pem("nonsense"), "neither a P-256 nor an RSA public key"), (.pem(Keys.rsa), "a private key"),
            (.keySet(Array("[".utf8)), "not valid JSON"), (.keySet(Array("{}".utf8)), "array named keys"),
            (.keySet(Array(#"{"keys":[]}"#.utf8)), "without a key"),
            (.keySet(Array(#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#.utf8)), "not a point on P-256"),
        ])
    func unusable(source: TokenVerifier.Source, expected: String) async throws {
        let error = await #expect(throws: TokenVerifier.Unusable.self) { try await TokenVerifier([source]) }
        #expect(error?.description.contains(expected) == true, "\(error?.description ?? "none")")
    }
}

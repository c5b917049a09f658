import Crypto
import Foundation
import Testing

@testable import PushWire

/// Compares the values of the HTTP/2 provider API with Apple's pages "Sending notification requests to APNs" and
/// "Handling notification responses from APNs".
@Suite("HTTP/2 values")
struct ProviderWireTests {
    @Test("Each reason has the status of Apple's table")
    func reasons() {
        let table: [Int: String] = [
            400:
                "BadCollapseId BadDeviceToken BadExpirationDate BadMessageId BadPriority BadTopic DeviceTokenNotForTopic "
                + "DuplicateHeaders IdleTimeout InvalidPushType MissingDeviceToken MissingTopic PayloadEmpty TopicDisallowed",
            403: "BadCertificate BadCertificateEnvironment ExpiredProviderToken Forbidden InvalidProviderToken "
                + "MissingProviderToken UnrelatedKeyIdInToken BadEnvironmentKeyIdInToken BadEnvironmentKeyInToken",
            404: "BadPath", 405: "MethodNotAllowed", 410: "ExpiredToken Unregistered", 413: "PayloadTooLarge",
            429: "TooManyProviderTokenUpdates TooManyRequests", 500: "InternalServerError",
            503: "ServiceUnavailable Shutdown",
        ]
        var seen = 0
        for (status, names) in table {
            for name in names.split(separator: " ") {
                #expect(ProviderReason(rawValue: String(name))?.status == status, "\(name)")
                seen += 1
            }
        }
        #expect(seen == ProviderReason.allCases.count)
    }

    @Test(
        "The action follows from the reason; for an unknown one, from the status",
        arguments: [
            (400, "BadDeviceToken", .giveUp), (410, "Unregistered", .deactivate), (410, "ExpiredToken", .deactivate),
            (429, "TooManyRequests", .retryDevice), (429, "TooManyProviderTokenUpdates", .waitForCredentials),
            (403, "ExpiredProviderToken", .waitForCredentials), (503, "Shutdown", .reconnect),
            (503, "ServiceUnavailable", .retryService), (413, "PayloadTooLarge", .giveUp), (400, "Novel", .giveUp),
            (403, "Novel", .waitForCredentials), (410, "Novel", .deactivate), (429, "Novel", .retryDevice),
            (408, "Status408", .retryService), (421, "Status421", .reconnect), (425, "Status425", .retryService),
            (500, "Novel", .retryService), (599, "Novel", .retryService), (418, "Novel", .giveUp),
            (204, "Status204", .retryService), (302, "Status302", .retryService),
        ] as [(Int, String, RefusalAction)])
    func remedies(status: Int, reason: String, action: RefusalAction) {
        #expect(ProviderRefusal(status: status, reason: reason).action == action)
    }

    @Test(
        "A response's body is read as far as it is valid",
        arguments: [
            (#"{"reason":"Unregistered","timestamp":1469818512000}"#, "Unregistered", 1_469_818_512_000),
            (#"{"timestamp":"x","reason":"Novel"}"#, "Novel", nil), (#"{"reason":5,"timestamp":7}"#, "Status410", 7),
            ("", "Status410", nil), ("<html>", "Status410", nil), ("[]", "Status410", nil),
            (#"{"reason":"Bad\u202EToken\u2028\u0007é"}"#, "BadToken", nil), (#"{"reason":""}"#, "Status410", nil),
            (#"{"reason":" \u202E\u2066"}"#, "Status410", nil),
            (#"{"reason":"\#(String(repeating: "x", count: 200))"}"#, String(repeating: "x", count: 100), nil),
        ] as [(String, String, Int64?)])
    func bodies(body: String, reason: String, timestamp: Int64?) {
        let refusal = ProviderRefusal(status: 410, body: Array(body.utf8))
        #expect(refusal == ProviderRefusal(status: 410, reason: reason, timestamp: timestamp))
    }

    @Test("A body is written as Apple writes it, with a timestamp only if there is one")
    func writing() {
        #expect(ProviderRefusal(.badTopic).body == #"{"reason":"BadTopic"}"#)
        #expect(ProviderRefusal(.unregistered, timestamp: 5).body == #"{"reason":"Unregistered","timestamp":5}"#)
        #expect(ProviderRefusal(.unregistered).status == 410)
    }

    @Test("Each push type has its topic, and a topic that has the suffix keeps it")
    func topics() {
        let types = PushType.documented.map(\.key)
        let topics = types.map { $0.topic(bundleID: "app") }
        #expect(
            topics == [
                "app", "app", "app.location-query", "app.voip", "app.complication", "app.pushkit.fileprovider", "app",
                "app.push-type.liveactivity", "app.voip-ptt", "app.push-type.widgets", "app.push-type.controls",
                "app.push-type.accessory",
            ])
        #expect(PushType.voip.topic(bundleID: "app.voip") == "app.voip")
        #expect(types.filter { $0.payloadLimit == 5120 } == [.voip])
        #expect(types.filter(\.needsProviderToken) == [.location, .liveactivity])
        #expect(types.allSatisfy { $0.warning == nil })
    }

    @Test(
        "A push type that Apple may add has the app's topic, the usual limit, and a warning that names the known ones")
    func novelType() {
        let novel = PushType(rawValue: "novel")
        #expect(novel.topic(bundleID: "app") == "app")
        #expect(novel.payloadLimit == 4096)
        #expect(novel.warning?.hasPrefix("push type novel is not known; known are alert, background, ") == true)
    }
}

/// Tests provider tokens (Apple, "Establishing a token-based connection to APNs").
@Suite("Provider tokens")
struct ProviderTokenTests {
    private static let key = P256.Signing.PrivateKey()

    private func token(
        header: String = #"{"alg":"ES256","kid":"8YL3G3RRX7"}"#,
        claims: String = #"{"iss":"C86NV9JX3D","iat":1459143580}"#, isDER: Bool = false
    ) throws -> String {
        let signed = [header, claims].map { Base64URL.text(Array($0.utf8)) }.joined(separator: ".")
        let signature = try Self.key.signature(for: Data(signed.utf8))
        let bytes = isDER ? signature.derRepresentation : signature.rawRepresentation
        return signed + "." + Base64URL.text(Array(bytes))
    }

    @Test("The key's token can be read: ES256, 64 bytes, a number of seconds, nothing else")
    func round() throws {
        let key = try ProviderKey(pem: Self.key.pemRepresentation, keyID: "8YL3G3RRX7", teamID: "C86NV9JX3D")
        let text = try key.token(issuedAt: 1_459_143_580)
        let parts = text.split(separator: ".").map { Base64URL.bytes($0) ?? [] }
        #expect(String(decoding: parts[0], as: UTF8.self) == #"{"alg":"ES256","kid":"8YL3G3RRX7"}"#)
        #expect(String(decoding: parts[1], as: UTF8.self) == #"{"iss":"C86NV9JX3D","iat":1459143580}"#)
        #expect(parts[2].count == 64)
        let token = try ProviderToken(parsing: text)
        #expect(token.keyID == "8YL3G3RRX7")
        #expect(token.teamID == "C86NV9JX3D")
        #expect(token.issuedAt == 1_459_143_580)
        #expect(token.deviations == [])
        #expect(token.isSigned(by: key.publicKey))
        #expect(!token.isSigned(by: P256.Signing.PrivateKey().publicKey))
    }

    @Test(
        "Tokens that live services accept can be read, and their deviations are named",
        arguments: [
            ("1459143580", true, [.derSignature]), (#""1459143580""#, false, [.textualIssueTime]),
            (#""1459143580650""#, true, [.textualIssueTime, .millisecondIssueTime, .derSignature]),
            ("1459143580.65", false, []),
        ] as [(String, Bool, [ProviderToken.Deviation])])
    func lenient(iat: String, isDER: Bool, deviations: [ProviderToken.Deviation]) throws {
        let text = try token(claims: #"{"iss":"C86NV9JX3D","iat":\#(iat)}"#, isDER: isDER)
        let token = try ProviderToken(parsing: text)
        #expect(token.issuedAt == 1_459_143_580)
        #expect(token.deviations == deviations)
        #expect(token.isSigned(by: Self.key.publicKey))
    }

    @Test("The sample of Apple's own page is refused because it lacks alg")
    func appleSample() {
        let sample =
            "eyAia2lkIjogIjhZTDNHM1JSWDciIH0.eyAiaXNzIjogIkM4Nk5WOUpYM0QiLCAiaWF0IjogIjE0NTkxNDM1ODA2NTAiIH0."
            + "MEYCIQDzqyahmH1rz1s-LFNkylXEa2lZ_aOCX4daxxTZkVEGzwIhALvkClnx5m5eAT6Lxw7LZtEQcH6JENhJTMArwLf3sXwi"
        #expect(
            throws: ProviderToken.Malformed(description: "the header is not JSON in base64url, or lacks alg or kid")
        ) {
            try ProviderToken(parsing: sample)
        }
    }

    @Test(
        "The error for an invalid token gives the reason",
        arguments: [
            ("", "three parts"), ("a.b", "three parts"), ("a.b.c.d", "three parts"), ("e30.e30.AA", "alg or kid"),
            ("!.e30.AA", "alg or kid"), (String(repeating: "a", count: 4097), "4096 bytes"),
        ])
    func malformed(text: String, why: String) {
        #expect {
            try ProviderToken(parsing: text)
        } throws: { error in
            (error as? ProviderToken.Malformed)?.description.contains(why) == true
        }
    }

    @Test(
        "Other algorithms, missing claims and padding are refused",
        arguments: [
            (#"{"alg":"HS256","kid":"K"}"#, #"{"iss":"T","iat":1}"#, "ES256"),
            (#"{"alg":"none","kid":"K"}"#, #"{"iss":"T","iat":1}"#, "ES256"),
            (#"{"alg":"ES256","kid":"K"}"#, #"{"iat":1}"#, "iss or iat"),
            (#"{"alg":"ES256","kid":"K"}"#, #"{"iss":"T"}"#, "iss or iat"),
            (#"{"alg":"ES256","kid":"K"}"#, #"{"iss":"T","iat":"soon"}"#, "iss or iat"),
        ])
    func claims(header: String, claims: String, why: String) throws {
        let text = try token(header: header, claims: claims)
        #expect {
            try ProviderToken(parsing: text)
        } throws: { error in
            (error as? ProviderToken.Malformed)?.description.contains(why) == true
        }
        #expect(throws: ProviderToken.Malformed.self) { try ProviderToken(parsing: self.token() + "=") }
    }

    @Test("A change of any part breaks the signature; invalid signature bytes are rejected")
    func tampering() throws {
        let good = try token()
        let other = try token(claims: #"{"iss":"C86NV9JX3D","iat":1459143581}"#)
        let parts = good.split(separator: ".")
        let others = other.split(separator: ".")
        let swapped = try ProviderToken(parsing: "\(parts[0]).\(others[1]).\(parts[2])")
        #expect(!swapped.isSigned(by: Self.key.publicKey))
        #expect(try !ProviderToken(parsing: "\(parts[0]).\(parts[1]).AAAA").isSigned(by: Self.key.publicKey))
    }
}

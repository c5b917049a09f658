import Crypto
import Foundation
import PushWire
import Testing

@testable import PushSandbox

/// Tests provider tokens over the lifetime of a connection.
@Suite("HTTP/2: provider tokens", .serialized)
struct SandboxAuthenticationTests {
    private static let key = P256.Signing.PrivateKey()
    private static let now = Date(timeIntervalSince1970: 1_800_000_000)

    private func authentication(isStrict: Bool = false) -> SandboxAuthentication {
        SandboxAuthentication(
            keys: .init(teamID: "TEAM000000", keys: ["KEY0000000": .init(key: Self.key.publicKey)]), isStrict: isStrict)
    }

    private func token(iat: String = "1800000000", team: String = "TEAM000000", isDER: Bool = false) throws -> String {
        let parts = [#"{"alg":"ES256","kid":"KEY0000000"}"#, #"{"iss":"\#(team)","iat":\#(iat)}"#]
        let signed = parts.map { Base64URL.text(Array($0.utf8)) }.joined(separator: ".")
        let signature = try Self.key.signature(for: Data(signed.utf8))
        let bytes = isDER ? signature.derRepresentation : signature.rawRepresentation
        return "bearer " + signed + "." + Base64URL.text(Array(bytes))
    }

    private func check(
        _ value: String?, _ authentication: inout SandboxAuthentication, after seconds: Double = 0
    ) -> ProviderReason? {
        do throws(SandboxAuthentication.Refusal) {
            _ = try authentication.check(value, at: Self.now + seconds)
            return nil
        } catch {
            return error.reason
        }
    }

    @Test("A valid token expires an hour after its issue, although its signature is not checked again")
    func expiry() throws {
        var authentication = authentication()
        let value = try token()
        #expect(check(value, &authentication) == nil)
        #expect(check(value, &authentication, after: 3600) == nil)
        #expect(check(value, &authentication, after: 3601) == .expiredProviderToken)
        #expect(check(try token(iat: "1800003601"), &authentication, after: 3601) == nil)
    }

    @Test("A token from the future is rejected")
    func future() throws {
        var authentication = authentication()
        #expect(check(try token(iat: "1800003700"), &authentication) == .expiredProviderToken)
    }

    @Test(
        "An impossible issue time is rejected, at both ends of the range of numbers",
        arguments: ["-9223372036854775808", "-1", "0", "9223372036854775807", "-1e308", "1e308"], [false, true])
    func extremeTime(iat: String, isText: Bool) throws {
        var authentication = authentication()
        let value = try token(iat: isText ? "\"\(iat)\"" : iat)
        // As a string, 1e308 is not an integer.
        let isNone = isText && iat.contains("e")
        #expect(check(value, &authentication) == (isNone ? .invalidProviderToken : .expiredProviderToken))
    }

    @Test("A new token is accepted after twenty minutes, not before; the same time signed again is no new token")
    func updates() throws {
        var authentication = authentication()
        let first = try token()
        #expect(check(first, &authentication) == nil)
        #expect(check(try token(), &authentication, after: 10) == nil)
        let second = try token(iat: "1800000600")
        #expect(check(second, &authentication, after: 1199) == .tooManyProviderTokenUpdates)
        #expect(check(first, &authentication, after: 1199) == nil)
        #expect(check(second, &authentication, after: 1200) == nil)
        #expect(check(first, &authentication, after: 1300) == .tooManyProviderTokenUpdates)
    }

    @Test(
        "Deviations that Apple is known to accept are accepted with a warning, and rejected when strict",
        arguments: [
            ("1800000000", true, [.derSignature]), (#""1800000000""#, false, [.textualIssueTime]),
            (#""1800000000000""#, false, [.textualIssueTime, .millisecondIssueTime]),
            ("1800000000000", true, [.millisecondIssueTime, .derSignature]), ("1800000000", false, []),
        ] as [(String, Bool, [ProviderToken.Deviation])])
    func deviations(iat: String, isDER: Bool, deviations: [ProviderToken.Deviation]) throws {
        let value = try token(iat: iat, isDER: isDER)
        var lenient = authentication()
        #expect(check(value, &lenient) == nil)
        #expect(lenient.takeDeviations() == deviations)
        #expect(check(value, &lenient) == nil)
        #expect(lenient.takeDeviations() == [])
        var strict = authentication(isStrict: true)
        #expect(check(value, &strict) == (deviations.isEmpty ? nil : .invalidProviderToken))
    }

    @Test("Another team, another scheme, a changed signature and a missing token are rejected")
    func refusals() throws {
        var authentication = authentication()
        #expect(check(nil, &authentication) == .missingProviderToken)
        #expect(check(try token(team: "TEAM000001"), &authentication) == .invalidProviderToken)
        let value = try token()
        #expect(check("basic" + value.dropFirst(6), &authentication) == .invalidProviderToken)
        #expect(check(String(value.dropFirst(7)), &authentication) == .invalidProviderToken)
        let parts = value.split(separator: ".")
        let other = try token(iat: "1800000001").split(separator: ".")
        #expect(check("\(parts[0]).\(parts[1]).\(other[2])", &authentication) == .invalidProviderToken)
        #expect(check("Bearer " + value.dropFirst(7), &authentication) == nil)
    }

    @Test("A token that a fault expired stays expired until another arrives")
    func expiredByFault() throws {
        var authentication = authentication()
        let value = try token()
        #expect(check(value, &authentication) == nil)
        authentication.expire(value)
        #expect(check(value, &authentication) == .expiredProviderToken)
        #expect(check(try token(iat: "1800000060"), &authentication, after: 60) == nil)
        #expect(check(value, &authentication, after: 61) != nil)
    }
}

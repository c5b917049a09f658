import ChatDomain
import Testing

@testable import pushchat

@Suite("The verdict of a test push on the credentials")
struct CredentialProofTests {
    private func verdict(
        _ outcome: DirectResult.Outcome, _ reason: String?, gateway: AppConfiguration.Gateway = .http2
    ) throws -> CredentialProof.Verdict {
        var app = AppConfiguration(name: .default, environment: .production, gateway: gateway)
        (app.key, app.topic) = ("/key.p8", "com.example.PushChat")
        var result = DirectResult(token: try #require(DeviceToken(bytes: [UInt8](repeating: 0, count: 32))))
        (result.outcome, result.reason) = (outcome, reason)
        return CredentialProof(app: app).verdict(result)
    }

    @Test("A rejected device token proves the key and the topic", arguments: ["BadDeviceToken", "InvalidToken"])
    func proven(reason: String) throws {
        guard case .proven(let text) = try verdict(.refused, reason) else {
            Issue.record("not proven")
            return
        }
        #expect(text.hasSuffix("(\(reason))"))
    }

    @Test(
        "FCM's rejection of an installation proves the service account",
        arguments: ["UNREGISTERED", "INVALID_ARGUMENT"])
    func provenByFCM(reason: String) throws {
        let text = "service account and project are accepted: only the token of this test was refused (\(reason))"
        #expect(try verdict(.refused, reason, gateway: .fcm) == .proven(text))
        guard case .refused = try verdict(.refused, "SENDER_ID_MISMATCH", gateway: .fcm),
            case .refused = try verdict(.refused, reason)
        else {
            Issue.record("proven")
            return
        }
        #expect(AppConfiguration.Gateway.fcm.kind.strangersToken?.kind == .installation)
        #expect(AppConfiguration.Gateway.http2.kind.strangersToken?.bytes?.count == 32)
    }

    @Test(
        "The result names the problem of the credentials and the remedy",
        arguments: [
            ("InvalidProviderToken", "key, key id and team id do not belong together"),
            ("ExpiredProviderToken", "clock right?"),
            ("TopicDisallowed", "the key is not for the topic com.example.PushChat"),
            ("BadEnvironmentKeyIdInToken", "for the other environment"),
            ("BadCertificateEnvironment", "change host or certificate"),
        ])
    func refused(reason: String, advice: String) throws {
        guard case .refused(let text) = try verdict(.refused, reason) else {
            Issue.record("not refused")
            return
        }
        #expect(text.hasPrefix("\(reason): ") && text.contains(advice))
    }

    @Test("Silence and acceptance prove nothing")
    func open() throws {
        guard case .inconclusive = try verdict(.accepted, nil), case .refused = try verdict(.unsent, nil) else {
            Issue.record("another verdict")
            return
        }
    }
}

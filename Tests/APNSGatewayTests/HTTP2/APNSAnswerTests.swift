import ChatDomain
import GatewayPool
import Testing

@testable import APNSGateway

@Suite("Apple's answers to pushes")
struct APNSAnswerTests {
    @Test("A temporary refusal is retried no sooner than the gateway asks for", arguments: [408, 425, 429, 500, 503])
    func retryAfter(status: Int) throws {
        let now = Timestamp(seconds: 1_800_000_000)
        let token = try #require(DeviceToken(bytes: [UInt8](repeating: 1, count: 32)))
        let client = APNSClient(host: "api.push.apple.com", bundleID: "com.example.App", token: nil)
        func outcome(_ retryAfter: String?) -> Outcome? {
            client.answer(
                to: HTTP2Response(
                    status: status, retryAfter: retryAfter, body: [], address: .token(token), writtenAt: now)
            ).outcome
        }
        #expect(outcome("120") == .retry(reason: "Status\(status)", notBefore: now + .seconds(120)))
        #expect(outcome(nil) == .retry(reason: "Status\(status)"))
    }
}

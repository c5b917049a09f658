import ChatDomain
import PushWire
import Testing

@testable import APNSGateway

@Suite("Apple's answers to broadcasts")
struct BroadcastAnswerTests {
    @Test(
        "A status and a reason make an answer",
        arguments: [
            (400, "FeatureNotEnabled", BroadcastAnswer.missingCapability("FeatureNotEnabled")),
            (400, "BroadcastFeatureNotEnabled", .missingCapability("BroadcastFeatureNotEnabled")),
            (404, "BadPath", .gone("BadPath")), (400, "ChannelNotRegistered", .gone("ChannelNotRegistered")),
            (400, "CannotCreateChannelConfig", .refused("CannotCreateChannelConfig")),
            (403, "ExpiredProviderToken", .unavailable("ExpiredProviderToken")),
            (429, "TooManyRequests", .unavailable("TooManyRequests")), (408, "Status408", .unavailable("Status408")),
            (302, "Status302", .unavailable("Status302")), (421, "Status421", .unavailable("Status421")),
            (425, "Status425", .unavailable("Status425")),
            (503, "Service Unavailable", .unavailable("Service Unavailable")),
        ])
    func refusals(status: Int, reason: String, answer: BroadcastAnswer) {
        #expect(BroadcastAnswer(ProviderRefusal(status: status, reason: reason), channel: nil) == answer)
    }

    @Test("A created channel has its id")
    func created() {
        #expect(
            BroadcastAnswer(ProviderRefusal(status: 201, body: []), channel: "aB+/=") == .accepted(channel: "aB+/="))
    }

    @Test(
        "A created channel without a usable id is refused, so that each device gets its own pushes",
        arguments: [nil, "", "a b", "a\nb", "a\u{0}b", "é", String(repeating: "x", count: 257)] as [String?])
    func unusable(channel: String?) {
        let answer = BroadcastAnswer(ProviderRefusal(status: 201, body: []), channel: channel).ofCreation
        guard case .refused = answer else {
            Issue.record("\(answer)")
            return
        }
    }

    @Test("Only an accepted creation needs an id")
    func usable() {
        #expect(BroadcastAnswer.accepted(channel: "aB+/=").ofCreation == .accepted(channel: "aB+/="))
        #expect(BroadcastAnswer.unavailable("Status503").ofCreation == .unavailable("Status503"))
    }
}

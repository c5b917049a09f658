import ChatDomain
import NIOCore
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("Delays between attempts")
struct BackoffTests {
    @Test("Delays double up to the maximum, are randomly shortened by up to a half, and restart after a success")
    func doubling() {
        var backoff = Backoff(first: .milliseconds(50), longest: .seconds(5))
        let delays = (0..<30).map { _ in backoff.delay() }
        #expect(delays.prefix(3) == [.milliseconds(50), .milliseconds(100), .milliseconds(200)])
        #expect(delays.suffix(23).allSatisfy { $0 == .seconds(5) })
        #expect(backoff.delay(random: 0) == .milliseconds(2500))
        #expect(backoff.delay(limit: .seconds(1)) == .seconds(1))
        backoff.reset()
        #expect(backoff.delay(random: 0) == .milliseconds(25))
    }

    @Test("Reconnects happen at once after progress, and otherwise after growing delays within the jitter")
    func reconnects() {
        var backoff = ReconnectBackoff()
        let delays = (0..<10).map { _ in backoff.delay(after: .nothing, random: 1) }
        #expect(delays.prefix(4) == [.milliseconds(250), .milliseconds(500), .seconds(1), .seconds(2)])
        #expect(delays.last == .seconds(30))
        #expect(backoff.delay(after: .nothing, random: 0) == .seconds(15))
        #expect(backoff.delay(after: .nothing, hasSucceededRecently: true, random: 1) == .milliseconds(250))
        #expect(backoff.delay(after: .progress, random: 1) == .zero)
        let refused = (0..<22).map { _ in backoff.delay(after: .refusal, random: 1) }
        #expect(refused == Array(repeating: .zero, count: 20) + Array(repeating: .milliseconds(200), count: 2))
        #expect(backoff.delay(after: .progress, random: 1) == .zero)
        #expect(backoff.delay(after: .refusal, random: 1) == .zero)
        #expect(backoff.delay(after: .nothing, random: 1) == .milliseconds(250))
    }
}

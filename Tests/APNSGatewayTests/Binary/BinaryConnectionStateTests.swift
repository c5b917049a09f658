import ChatDomain
import NIOCore
import PushWire
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("The state of a binary connection")
struct BinaryConnectionStateTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func at(_ milliseconds: Int64) -> NIODeadline { Self.start + .milliseconds(milliseconds) }

    private func state(written: UInt32 = 0) -> BinaryConnectionState {
        var state = BinaryConnectionState(
            connectionID: ConnectionID(7), settleTime: .seconds(5), stallLimit: .seconds(15), now: Self.start)
        state.willWrite(through: written, now: Self.start)
        return state
    }

    private func report(
        _ identifiers: ClosedRange<UInt32>, _ outcome: Outcome, late: Bool = false
    ) -> DeliveryReport {
        DeliveryReport(connection: ConnectionID(7), identifiers: identifiers, outcome: outcome, overrulesSilence: late)
    }

    private func answer(_ status: BinaryStatus, _ identifier: UInt32) -> BinaryErrorResponse {
        BinaryErrorResponse(status: status, identifier: identifier)
    }

    @Test(
        "An error response accepts the pushes before the named one, rejects that, and leaves later ones unprocessed",
        arguments: [
            BinaryStatus.missingDeviceToken, .missingTopic, .missingPayload, .invalidTokenSize, .invalidTopicSize,
            .invalidPayloadSize, .invalidToken, .protocolError, BinaryStatus(rawValue: 99),
        ])
    func refusal(status: BinaryStatus) {
        var state = state(written: 10)
        let refusal: Outcome =
            status == .invalidToken ? .badAddress(reason: "InvalidToken") : .rejected(reason: status.name)
        #expect(
            state.answered(answer(status, 4)) == [
                report(1...3, .accepted), report(4...4, refusal),
                report(5...10, .notProcessed),
            ])
        #expect(state.isSettled)
        #expect(!state.takesPushes)
        #expect(state.closed(reason: "x").isEmpty)
    }

    @Test("A push is retried after a failure of the gateway", arguments: [BinaryStatus.processingError, .unknown])
    func fault(status: BinaryStatus) {
        var state = state(written: 1)
        #expect(state.answered(answer(status, 1)) == [report(1...1, .retry(reason: status.name))])
    }

    @Test("Shutdown names the last accepted push, and sending resumes after it")
    func shutdown() {
        var state = state(written: 10)
        #expect(
            state.answered(answer(.shutdown, 4)) == [
                report(1...3, .accepted), report(4...4, .accepted), report(5...10, .notProcessed),
            ])
        var last = self.state(written: 4)
        #expect(last.answered(answer(.shutdown, 4)) == [report(1...3, .accepted), report(4...4, .accepted)])
    }

    @Test("Identifier 0, and one that was never used, leave all pushes in doubt", arguments: [UInt32(0), 11, .max])
    func unknownIdentifier(identifier: UInt32) {
        var state = state(written: 10)
        #expect(
            state.answered(answer(.invalidToken, identifier)) == [
                report(1...10, .unanswered(reason: "InvalidToken"))
            ])
        var closing = self.state(written: 10)
        #expect(closing.answered(answer(.shutdown, 0)) == [report(1...10, .notProcessed)])
    }

    @Test("A close without a response leaves all unsettled pushes in doubt")
    func silentClose() {
        var state = state(written: 3)
        #expect(state.closed(reason: "ConnectionClosed") == [report(1...3, .unanswered(reason: "ConnectionClosed"))])
        var idle = self.state()
        #expect(idle.closed(reason: "ConnectionClosed").isEmpty)
        #expect(idle.result == .nothing)
    }

    @Test("The sentinel's response proves all pushes before it")
    func sentinel() {
        var state = state(written: 3)
        #expect(state.willWriteSentinel() == 4)
        #expect(!state.takesPushes)
        #expect(state.answered(answer(.missingDeviceToken, 4)) == [report(1...3, .accepted)])
        #expect(state.result == .progress)
    }

    @Test("Identifier 0 in the response to a sentinel means the sentinel")
    func anonymousSentinel() {
        var state = state(written: 3)
        _ = state.willWriteSentinel()
        #expect(state.answered(answer(.missingDeviceToken, 0)) == [report(1...3, .accepted)])
        #expect(state.sentinelResult == .answered)
    }

    @Test(
        "After a sentinel an error or shutdown that names no push leaves all in doubt, as they may be accepted",
        arguments: [BinaryStatus.processingError, .shutdown, .noErrors, .protocolError, .unknown], [UInt32(0), 5, .max])
    func sentinelNotUnderstood(status: BinaryStatus, identifier: UInt32) {
        var state = state(written: 3)
        _ = state.willWriteSentinel()
        #expect(!state.isTrial)
        #expect(
            state.answered(answer(status, identifier)) == [report(1...3, .unanswered(reason: status.name))])
        #expect(state.sentinelResult == .notUnderstood)
        #expect(state.result == .nothing)
    }

    @Test("A close after a sentinel is no response to it; a sentinel alone on a connection leaves nothing in doubt")
    func sentinelThenClose() {
        var state = state(written: 3)
        _ = state.willWriteSentinel()
        #expect(state.closed(reason: "x") == [report(1...3, .unanswered(reason: "x"))])
        #expect(state.sentinelResult == .notUnderstood)
        var trial = self.state()
        #expect(trial.willWriteSentinel() == 1)
        #expect(trial.isTrial)
        #expect(trial.closed(reason: "x").isEmpty)
        #expect(trial.sentinelResult == .notUnderstood)
    }

    @Test("An error response before the sentinel's is an ordinary one")
    func refusalBeforeSentinel() {
        var state = state(written: 3)
        _ = state.willWriteSentinel()
        #expect(
            state.answered(answer(.invalidToken, 3)) == [
                report(1...2, .accepted), report(3...3, .badAddress(reason: "InvalidToken")),
            ])
        #expect(state.sentinelResult == .notReached)
    }

    @Test("Silence settles pushes after the settle time, counted from the acknowledgement")
    func settles() {
        var state = state(written: 2)
        state.didWrite(through: 2, progress: TCPProgress(written: 500, acknowledged: 100), now: at(0))
        #expect(state.tick(progress: TCPProgress(written: 500, acknowledged: 300), now: at(100)) == nil)
        #expect(state.tick(progress: TCPProgress(written: 500, acknowledged: 500), now: at(300)) == nil)
        for time in stride(from: Int64(500), to: 5300, by: 200) {
            #expect(state.tick(progress: TCPProgress(written: 500, acknowledged: 500), now: at(time)) == nil)
        }
        #expect(
            state.tick(progress: TCPProgress(written: 500, acknowledged: 500), now: at(5300))
                == .settle(report(1...2, .accepted)))
        #expect(state.isSettled)
        #expect(state.result == .progress)
    }

    @Test("Writes settle one after another, and writes shortly after each other settle together")
    func settlesInSteps() {
        var state = state(written: 3)
        let drained = TCPProgress(written: 100, acknowledged: 100)
        state.didWrite(through: 1, progress: drained, now: at(0))
        state.didWrite(through: 2, progress: drained, now: at(20))
        for time in stride(from: Int64(100), to: 5100, by: 200) {
            if time == 2100 { state.didWrite(through: 3, progress: drained, now: at(2000)) }
            #expect(state.tick(progress: drained, now: at(time)) == nil)
        }
        #expect(state.tick(progress: drained, now: at(5100)) == .settle(report(1...2, .accepted)))
        for time in stride(from: Int64(5300), to: 7100, by: 200) {
            #expect(state.tick(progress: drained, now: at(time)) == nil)
        }
        #expect(state.tick(progress: drained, now: at(7100)) == .settle(report(3...3, .accepted)))
    }

    @Test("A gateway that stops reading stops the settle time, which restarts when the gateway reads again")
    func stall() {
        var state = state(written: 2)
        let written: UInt64 = 1_000_000
        state.didWrite(through: 1, progress: TCPProgress(written: 1000, acknowledged: 1000), now: at(0))
        state.didWrite(through: 2, progress: TCPProgress(written: written, acknowledged: 1000), now: at(100))
        // The peer's system accepted the first push, its application read nothing: there is no progress for ten
        // seconds.
        for time in stride(from: Int64(200), to: 10_000, by: 200) {
            #expect(state.tick(progress: TCPProgress(written: written, acknowledged: 1000), now: at(time)) == nil)
        }
        // The peer reads again: the pushes settle five seconds from now, not at once.
        for time in stride(from: Int64(10_000), to: 15_000, by: 200) {
            #expect(state.tick(progress: TCPProgress(written: written, acknowledged: written), now: at(time)) == nil)
        }
        #expect(
            state.tick(progress: TCPProgress(written: written, acknowledged: written), now: at(15_000))
                == .settle(report(1...2, .accepted)))
    }

    @Test("The stall limit counts from the write: a long pause before it is no stall")
    func idleIsNoStall() {
        var state = state(written: 1)
        let drained = TCPProgress(written: 900, acknowledged: 900)
        state.didWrite(through: 1, progress: drained, now: at(0))
        for time in stride(from: Int64(0), to: 6000, by: 200) { _ = state.tick(progress: drained, now: at(time)) }
        #expect(state.isSettled)
        state.willWrite(through: 2, now: at(60_000))
        let unacknowledged = TCPProgress(written: 1000, acknowledged: 900)
        state.didWrite(through: 2, progress: unacknowledged, now: at(60_000))
        #expect(state.tick(progress: unacknowledged, now: at(60_250)) == nil)
        #expect(state.tick(progress: unacknowledged, now: at(74_900)) == nil)
        #expect(state.tick(progress: unacknowledged, now: at(75_000)) == .close)
    }

    @Test("The connection ends if the gateway reads nothing for the stall limit")
    func givesUp() {
        var state = state(written: 1)
        state.didWrite(through: 1, progress: TCPProgress(written: 900, acknowledged: 100), now: at(0))
        let stuck = TCPProgress(written: 900, acknowledged: 100)
        var time: Int64 = 0
        while time < 15_000 {
            #expect(state.tick(progress: stuck, now: at(time)) == nil)
            time += 200
        }
        #expect(state.tick(progress: stuck, now: at(15_000)) == .close)
    }

    @Test("A response after the settle time overrules the assumed acceptance")
    func lateResponse() {
        var state = state(written: 6)
        let drained = TCPProgress(written: 100, acknowledged: 100)
        state.didWrite(through: 4, progress: drained, now: at(0))
        for time in stride(from: Int64(0), to: 6000, by: 200) {
            if time == 4000 { state.didWrite(through: 6, progress: drained, now: at(time)) }
            _ = state.tick(progress: drained, now: at(time))
        }
        #expect(state.settled == 4)
        #expect(
            state.answered(answer(.invalidToken, 2)) == [
                report(2...2, .badAddress(reason: "InvalidToken"), late: true),
                report(3...6, .notProcessed, late: true),
            ])
    }
}

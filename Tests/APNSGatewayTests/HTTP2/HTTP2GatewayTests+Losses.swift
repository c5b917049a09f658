import ChatDomain
import NIOCore
import NIOHTTP2
import PushWire
import Synchronization
import Testing

@testable import APNSGateway
@testable import GatewayPool

/// Tests of lost streams and connections.
extension HTTP2GatewayTests {
    @Test("GOAWAY releases pushes above the last stream, waits for those below, and a new connection opens")
    func goAway() async throws {
        let fixture = try await HTTP2GatewayFixture { request, peer in
            guard request.stream == 19 else { return }
            peer.goAway(after: 9, .shutdown)
            for stream in stride(from: 1, through: 9, by: 2) { peer.accept(stream) }
        }
        let slot = try await fixture.slot()
        let outcomes = await fixture.outcomes(try fixture.write(slot, 10))
        #expect(
            outcomes == Array(repeating: .accepted, count: 5)
                + Array(repeating: .sentBack(reason: "GoAway"), count: 5))
        let next = try await fixture.slot()
        #expect(next.connection != slot.connection)
        #expect(fixture.doubles == 0)
        await fixture.end()
    }

    @Test("A second GOAWAY lowers the last stream of the first")
    func secondGoAway() async throws {
        let fixture = try await HTTP2GatewayFixture { request, peer in
            guard request.stream == 7 else { return }
            peer.goAway(after: Int(Int32.max), .shutdown)
            peer.goAway(after: 1, .shutdown)
            peer.accept(1)
        }
        let outcomes = await fixture.outcomes(try fixture.write(try await fixture.slot(), 4))
        #expect(outcomes == [.accepted] + Array(repeating: .sentBack(reason: "GoAway"), count: 3))
        await fixture.end()
    }

    @Test("Refused streams were not processed, and are retried gradually and with fewer at once")
    func refusedStreams() async throws {
        let open = Mutex(0)
        let fixture = try await HTTP2GatewayFixture { request, peer in
            // Accepts only two at once, whatever limit it announced.
            let count = open.withLock { open in
                open += 1
                return open
            }
            if count > 2 {
                peer.reset(request.stream, .refusedStream)
                open.withLock { $0 -= 1 }
            } else {
                peer.channel.eventLoop.scheduleTask(in: .milliseconds(2)) {
                    peer.accept(request.stream)
                    open.withLock { $0 -= 1 }
                }
            }
        }
        var left = 40
        while left > 0 {
            let slot = try await fixture.slot()
            let outcomes = await fixture.outcomes(try fixture.write(slot, min(left, slot.capacity)))
            #expect(outcomes.allSatisfy { $0 == .accepted || $0 == .sentBack(reason: "RefusedStream") })
            left -= outcomes.filter { $0 == .accepted }.count
        }
        #expect(fixture.requests.count < 400)
        await fixture.end()
    }

    @Test("The connection to a server that refuses every stream ends after the limit of rounds")
    func refusesAll() async throws {
        let fixture = try await HTTP2GatewayFixture(adjust: {
            $0.limits.firstPause = .milliseconds(1); $0.limits.streamRefusals = 4
        }) {
            $1.reset($0.stream, .refusedStream)
        }
        let first = try await fixture.slot()
        var slot = first
        while slot.connection == first.connection {
            let outcomes = await fixture.outcomes(try fixture.write(slot, 1))
            #expect(outcomes == [.sentBack(reason: "RefusedStream")])
            slot = try await fixture.slot()
        }
        #expect(fixture.requests.count == 5)
        await fixture.end()
    }

    @Test("A reset stream and a lost connection leave their pushes in doubt; a complete response counts")
    func lost() async throws {
        let fixture = try await HTTP2GatewayFixture { request, peer in
            switch request.stream {
            case 1: peer.accept(1)
            case 3: peer.reset(3, .internalError)
            case 5:
                // Sends half a response.
                peer.send(.headers(.init(headers: [":status": "400"])), on: 5)
                peer.channel.eventLoop.scheduleTask(in: .milliseconds(50)) { peer.channel.close(promise: nil) }
            default: break
            }
        }
        let outcomes = await fixture.outcomes(try fixture.write(try await fixture.slot(), 4))
        #expect(
            outcomes == [
                .accepted, .unanswered(reason: "StreamReset"), .unanswered(reason: "ConnectionLost"),
                .unanswered(reason: "ConnectionLost"),
            ])
        #expect(fixture.doubles == 0)
        await fixture.end()
    }

    @Test("A connection without any response is replaced by a new one")
    func unresponsive() async throws {
        let fixture = try await HTTP2GatewayFixture(adjust: { $0.answerLimit = .milliseconds(100) }) { _, _ in }
        let slot = try await fixture.slot()
        #expect(
            await fixture.outcomes(try fixture.write(slot, 3)).allSatisfy { $0 == .unanswered(reason: "NoResponse") })
        #expect(try await fixture.slot().connection != slot.connection)
        await fixture.end()
    }
}

import APNSWire
import ChatDomain
import NIOCore
import NIOHTTP2
import Synchronization
import Testing

@testable import APNSGateway

/// Streams, connections and peers that go.
extension ProviderGatewayTests {
    @Test("GOAWAY: what is above the last stream goes back, what is below is waited for, and another connection comes")
    func goAway() async throws {
        let rig = try await ProviderRig { request, peer in
            guard request.stream == 19 else { return }
            peer.goAway(after: 9, .shutdown)
            for stream in stride(from: 1, through: 9, by: 2) { peer.accept(stream) }
        }
        let slot = try await rig.slot()
        let outcomes = await rig.outcomes(try rig.write(slot, 10))
        #expect(
            outcomes == Array(repeating: .accepted, count: 5)
                + Array(repeating: .sentBack(reason: "GoAway"), count: 5))
        let next = try await rig.slot()
        #expect(next.connection != slot.connection)
        #expect(rig.doubles == 0)
        await rig.end()
    }

    @Test("A second GOAWAY lowers what the first promised")
    func secondGoAway() async throws {
        let rig = try await ProviderRig { request, peer in
            guard request.stream == 7 else { return }
            peer.goAway(after: Int(Int32.max), .shutdown)
            peer.goAway(after: 1, .shutdown)
            peer.accept(1)
        }
        let outcomes = await rig.outcomes(try rig.write(try await rig.slot(), 4))
        #expect(outcomes == [.accepted] + Array(repeating: .sentBack(reason: "GoAway"), count: 3))
        await rig.end()
    }

    @Test("Refused streams were not processed and are sent again with fewer at once, without a rush")
    func refusedStreams() async throws {
        let open = Mutex(0)
        let rig = try await ProviderRig { request, peer in
            // Takes two at once, whatever it promised.
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
            let slot = try await rig.slot()
            let outcomes = await rig.outcomes(try rig.write(slot, min(left, slot.room)))
            #expect(outcomes.allSatisfy { $0 == .accepted || $0 == .sentBack(reason: "RefusedStream") })
            left -= outcomes.filter { $0 == .accepted }.count
        }
        #expect(rig.requests.count < 400)
        await rig.end()
    }

    @Test("A server that refuses every stream is left, with growing pauses")
    func refusesAll() async throws {
        let rig = try await ProviderRig(adjust: {
            $0.limits.firstPause = .milliseconds(1); $0.limits.refusals = 4
        }) {
            $1.reset($0.stream, .refusedStream)
        }
        let first = try await rig.slot()
        var slot = first
        while slot.connection == first.connection {
            let outcomes = await rig.outcomes(try rig.write(slot, 1))
            #expect(outcomes == [.sentBack(reason: "RefusedStream")])
            slot = try await rig.slot()
        }
        #expect(rig.requests.count == 5)
        await rig.end()
    }

    @Test("A reset stream and a connection that is lost leave their pushes in doubt; a whole answer stands")
    func lost() async throws {
        let rig = try await ProviderRig { request, peer in
            switch request.stream {
            case 1: peer.accept(1)
            case 3: peer.reset(3, .internalError)
            case 5:
                // Half an answer.
                peer.send(.headers(.init(headers: [":status": "400"])), on: 5)
                peer.channel.eventLoop.scheduleTask(in: .milliseconds(50)) { peer.channel.close(promise: nil) }
            default: break
            }
        }
        let outcomes = await rig.outcomes(try rig.write(try await rig.slot(), 4))
        #expect(
            outcomes == [
                .accepted, .unanswered(reason: "StreamReset"), .unanswered(reason: "ConnectionLost"),
                .unanswered(reason: "ConnectionLost"),
            ])
        #expect(rig.doubles == 0)
        await rig.end()
    }

    @Test("A stream that is not answered in time is given up, and the connection goes on with the others")
    func deadline() async throws {
        let rig = try await ProviderRig(adjust: { $0.answerLimit = .seconds(1) }) { request, peer in
            if request.stream != 1 { peer.accept(request.stream) }
        }
        let slot = try await rig.slot()
        let outcomes = await rig.outcomes(try rig.write(slot, 2))
        #expect(outcomes == [.unanswered(reason: "NoAnswer"), .accepted])
        #expect(rig.doubles == 0)
        await rig.end()
    }

    @Test("A gateway that answers nothing at all is left")
    func blackHole() async throws {
        let rig = try await ProviderRig(adjust: { $0.answerLimit = .milliseconds(100) }) { _, _ in }
        let slot = try await rig.slot()
        #expect(await rig.outcomes(try rig.write(slot, 3)).allSatisfy { $0 == .unanswered(reason: "NoAnswer") })
        #expect(try await rig.slot().connection != slot.connection)
        await rig.end()
    }

    @Test("Nobody at the other end any more: found out by PING")
    func dead() async throws {
        let rig = try await ProviderRig(adjust: {
            $0.limits.silence = .milliseconds(80)
            $0.limits.pong = .milliseconds(80)
        }) { request, peer in
            // From now on the server reads nothing, and so answers nothing.
            _ = peer.channel.setOption(.autoRead, value: false)
        }
        let slot = try await rig.slot()
        #expect(await rig.outcomes(try rig.write(slot, 1)) == [.unanswered(reason: "ConnectionLost")])
        await rig.end()
    }

    @Test("A quiet connection is asked for a sign of life, and stays")
    func quiet() async throws {
        let rig = try await ProviderRig(
            adjust: { $0.limits.quiet = .milliseconds(50) }, script: Self.accept)
        let slot = try await rig.slot()
        await rig.until { rig.server.record.withLock { $0.pings } > 2 }
        #expect(try await rig.slot().connection == slot.connection)
        await rig.end()
    }
}

import APNSWire
import ChatDomain
import Foundation
import Logging
import NIOCore
import NIOHPACK
import NIOHTTP2
import Synchronization
import Testing

@testable import APNSGateway

@Suite("The provider gateway's connections", .serialized, .timeLimit(.minutes(1)))
struct ProviderGatewayTests {
    static let accept: ScriptedServer.Script = { request, peer in peer.accept(request.stream) }

    @Test("Every push gets exactly one verdict, few verdicts cover many, and the limit of streams is kept")
    func many() async throws {
        let rig = try await ProviderRig(script: Self.accept)
        // No more, because HPACK takes a fifth of a millisecond each in a debug build, most of it in the server.
        let outcomes = await rig.outcomes(try await rig.send(5_000))
        #expect(outcomes.allSatisfy { $0 == .accepted })
        #expect(outcomes.count == 5_000)
        #expect(rig.doubles == 0)
        #expect(rig.verdictCount < 1_500)
        #expect(rig.violations == 0)
        #expect(rig.peers.count == 1)
        await rig.end()
    }

    @Test("What is sent: the right headers, the path never indexed")
    func headers() async throws {
        let rig = try await ProviderRig(tokens: FakeTokenStore(), script: Self.accept)
        _ = await rig.outcomes(try await rig.send(1))
        _ = await rig.outcomes(try rig.write(try await rig.slot(), type: "voip"))
        let token = try #require(await rig.tokens?.issued.first)
        let (first, second) = (rig.requests[0], rig.requests[1])
        #expect(first.header(":method") == "POST")
        #expect(first.header(":scheme") == "https")
        #expect(first.header(":authority") == "localhost")
        #expect(first.header(":path") == "/3/device/" + String(repeating: "ab", count: 28) + "10000001")
        #expect(first.header("authorization") == "bearer \(token.text)")
        #expect(first.header("apns-topic") == "com.example.app")
        #expect(second.header("apns-topic") == "com.example.app.voip")
        #expect(second.header("apns-push-type") == "voip")
        #expect(first.body == #"{"aps":{}}"#)
        for request in rig.requests {
            let path = request.headers.first { $0.name == ":path" }
            #expect(path?.indexable == .neverIndexed)
        }
        #expect(second.headers.first { $0.name == "apns-id" }?.indexable == .nonIndexable)
        await rig.end()
    }

    @Test("The limit of streams is obeyed while it changes, also to none and back")
    func changingLimit() async throws {
        let count = Mutex(0)
        let rig = try await ProviderRig(streams: 5) { request, peer in
            let seen = count.withLock { count in
                count += 1
                return count
            }
            if seen % 20 == 0 { peer.limit([0, 1, 5, 100][seen / 20 % 4]) }
            peer.accept(request.stream)
            // Nothing would be sent any more to change the limit on.
            if seen % 20 == 0, seen / 20 % 4 == 0 { peer.limit(1) }
        }
        let outcomes = await rig.outcomes(try await rig.send(400))
        #expect(outcomes.allSatisfy { $0 == .accepted })
        #expect(rig.violations == 0)
        #expect(rig.peers.count == 1)
        await rig.end()
    }

    @Test("A server that changes the limit a thousand times is no attacker")
    func restlessLimit() async throws {
        let rig = try await ProviderRig { request, peer in
            if request.stream == 1 { for number in 0..<1000 { peer.limit(number % 100 + 1) } }
            peer.accept(request.stream)
        }
        let outcomes = await rig.outcomes(try await rig.send(20))
        #expect(outcomes.allSatisfy { $0 == .accepted })
        #expect(rig.peers.count == 1)
        #expect(rig.violations == 0)
        await rig.end()
    }

    @Test("A server that does not name a limit gets a hundred at once")
    func unstatedLimit() async throws {
        let rig = try await ProviderRig(streams: nil) { request, peer in
            // The hundredth stream lets all go.
            guard request.stream >= 199 else { return }
            if request.stream == 199 { for stream in stride(from: 1, to: 199, by: 2) { peer.accept(stream) } }
            peer.accept(request.stream)
        }
        let outcomes = await rig.outcomes(try rig.write(try await rig.slot(), 150))
        #expect(outcomes.count == 150)
        #expect(outcomes.allSatisfy { $0 == .accepted })
        await rig.end()
    }

    @Test("Before its provider token has been taken, one stream is open at the most")
    func firstToken() async throws {
        let rig = try await ProviderRig(tokens: FakeTokenStore(), script: Self.accept)
        let slot = try await rig.slot()
        #expect(slot.room == 1)
        #expect(slot.answersEach)
        let format = try #require(rig.gateway.format as? APNSFormat)
        #expect(format.kind == .http2)
        #expect(format.payloadLimit == 4096)
        #expect(format.limit(of: "voip") == 5120)
        _ = await rig.outcomes(try rig.write(slot))
        #expect(try await rig.slot().room == 200)
        await rig.end()
    }

    @Test("A refused provider token ends the connection, fails no push, and the next connection asks for another")
    func refusedToken() async throws {
        let hasRefused = Atomic(false)
        let rig = try await ProviderRig(tokens: FakeTokenStore()) { request, peer in
            if hasRefused.exchange(true, ordering: .relaxed) {
                peer.accept(request.stream)
            } else {
                peer.refuse(request.stream, ProviderRefusal(.expiredProviderToken))
            }
        }
        let slot = try await rig.slot()
        #expect(await rig.outcomes(try rig.write(slot)) == [.notAuthorized(reason: "ExpiredProviderToken")])
        let next = try await rig.slot()
        #expect(next.connection != slot.connection)
        #expect(await rig.outcomes(try rig.write(next)) == [.accepted])
        let refused = await rig.tokens?.refused
        #expect(refused?.count == 2)
        #expect(refused?[0] == nil)
        #expect(refused?[1] == rig.requests[0].header("authorization")?.dropFirst(7).description)
        #expect(rig.requests[0].header("authorization") != rig.requests[1].header("authorization"))
        await rig.end()
    }

    @Test("Credentials that are not taken are not shown again and again in a hurry, and new ones are used at once")
    func refusedCertificate() async throws {
        let isMended = Atomic(false)
        let rig = try await ProviderRig { request, peer in
            if isMended.load(ordering: .relaxed) {
                peer.accept(request.stream)
            } else {
                peer.refuse(request.stream, ProviderRefusal(.badCertificateEnvironment))
            }
        }
        let started = ContinuousClock.now
        for _ in 0..<5 {
            let names = try rig.write(try await rig.slot(), 2)
            let outcomes = await rig.outcomes(names)
            #expect(outcomes.allSatisfy { $0 == .notAuthorized(reason: "BadCertificateEnvironment") })
        }
        // 250, 500, 1000 and 2000 ms, of which chance takes half at the most.
        #expect(ContinuousClock.now - started > .milliseconds(1875))
        isMended.store(true, ordering: .relaxed)
        let mended = ContinuousClock.now
        await rig.gateway.reconfigure(target: try await rig.target())
        #expect(await rig.outcomes(try rig.write(try await rig.slot())) == [.accepted])
        // Not after the two to four seconds that the fifth refusal would cost.
        #expect(ContinuousClock.now - mended < .milliseconds(2000))
        await rig.end()
    }

    @Test("A connection whose provider token grows too old is replaced by one with another")
    func oldToken() async throws {
        let tokens = FakeTokenStore(lives: [.seconds(2)])
        let rig = try await ProviderRig(
            tokens: tokens, adjust: { $0.limits.silence = .milliseconds(200) }, script: Self.accept)
        let slot = try await rig.slot()
        #expect(await rig.outcomes(try rig.write(slot)) == [.accepted])
        await rig.until { rig.peers.count == 2 }
        let next = try await rig.slot()
        #expect(next.connection != slot.connection)
        #expect(await rig.outcomes(try rig.write(next)) == [.accepted])
        #expect(Set(rig.requests.map { $0.header("authorization") }).count == 2)
        await rig.end()
    }

    @Test("While tokens cannot be had there are no slots, and then there are")
    func tokensUnavailable() async throws {
        let rig = try await ProviderRig(tokens: FakeTokenStore(failures: 1), script: Self.accept)
        #expect(await rig.outcomes(try rig.write(try await rig.slot())) == [.accepted])
        #expect(await rig.tokens?.refused.count == 2)
        await rig.end()
    }

    @Test("A service in trouble is left alone for a while; then one push is tried")
    func trouble() async throws {
        let isUp = Atomic(false)
        let rig = try await ProviderRig { request, peer in
            if isUp.load(ordering: .relaxed) {
                peer.accept(request.stream)
            } else {
                peer.refuse(request.stream, ProviderRefusal(.serviceUnavailable))
            }
        }
        let outcomes = await rig.outcomes(try rig.write(try await rig.slot(), 10))
        #expect(outcomes.allSatisfy { $0 == .retry(reason: "ServiceUnavailable") })
        let started = ContinuousClock.now
        let slot = try await rig.slot()
        #expect(ContinuousClock.now - started > .milliseconds(100))
        #expect(slot.room == 1)
        isUp.store(true, ordering: .relaxed)
        #expect(await rig.outcomes(try rig.write(slot)) == [.accepted])
        #expect(try await rig.slot().room > 1)
        await rig.end()
    }

    @Test("A probe goes alone: others pass by on another connection until all of it is answered")
    func probe() async throws {
        let held = Mutex<[(Int, ScriptedPeer)]>([])
        let rig = try await ProviderRig { request, peer in held.withLock { $0.append((request.stream, peer)) } }
        let probing = try await rig.slot(fresh: true)
        let names = try rig.write(probing, 3, isProbe: true)
        await rig.until { held.withLock { $0.count } == 3 }
        for (stream, peer) in held.withLock({ $0 }) where stream < 5 { peer.accept(stream) }
        _ = await rig.outcomes(Array(names.dropLast()))
        #expect(try await rig.slot().connection != probing.connection)
        #expect(rig.requests.count == 3)
        rig.peers[0].accept(5)
        _ = await rig.outcomes(names)
        let next = try await rig.slot()
        #expect(next.connection == probing.connection)
        #expect(next.isFresh)
        #expect(next.firstIdentifier == 4)
        await rig.end()
    }

    @Test("New credentials replace the connection and drop nothing that is in flight")
    func reconfigure() async throws {
        let rig = try await ProviderRig { request, peer in
            peer.channel.eventLoop.scheduleTask(in: .milliseconds(30)) { peer.accept(request.stream) }
        }
        let slot = try await rig.slot()
        let names = try rig.write(slot, 50)
        await rig.until { rig.requests.count == 50 }
        await rig.gateway.reconfigure(target: try await rig.target())
        #expect(await rig.outcomes(names).allSatisfy { $0 == .accepted })
        let next = try await rig.slot()
        #expect(next.connection != slot.connection)
        await rig.gateway.reconfigure(target: nil)
        #expect(await rig.outcomes(try rig.write(next, 2)) == [.notProcessed, .notProcessed])
        await rig.end()
    }

    @Test("A drain waits for answers, only so long, and everything has a verdict afterwards")
    func drain() async throws {
        let rig = try await ProviderRig(streams: 4, adjust: { $0.limits.drain = .seconds(4) }) { _, _ in }
        let names = try rig.write(try await rig.slot(), 8)
        await rig.until { rig.requests.count == 4 }
        async let drained: Void = rig.gateway.drain()
        // These come back as soon as it has begun; the others are answered while it waits.
        _ = await rig.outcomes(Array(names.suffix(4)))
        for stream in [3, 5, 7] { rig.peers[0].accept(stream) }
        await drained
        let outcomes = await rig.outcomes(names)
        #expect(
            outcomes == [.unanswered(reason: "NoAnswer"), .accepted, .accepted, .accepted]
                + Array(repeating: .notProcessed, count: 4))
        #expect(await rig.gateway.slot(fresh: false) == nil)
        #expect(rig.doubles == 0)
        await rig.end()
    }

    @Test("Further connections are opened while the limit of streams holds pushes up, and closed when they are idle")
    func growth() async throws {
        let rig = try await ProviderRig(streams: 1, connections: 3, adjust: { $0.idleLimit = .seconds(2) }) {
            request, peer in
            peer.channel.eventLoop.scheduleTask(in: .milliseconds(20)) { peer.accept(request.stream) }
        }
        let outcomes = await rig.outcomes(try await rig.send(30))
        #expect(outcomes.allSatisfy { $0 == .accepted })
        #expect((2...4).contains(rig.peers.count))
        await rig.until { rig.peers.filter(\.channel.isActive).count == 1 }
        await rig.end()
    }

    @Test("Before the numbers of streams run out another connection takes over")
    func streamNumbers() async throws {
        let rig = try await ProviderRig(adjust: { $0.limits.streams = 50 }, script: Self.accept)
        var left = 120
        while left > 0 {
            let slot = try await rig.slot()
            let outcomes = await rig.outcomes(try rig.write(slot, min(left, slot.room)))
            left -= outcomes.filter { $0 == .accepted }.count
        }
        #expect(rig.peers.count >= 3)
        #expect(rig.requests.map(\.stream).max() == 99)
        await rig.end()
    }

    @Test("Bodies beyond the peer's window wait for it, and all arrive")
    func flowControl() async throws {
        let rig = try await ProviderRig(script: Self.accept)
        let slot = try await rig.slot()
        let payload = Array(#"{"aps":{"alert":"\#(String(repeating: "x", count: 4000))"}}"#.utf8)
        let pushes = try (0..<150).map { number in
            let push = try ProviderRig.push(slot.firstIdentifier + UInt32(number))
            return Push(
                entry: push.entry, identifier: push.identifier, address: push.address, payload: payload, id: push.id)
        }
        rig.gateway.write(Lease(slot: slot, pushes: pushes))
        let names = pushes.map { ProviderRig.Name(connection: slot.connection.number, identifier: $0.identifier) }
        #expect(await rig.outcomes(names).allSatisfy { $0 == .accepted })
        #expect(rig.requests.allSatisfy { $0.body.utf8.count == payload.count })
        await rig.end()
    }

    @Test("An answer without an end is cut, and many refusals do not use up the window for answers")
    func longAnswers() async throws {
        let rig = try await ProviderRig { request, peer in
            if request.stream == 1 {
                peer.refuse(1, status: 400, body: String(repeating: "x", count: 20_000))
            } else {
                let padding = String(repeating: " ", count: 500)
                peer.refuse(request.stream, status: 400, body: #"{"reason":"BadDeviceToken"}"# + padding)
            }
        }
        let names = try await rig.send(300)
        let outcomes = await rig.outcomes(names)
        guard case .rejected("Status400", _) = outcomes[0] else {
            Issue.record("\(outcomes[0])")
            return await rig.end()
        }
        #expect(
            outcomes.dropFirst().allSatisfy { if case .rejected("BadDeviceToken", _?) = $0 { true } else { false } })
        await rig.end()
    }
}

extension ProviderRig {
    /// The same target again, as after a signal to read the files anew.
    func target() async throws -> ProviderGateway.Target {
        let key = try ProviderKey(
            file: try await Self.credentials.value.providerKeyFile, keyID: "ABCDE12345", teamID: "TEAM123456")
        return ProviderGateway.Target(
            endpoint: endpoint, bundleID: "com.example.app", tokens: tokens.map { TokenSource(key: key, store: $0) })
    }
}

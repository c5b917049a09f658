import ChatDomain
import Foundation
import Logging
import NIOCore
import NIOHPACK
import NIOHTTP2
import PushWire
import Synchronization
import TestSupport
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("The HTTP/2 gateway's connections", .serialized, .timeLimit(.minutes(5)))
struct HTTP2GatewayTests {
    static let accept: ScriptedServer.Script = { request, peer in peer.accept(request.stream) }

    @Test("Every push gets exactly one report, few reports cover many, and the limit of streams is obeyed")
    func many() async throws {
        let fixture = try await HTTP2GatewayFixture(script: Self.accept)
        // More pushes would be slow: in a debug build HPACK takes a fifth of a millisecond for each, mostly in the
        // server.
        let outcomes = await fixture.outcomes(try await fixture.send(2_000))
        #expect(outcomes.allSatisfy { $0 == .accepted })
        #expect(outcomes.count == 2_000)
        #expect(fixture.doubles == 0)
        #expect(fixture.reportCount < 600)
        #expect(fixture.violations == 0)
        #expect(fixture.peers.count == 1)
        await fixture.end()
    }

    @Test("Requests have the right headers, and never index the path")
    func headers() async throws {
        let fixture = try await HTTP2GatewayFixture(tokens: FakeTokenStore(), script: Self.accept)
        _ = await fixture.outcomes(try await fixture.send(1))
        _ = await fixture.outcomes(try fixture.write(try await fixture.slot(), type: "voip"))
        let token = try #require(await fixture.tokens?.issued.first)
        let (first, second) = (fixture.requests[0], fixture.requests[1])
        #expect(first.header(":method") == "POST")
        #expect(first.header(":scheme") == "https")
        #expect(first.header(":authority") == "localhost")
        #expect(first.header(":path") == "/3/device/" + String(repeating: "ab", count: 28) + "10000001")
        #expect(first.header("authorization") == "bearer \(token.text)")
        #expect(first.header("apns-topic") == "com.example.app")
        #expect(second.header("apns-topic") == "com.example.app.voip")
        #expect(second.header("apns-push-type") == "voip")
        #expect(first.body == #"{"aps":{}}"#)
        for request in fixture.requests {
            let path = request.headers.first { $0.name == ":path" }
            #expect(path?.indexable == .neverIndexed)
        }
        #expect(second.headers.first { $0.name == "apns-id" }?.indexable == .nonIndexable)
        await fixture.end()
    }

    @Test(
        "An unknown push type goes to the app's topic, with one warning per connection, and few in total"
    )
    func novelTypes() async throws {
        let log = LogRecorder()
        let fixture = try await HTTP2GatewayFixture(logger: log.logger, script: Self.accept)
        let types = ["novel", "voip", "novel"] + (1...20).map { "novel\($0)" }
        for type in types {
            let outcomes = await fixture.outcomes(try fixture.write(try await fixture.slot(), type: type))
            #expect(outcomes == [.accepted])
        }
        #expect(fixture.requests[0].header("apns-push-type") == "novel")
        #expect(fixture.requests[0].header("apns-topic") == "com.example.app")
        let warned = log.lines.filter { $0.hasPrefix("warning ") }.flatMap { line in
            line.split(separator: " ").filter { $0.hasPrefix("type=") }
        }
        #expect(warned.filter { $0 == "type=novel" }.count == 1)
        #expect(!warned.contains("type=voip"))
        #expect(warned.count == 16)
        await fixture.end()
    }

    @Test("The limit of streams is obeyed while it changes, also to none and back")
    func changingLimit() async throws {
        let count = Mutex(0)
        let fixture = try await HTTP2GatewayFixture(streams: 5) { request, peer in
            let seen = count.withLock { count in
                count += 1
                return count
            }
            if seen % 20 == 0 { peer.limit([0, 1, 5, 100][seen / 20 % 4]) }
            peer.accept(request.stream)
            // With the limit 0 no further request arrives on which to change it, so raise it now.
            if seen % 20 == 0, seen / 20 % 4 == 0 { peer.limit(1) }
        }
        let outcomes = await fixture.outcomes(try await fixture.send(400))
        #expect(outcomes.allSatisfy { $0 == .accepted })
        #expect(fixture.violations == 0)
        #expect(fixture.peers.count == 1)
        await fixture.end()
    }

    @Test("A limit of streams that changes a thousand times does not end the connection")
    func frequentLimits() async throws {
        let fixture = try await HTTP2GatewayFixture { request, peer in
            if request.stream == 1 { for number in 0..<1000 { peer.limit(number % 100 + 1) } }
            peer.accept(request.stream)
        }
        let outcomes = await fixture.outcomes(try await fixture.send(20))
        #expect(outcomes.allSatisfy { $0 == .accepted })
        #expect(fixture.peers.count == 1)
        #expect(fixture.violations == 0)
        await fixture.end()
    }

    @Test("A server that announces no limit gets a hundred streams at once")
    func unstatedLimit() async throws {
        let fixture = try await HTTP2GatewayFixture(streams: nil) { request, peer in
            // The hundredth stream releases all.
            guard request.stream >= 199 else { return }
            if request.stream == 199 { for stream in stride(from: 1, to: 199, by: 2) { peer.accept(stream) } }
            peer.accept(request.stream)
        }
        let outcomes = await fixture.outcomes(try fixture.write(try await fixture.slot(), 150))
        #expect(outcomes.count == 150)
        #expect(outcomes.allSatisfy { $0 == .accepted })
        await fixture.end()
    }

    @Test("Until the provider token is accepted, the connection has capacity for one push")
    func firstToken() async throws {
        let fixture = try await HTTP2GatewayFixture(tokens: FakeTokenStore(), script: Self.accept)
        let slot = try await fixture.slot()
        #expect(slot.capacity == 1)
        #expect(slot.answersEach)
        let format = try #require(fixture.gateway.format as? APNSFormat)
        #expect(format.kind == .http2)
        #expect(format.payloadLimit == 4096)
        #expect(format.limit(of: "voip") == 5120)
        _ = await fixture.outcomes(try fixture.write(slot))
        #expect(try await fixture.slot().capacity == 200)
        await fixture.end()
    }

    @Test("A rejected provider token ends the connection and fails no push; the next connection requests another")
    func refusedToken() async throws {
        let hasRefused = Atomic(false)
        let fixture = try await HTTP2GatewayFixture(tokens: FakeTokenStore()) { request, peer in
            if hasRefused.exchange(true, ordering: .relaxed) {
                peer.accept(request.stream)
            } else {
                peer.refuse(request.stream, ProviderRefusal(.expiredProviderToken))
            }
        }
        let slot = try await fixture.slot()
        #expect(await fixture.outcomes(try fixture.write(slot)) == [.notAuthorized(reason: "ExpiredProviderToken")])
        let next = try await fixture.slot()
        #expect(next.connection != slot.connection)
        #expect(await fixture.outcomes(try fixture.write(next)) == [.accepted])
        let refused = await fixture.tokens?.refused
        #expect(refused?.count == 2)
        #expect(refused?[0] == nil)
        #expect(refused?[1] == fixture.requests[0].header("authorization")?.dropFirst(7).description)
        #expect(fixture.requests[0].header("authorization") != fixture.requests[1].header("authorization"))
        await fixture.end()
    }

    @Test("Rejected credentials are presented again only after growing delays, and new ones are used at once")
    func refusedCertificate() async throws {
        let isMended = Atomic(false)
        let clock = TestClock()
        let fixture = try await HTTP2GatewayFixture(clock: clock) { request, peer in
            if isMended.load(ordering: .relaxed) {
                peer.accept(request.stream)
            } else {
                peer.refuse(request.stream, ProviderRefusal(.badCertificateEnvironment))
            }
        }
        for longest in [250, 500, 1000, 2000, 0] as [Int64] {
            let names = try fixture.write(try await fixture.slot(), 2)
            let outcomes = await fixture.outcomes(names)
            #expect(outcomes.allSatisfy { $0 == .notAuthorized(reason: "BadCertificateEnvironment") })
            guard longest > 0 else { break }
            let delay = await clock.advanceToNextWakeUp()
            #expect((.milliseconds(longest / 2)...Duration.milliseconds(longest)).contains(delay))
        }
        isMended.store(true, ordering: .relaxed)
        // The clock stands still, so the delay after the fifth rejection does not end.
        fixture.gateway.reconfigure(service: try await fixture.target())
        #expect(await fixture.outcomes(try fixture.write(try await fixture.slot())) == [.accepted])
        await fixture.end()
    }

    @Test("A connection whose provider token becomes too old is replaced by one with a new token")
    func oldToken() async throws {
        let fixture = try await HTTP2GatewayFixture(
            tokens: FakeTokenStore(lives: [.seconds(1)]), adjust: { $0.limits.silence = .milliseconds(200) },
            script: Self.accept)
        await fixture.until { fixture.peers.count == 2 }
        var outcomes: [Outcome] = []
        while outcomes != [.accepted] { outcomes = await fixture.outcomes(try fixture.write(try await fixture.slot())) }
        let authorization = fixture.requests.last?.header("authorization")
        #expect(await fixture.tokens?.issued.last.map { "bearer \($0.text)" } == authorization)
        #expect(await fixture.tokens?.issued.count == 2)
        await fixture.end()
    }

    @Test("There are no slots while the token store fails, and slots again afterwards")
    func tokensUnavailable() async throws {
        let fixture = try await HTTP2GatewayFixture(tokens: FakeTokenStore(failures: 1), script: Self.accept)
        #expect(await fixture.outcomes(try fixture.write(try await fixture.slot())) == [.accepted])
        #expect(await fixture.tokens?.refused.count == 2)
        await fixture.end()
    }

    @Test("A failing service gets no push for a while, and then a few tests")
    func failingService() async throws {
        let isUp = Atomic(false)
        let clock = TestClock()
        let fixture = try await HTTP2GatewayFixture(clock: clock) { request, peer in
            if isUp.load(ordering: .relaxed) {
                peer.accept(request.stream)
            } else {
                peer.refuse(request.stream, ProviderRefusal(.serviceUnavailable))
            }
        }
        let outcomes = await fixture.outcomes(try fixture.write(try await fixture.slot(), 10))
        #expect(outcomes == Array(repeating: .retry(reason: "ServiceUnavailable"), count: 10))
        async let waiting = fixture.slot()
        let delay = await clock.advanceToNextWakeUp()
        #expect((.milliseconds(125)...Duration.milliseconds(250)).contains(delay))
        let slot = try await waiting
        #expect(slot.capacity == CircuitBreaker.testSizes.first)
        #expect(slot.test?.refusals.count == 10)
        isUp.store(true, ordering: .relaxed)
        #expect(await fixture.outcomes(try fixture.write(slot)) == [.accepted])
        let next = try await fixture.slot()
        #expect(next.test == nil)
        #expect(next.capacity > CircuitBreaker.testSizes.first)
        await fixture.end()
    }

    @Test("After ten server errors in a row, the test goes over a new connection")
    func sickConnection() async throws {
        let sick = Mutex<ObjectIdentifier?>(nil)
        let clock = TestClock()
        let fixture = try await HTTP2GatewayFixture(clock: clock, adjust: { $0.limits.sickAge = .zero }) {
            request, peer in
            let peerID = ObjectIdentifier(peer.channel)
            let isSick = sick.withLock { sick in
                if sick == nil { sick = peerID }
                return sick == peerID
            }
            if isSick {
                peer.refuse(request.stream, ProviderRefusal(.internalServerError))
            } else {
                peer.accept(request.stream)
            }
        }
        let first = try await fixture.slot()
        let outcomes = await fixture.outcomes(try fixture.write(first, 10))
        #expect(outcomes == Array(repeating: .retry(reason: "InternalServerError"), count: 10))
        async let waiting = fixture.slot()
        _ = await clock.advanceToNextWakeUp()
        let slot = try await waiting
        #expect(slot.connection != first.connection)
        #expect(slot.test != nil)
        #expect(await fixture.outcomes(try fixture.write(slot)) == [.accepted])
        await fixture.end()
    }

    @Test("A probe has a connection of its own: other pushes use another one until all its responses have come")
    func probe() async throws {
        let held = Mutex<[(Int, ScriptedPeer)]>([])
        let fixture = try await HTTP2GatewayFixture { request, peer in
            held.withLock { $0.append((request.stream, peer)) }
        }
        let probing = try await fixture.slot(fresh: true)
        let names = try fixture.write(probing, 3, isProbe: true)
        await fixture.until { held.withLock { $0.count } == 3 }
        for (stream, peer) in held.withLock({ $0 }) where stream < 5 { peer.accept(stream) }
        _ = await fixture.outcomes(Array(names.dropLast()))
        #expect(try await fixture.slot().connection != probing.connection)
        #expect(fixture.requests.count == 3)
        fixture.peers[0].accept(5)
        _ = await fixture.outcomes(names)
        let next = try await fixture.slot()
        #expect(next.connection == probing.connection)
        #expect(next.isFresh)
        #expect(next.firstIdentifier == 4)
        await fixture.end()
    }

    @Test("New credentials replace the connection, and no push in flight is lost")
    func reconfigure() async throws {
        let fixture = try await HTTP2GatewayFixture { request, peer in
            peer.channel.eventLoop.scheduleTask(in: .milliseconds(30)) { peer.accept(request.stream) }
        }
        let slot = try await fixture.slot()
        let names = try fixture.write(slot, 50)
        await fixture.until { fixture.requests.count == 50 }
        fixture.gateway.reconfigure(service: try await fixture.target())
        #expect(await fixture.outcomes(names).allSatisfy { $0 == .accepted })
        let next = try await fixture.slot()
        #expect(next.connection != slot.connection)
        fixture.gateway.reconfigure(service: nil)
        #expect(await fixture.outcomes(try fixture.write(next, 2)) == [.notProcessed, .notProcessed])
        await fixture.end()
    }

    @Test("A drain waits for responses and reports every push; then there are no slots")
    func drain() async throws {
        let fixture = try await HTTP2GatewayFixture(streams: 4) { _, _ in }
        let names = try fixture.write(try await fixture.slot(), 8)
        await fixture.until { fixture.requests.count == 4 }
        async let drained: Void = fixture.gateway.drain()
        // The drain returns these at once, and waits for the responses to the others.
        _ = await fixture.outcomes(Array(names.suffix(4)))
        for stream in [1, 3, 5, 7] { fixture.peers[0].accept(stream) }
        await drained
        let outcomes = await fixture.outcomes(names)
        #expect(
            outcomes == Array(repeating: .accepted, count: 4) + Array(repeating: .notProcessed, count: 4))
        #expect(await fixture.gateway.slot(fresh: false) == nil)
        #expect(fixture.doubles == 0)
        await fixture.end()
    }

    @Test("Further connections open while the stream limit delays pushes, and close when idle")
    func growth() async throws {
        let fixture = try await HTTP2GatewayFixture(streams: 1, connections: 3, adjust: { $0.idleLimit = .seconds(2) })
        {
            request, peer in
            peer.channel.eventLoop.scheduleTask(in: .milliseconds(20)) { peer.accept(request.stream) }
        }
        let outcomes = await fixture.outcomes(try await fixture.send(30))
        #expect(outcomes.allSatisfy { $0 == .accepted })
        #expect(fixture.peers.count > 1)
        await fixture.until { fixture.peers.filter(\.channel.isActive).count == 1 }
        await fixture.end()
    }

    @Test("Before the stream numbers are exhausted, another connection takes over")
    func streamNumbers() async throws {
        let fixture = try await HTTP2GatewayFixture(adjust: { $0.limits.streams = 50 }, script: Self.accept)
        var left = 120
        while left > 0 {
            let slot = try await fixture.slot()
            let outcomes = await fixture.outcomes(try fixture.write(slot, min(left, slot.capacity)))
            left -= outcomes.filter { $0 == .accepted }.count
        }
        #expect(fixture.peers.count >= 3)
        #expect(fixture.requests.map(\.stream).max() == 99)
        await fixture.end()
    }

    @Test("Bodies beyond the peer's window wait for it, and all arrive")
    func flowControl() async throws {
        let fixture = try await HTTP2GatewayFixture(script: Self.accept)
        let slot = try await fixture.slot()
        let payload = Array(#"{"aps":{"alert":"\#(String(repeating: "x", count: 4000))"}}"#.utf8)
        let pushes = try (0..<150).map { number in
            let push = try HTTP2GatewayFixture.push(slot.firstIdentifier + UInt32(number))
            return Push(
                id: push.id, identifier: push.identifier, address: push.address, payload: payload, apnsID: push.apnsID)
        }
        fixture.gateway.write(Lease(slot: slot, pushes: pushes))
        let names = pushes.map {
            HTTP2GatewayFixture.Name(connection: slot.connection.number, identifier: $0.identifier)
        }
        #expect(await fixture.outcomes(names).allSatisfy { $0 == .accepted })
        #expect(fixture.requests.allSatisfy { $0.body.utf8.count == payload.count })
        await fixture.end()
    }

    @Test("An endless response is cut, and many rejections do not exhaust the receive window")
    func longResponses() async throws {
        let fixture = try await HTTP2GatewayFixture { request, peer in
            if request.stream == 1 {
                peer.refuse(1, status: 400, body: String(repeating: "x", count: 20_000))
            } else {
                let padding = String(repeating: " ", count: 500)
                peer.refuse(request.stream, status: 400, body: #"{"reason":"BadDeviceToken"}"# + padding)
            }
        }
        let names = try await fixture.send(300)
        let outcomes = await fixture.outcomes(names)
        guard case .rejected("Status400", _) = outcomes[0] else {
            Issue.record("\(outcomes[0])")
            return await fixture.end()
        }
        #expect(
            outcomes.dropFirst().allSatisfy { if case .rejected("BadDeviceToken", _?) = $0 { true } else { false } })
        await fixture.end()
    }
}

extension HTTP2GatewayFixture {
    /// Returns the same target again, as after a signal to reload the files.
    func target() async throws -> APNSService {
        let key = try ProviderKey(
            file: try await Self.credentials.value.providerKeyFile, keyID: "ABCDE12345", teamID: "TEAM123456")
        return APNSService(
            endpoint: endpoint, bundleID: "com.example.app", tokens: tokens.map { TokenSource(key: key, store: $0) })
    }
}

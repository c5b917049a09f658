import ChatDomain
import Foundation
import NIOCore
import PushWire
import Synchronization
import Testing

@testable import HTTP2Wire
@testable import WebPushGateway

extension WebPushGatewayTests {
    /// Sends `count` pushes to a new service, and returns their outcomes.
    private func send(
        _ count: Int, host: String = "localhost", answerLimit: Duration = .seconds(60),
        script: @escaping ScriptedService.Script
    ) async throws -> (outcomes: [Int64: Outcome], service: ScriptedService) {
        let scripted = try await ScriptedService.start(service.tls, script: script)
        let subscriptions = (1...count).map { service.subscription($0, host: host, port: scripted.port) }
        let gateway = try gateway(
            subscriptions, hosts: ["\(host):\(scripted.port)"], addresses: [host: "127.0.0.1"],
            answerLimit: answerLimit)
        let outcomes = try await send(subscriptions.enumerated().map { push($0 + 1, to: $1) }, over: gateway)
        await scripted.stop()
        #expect(outcomes.count == count)
        return (outcomes, scripted)
    }

    /// The behaviour of services that accept every push in the end.
    enum Habit: String, CaseIterable, Sendable {
        case plain, oneStream, noStreamAtFirst, noWindowAtFirst, smallWindow, goesAway, goesAwayAtOnce, refusesFirst,
            everyKindOfFrame, resetsAfterHeaders, longBody, endlessBody

        /// Plays the script of the behaviour.
        func play(_ peer: ScriptedService.Peer, _ heard: ScriptedService.Heard) {
            switch (self, heard) {
            case (.oneStream, .connected): peer.settings([(3, 1)])
            case (.oneStream, .opened): #expect(peer.open.count == 1)
            case (.noStreamAtFirst, .connected): peer.settings([(3, 0)])
            case (.noStreamAtFirst, .acknowledgedSettings) where peer.open.isEmpty && peer.answered == 0:
                peer.settings([(3, 10)])
            case (.noWindowAtFirst, .connected): peer.settings([(4, 0)])
            case (.noWindowAtFirst, .opened(let stream, _)):
                peer.send(.windowUpdate, on: stream, ScriptedService.Peer.bytes(10_000))
            case (.smallWindow, .connected): peer.settings([(4, 100)])
            case (.smallWindow, .opened(let stream, _)):
                for _ in 0..<100 { peer.send(.windowUpdate, on: stream, ScriptedService.Peer.bytes(50)) }
            case (.goesAwayAtOnce, .connected) where peer.number == 0:
                peer.settings()
                peer.goAway(after: 0)
                peer.close()
            case (_, .connected): peer.settings()
            case (.goesAway, .request(let stream, _)) where peer.answered == 7 && peer.number < 3:
                peer.answer(stream)
                peer.goAway(after: stream)
            case (.goesAway, .request) where peer.answered > 7 && peer.number < 3: break
            case (.refusesFirst, .request(let stream, _)) where stream == 1: peer.reset(stream, .refusedStream)
            case (.everyKindOfFrame, .request(let stream, _)):
                peer.headers(stream, [(":status", "103"), ("link", "</>")])
                peer.send(.ping, on: 0, [UInt8](repeating: 7, count: 8))
                peer.settings([(3, 50)])
                peer.send(.priority, on: stream, ScriptedService.Peer.bytes(0, 5))
                peer.send(.windowUpdate, on: 0, ScriptedService.Peer.bytes(1000))
                // Send the headers in two frames.
                let block = ScriptedService.Peer.block([(":status", "201"), ("location", "/m/1")])
                peer.send(.headers, [], on: stream, Array(block.prefix(7)))
                peer.send(.continuation, .endHeaders, on: stream, Array(block.dropFirst(7)))
                peer.send(.data, .padded, on: stream, [3, 1, 2, 3, 0, 0, 0])
                peer.conclude(stream)
                peer.headers(stream, [("trailer", "x")], [.endHeaders, .endStream])
            case (.resetsAfterHeaders, .request(let stream, _)):
                peer.headers(stream, [(":status", "201")])
                peer.reset(stream, .noError)
            case (.longBody, .request(let stream, _)):
                peer.headers(stream, [(":status", "201")])
                peer.send(.data, .endStream, on: stream, [UInt8](repeating: 0x41, count: 16_000))
            case (.endlessBody, .request(let stream, _)):
                peer.headers(stream, [(":status", "201")])
                peer.send(.data, on: stream, [UInt8](repeating: 0x41, count: 5000))
            case (_, .request(let stream, _)): peer.answer(stream)
            default: break
            }
        }
    }

    @Test("A service that accepts pushes gets each of them once, whatever else it does", arguments: Habit.allCases)
    func habits(_ habit: Habit) async throws {
        let (outcomes, scripted) = try await send(40) { habit.play($0, $1) }
        #expect(outcomes.values.allSatisfy { $0 == .accepted }, "\(outcomes)")
        let wanted = (1...40).map { "/201/\($0)" }
        // A push that GOAWAY or a reset reports as unprocessed is sent once more, even if it was in flight at the
        // GOAWAY.
        #expect(Set(scripted.paths) == Set(wanted))
        if ![.goesAway, .goesAwayAtOnce, .refusesFirst].contains(habit) { #expect(scripted.paths.count == 40) }
        if habit == .goesAway { #expect(scripted.connections == 4) }
    }

    /// The behaviour of services that accept no push.
    enum Failing: String, CaseIterable, Sendable {
        case answersNothing, stopsReading, noSettings, noStreams, noWindow, closes, resets, refuses, goesAway, noStatus,
            longHeaders, pushes, unopenedStream, brokenHeaders, pings, tooMuchBody

        var isSilent: Bool { [.answersNothing, .stopsReading, .noSettings, .noStreams, .noWindow].contains(self) }

        func play(_ peer: ScriptedService.Peer, _ heard: ScriptedService.Heard) {
            switch (self, heard) {
            case (.noSettings, _): break
            case (.noStreams, .connected): peer.settings([(3, 0)])
            case (.noWindow, .connected): peer.settings([(4, 0)])
            case (.closes, .connected): peer.close()
            case (.goesAway, .connected):
                peer.settings()
                peer.goAway(after: 0)
            case (.stopsReading, .connected):
                peer.settings()
                peer.stopReading()
            case (_, .connected): peer.settings()
            case (.resets, .request(let stream, _)): peer.reset(stream, .internalError)
            case (.refuses, .request(let stream, _)): peer.reset(stream, .refusedStream)
            case (.noStatus, .request(let stream, _)):
                peer.headers(stream, [("x", "y")], [.endHeaders, .endStream])
            case (.longHeaders, .request(let stream, _)):
                peer.send(.headers, [], on: stream, ScriptedService.Peer.block([(":status", "201")]))
                // One megabyte.
                for _ in 0..<64 { peer.send(.continuation, [], on: stream, [UInt8](repeating: 0x41, count: 16_384)) }
            case (.pushes, .request(let stream, _)):
                peer.send(.pushPromise, .endHeaders, on: stream, ScriptedService.Peer.bytes(2))
            case (.unopenedStream, .request): peer.send(.data, on: 9999, [1])
            case (.brokenHeaders, .request(let stream, _)): peer.send(.headers, .endHeaders, on: stream, [0xFF, 0xFF])
            case (.pings, .request(stream: 1, path: _)):
                let ping = ScriptedService.Peer.frame(.ping, on: 0, [UInt8](repeating: 7, count: 8))
                peer.send(ByteBuffer(bytes: (0..<30_000).flatMap { _ in ping.readableBytesView }))
            case (.tooMuchBody, .request(let stream, _)):
                // More than the connection's window, and no status before it.
                for _ in 0..<5 { peer.send(.data, on: stream, [UInt8](repeating: 0x41, count: 16_384)) }
            default: break
            }
        }
    }

    @Test(
        "A service that fails loses no push and delays no other service: each push is retried",
        arguments: Failing.allCases)
    func failures(_ failing: Failing) async throws {
        let (outcomes, scripted) = try await send(
            40, answerLimit: failing.isSilent ? .seconds(1) : .seconds(60)
        ) { failing.play($0, $1) }
        for outcome in outcomes.values {
            switch outcome {
            case .retry, .postponed: break
            default: Issue.record("became \(outcome)")
            }
        }
        if !failing.isSilent { #expect(scripted.connections > 0) }
    }

    @Test("A response before the request is complete counts, and the request is not finished")
    func early() async throws {
        let (outcomes, _) = try await send(10) { peer, heard in
            switch heard {
            case .connected: peer.settings([(4, 10)])
            case .opened(let stream, _): peer.answer(stream, 413)
            default: break
            }
        }
        for outcome in outcomes.values {
            guard case .rejected("413", _) = outcome else {
                Issue.record("became \(outcome)")
                return
            }
        }
    }

    @Test("The outcome of a rejection has the service's waiting time and words")
    func refusal() async throws {
        let begun = Timestamp.now()
        let (outcomes, _) = try await send(1) { peer, heard in
            switch heard {
            case .connected: peer.settings()
            case .request(let stream, _):
                peer.headers(stream, [(":status", "429"), ("retry-after", "120")])
                peer.send(.data, .endStream, on: stream, Array(#"{"reason":"TooMany"}"#.utf8))
            default: break
            }
        }
        guard case .retry("429 TooMany", let notBefore?) = outcomes[1] else {
            Issue.record("\(outcomes)")
            return
        }
        #expect(notBefore >= begun + .seconds(120))
    }

    @Test("A service with a certificate for another name gets no push")
    func certificate() async throws {
        let (outcomes, scripted) = try await send(3, host: "other.test") { Habit.plain.play($0, $1) }
        for outcome in outcomes.values {
            guard case .retry = outcome else {
                Issue.record("became \(outcome)")
                return
            }
        }
        #expect(scripted.paths.isEmpty)
    }

    @Test("After a change of credentials, pushes in flight get their responses on their connection")
    func reconfigured() async throws {
        let held = AsyncStream.makeStream(of: Void.self)
        let release = Releases()
        let scripted = try await ScriptedService.start(service.tls) { peer, heard in
            switch heard {
            case .connected: peer.settings()
            case .request(let stream, _):
                release.hold(peer, stream)
                if peer.open.count == 10 { held.continuation.yield() }
            default: break
            }
        }
        let subscriptions = (1...10).map { service.subscription($0, port: scripted.port) }
        let gateway = try gateway(subscriptions, hosts: ["localhost:\(scripted.port)"])
        async let sending = send(subscriptions.enumerated().map { push($0 + 1, to: $1) }, over: gateway)
        for await _ in held.stream { break }
        gateway.reconfigure(sender: nil, format: WebPushFormat(publicURL: nil))
        release.all()
        #expect(try await sending.values.allSatisfy { $0 == .accepted })
        #expect(scripted.connections == 1)
        await scripted.stop()
    }

    @Test("A service that does not respond does not keep the relay from stopping")
    func stops() async throws {
        let held = AsyncStream.makeStream(of: Void.self)
        let scripted = try await ScriptedService.start(service.tls) { peer, heard in
            switch heard {
            case .connected: peer.settings([(3, 5)])
            case .request: if peer.open.count == 5 { held.continuation.yield() }
            default: break
            }
        }
        let subscriptions = (1...20).map { service.subscription($0, port: scripted.port) }
        let gateway = try gateway(
            subscriptions, hosts: ["localhost:\(scripted.port)"], drainLimit: .milliseconds(10))
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await gateway.run() }
            guard let slot = await gateway.slot(fresh: false) else { return }
            let pushes = subscriptions.enumerated().map { push($0 + Int(slot.firstIdentifier), to: $1) }
            gateway.write(Lease(slot: slot, pushes: pushes))
            for await _ in held.stream { break }
            await gateway.drain()
            await group.next()
            await gateway.finish()
        }
        while await gateway.reports() != nil {}
        await scripted.stop()
    }

    /// Responses that are held back.
    private final class Releases: Sendable {
        private let held = Mutex<[(peer: NIOLoopBound<ScriptedService.Peer>, stream: Int)]>([])

        func hold(_ peer: ScriptedService.Peer, _ stream: Int) {
            let bound = NIOLoopBound(peer, eventLoop: peer.eventLoop)
            held.withLock { $0.append((bound, stream)) }
        }

        func all() {
            for (peer, stream) in held.withLock({ $0 }) { peer.eventLoop.execute { peer.value.answer(stream) } }
        }
    }
}

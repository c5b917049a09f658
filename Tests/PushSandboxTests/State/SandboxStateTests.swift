import Foundation
import NIOCore
import Testing

@testable import PushSandbox
@testable import PushWire

@Suite("The sandbox's decisions")
struct SandboxStateTests {
    private let now = Date(timeIntervalSince1970: 1_304_805_449)
    private let peer = BinaryPeer(connection: 1, topic: "app")

    private func answers(_ state: SandboxState) -> [InboxEntry.Response] {
        state.inbox.page().entries.map(\.answer)
    }

    @Test("A good notification is accepted without a response", arguments: BinaryCommand.allCases)
    func accepted(command: BinaryCommand) throws {
        var state = SandboxState.forTests()
        let notification = BinaryNotification.good(7, command: command)
        #expect(state.decide(notification, from: peer, at: now) == .next)
        let entry = try #require(state.inbox.page(since: 0, limit: 1).entries.first)
        #expect(entry.answer == .accepted)
        #expect(entry.topic == "app")
        #expect(entry.identifier == (command == .simple ? nil : 7))
        #expect(entry.payload == Array(#"{"aps":{}}"#.utf8))
        #expect(entry.receivedAt == now)
        #expect(state.stats.binary.answers.accepted == 1)
    }

    @Test(
        "Each fault gives its decision and its record",
        arguments: [
            (
                .status(.processingError, delay: 0, identifier: nil),
                .end(.init(status: .processingError, identifier: 7), afterMilliseconds: 0), .refused(.processingError)
            ),
            (
                .status(.init(rawValue: 77), delay: 300, identifier: 0),
                .end(.init(status: .init(rawValue: 77), identifier: 0), afterMilliseconds: 300),
                .refused(.init(rawValue: 77))
            ),
            (
                .status(.shutdown, delay: 0, identifier: nil),
                .end(.init(status: .shutdown, identifier: 7), afterMilliseconds: 0), .accepted
            ),
            (.close, .end(nil, afterMilliseconds: 0), .closed),
            (.reset, .reset, .reset),
            (.stopReading(nil), .pause(milliseconds: nil), .accepted),
            (.stopReading(5), .pause(milliseconds: 5), .accepted),
            (.delay(9), .postpone(milliseconds: 9), nil),
            (.drop, .next, .dropped),
        ] as [(BinaryFault, BinaryDecision, InboxEntry.Response?)])
    func faults(fault: BinaryFault, decision: BinaryDecision, answer: InboxEntry.Response?) throws {
        var state = SandboxState.forTests()
        try state.faults.add(Fault(fault))
        #expect(state.decide(.good(7), from: peer, at: now) == decision)
        #expect(answers(state) == (answer.map { [$0] } ?? []))
        // The fault hits only once.
        #expect(state.decide(.good(8), from: peer, at: now) == .next)
    }

    @Test("Command 0 gets no response, unless a fault names an identifier")
    func simpleHasNoPacket() throws {
        var state = SandboxState.forTests()
        try state.faults.add(Fault(BinaryFault.status(.invalidToken, delay: 0, identifier: nil)))
        try state.faults.add(Fault(BinaryFault.status(.shutdown, delay: 0, identifier: 41)))
        let simple = BinaryNotification.good(0, command: .simple)
        #expect(state.decide(simple, from: peer, at: now) == .end(nil, afterMilliseconds: 0))
        #expect(
            state.decide(simple, from: peer, at: now)
                == .end(.init(status: .shutdown, identifier: 41), afterMilliseconds: 0))
        #expect(answers(state) == [.refused(.invalidToken), .accepted])
    }

    @Test(
        "Unreadable bytes get the configured response, which does not affect other rejections",
        arguments: [
            (.protocolError, .protocolError, .framed, .init(status: .protocolError, identifier: 7)),
            (.unknown, .protocolError, .framed, .init(status: .unknown, identifier: 7)),
            (.close, .protocolError, .framed, nil),
            (.close, .missingDeviceToken, .framed, .init(status: .missingDeviceToken, identifier: 7)),
            (.protocolError, .missingDeviceToken, .simple, nil),
            (.protocolError, .protocolError, nil, .init(status: .protocolError, identifier: 7)),
        ] as [(SandboxConfiguration.MalformedResponse, BinaryStatus, BinaryCommand?, BinaryErrorResponse?)])
    func malformed(
        answer: SandboxConfiguration.MalformedResponse, status: BinaryStatus, command: BinaryCommand?,
        packet: BinaryErrorResponse?
    ) {
        var state = SandboxState.forTests { $0.malformedResponse = answer }
        let malformed = BinaryNotificationParser.Malformed(status: status, identifier: 7, command: command)
        #expect(state.decide(malformed, from: peer, at: now) == .end(packet, afterMilliseconds: 0))
        #expect(state.inbox.count == 1)
    }

    private static let probe = BinaryNotificationParser.Malformed(
        status: .missingDeviceToken, identifier: 7, command: .framed)

    @Test(
        "Only a probe gets the response that is configured for probes",
        arguments: [
            (.answer, .end(.init(status: .missingDeviceToken, identifier: 7), afterMilliseconds: 0)),
            (.unidentified, .end(.init(status: .processingError, identifier: 0), afterMilliseconds: 0)),
            (.close, .end(nil, afterMilliseconds: 0)), (.silence, .pause(milliseconds: nil)),
        ] as [(SandboxConfiguration.ProbeResponse, BinaryDecision)])
    func probe(answer: SandboxConfiguration.ProbeResponse, decision: BinaryDecision) {
        var state = SandboxState.forTests { $0.probeResponse = answer }
        #expect(state.decide(Self.probe, from: peer, at: now) == decision)
        #expect(state.inbox.count == 1)
        let other = BinaryNotificationParser.Malformed(status: .missingPayload, identifier: 8, command: .framed)
        #expect(
            state.decide(other, from: peer, at: now)
                == .end(.init(status: .missingPayload, identifier: 8), afterMilliseconds: 0))
    }

    @Test("A fault of probes hits only probes, for its number of times, and other faults do not hit them")
    func probeFault() throws {
        var state = SandboxState.forTests()
        try state.faults.add(Fault(ProbeFault(answer: .unidentified, status: .shutdown), after: 1))
        try state.faults.add(Fault(BinaryFault.close))
        let proper = BinaryDecision.end(.init(status: .missingDeviceToken, identifier: 7), afterMilliseconds: 0)
        #expect(state.decide(Self.probe, from: peer, at: now) == proper)
        #expect(state.decide(.good(7), from: peer, at: now) == .end(nil, afterMilliseconds: 0))
        #expect(state.decide(.good(8), from: peer, at: now) == .next)
        #expect(
            state.decide(Self.probe, from: peer, at: now)
                == .end(.init(status: .shutdown, identifier: 0), afterMilliseconds: 0))
        #expect(state.decide(Self.probe, from: peer, at: now) == proper)
    }

    @Test("Without an identifier the packet has 0")
    func identifierZero() {
        var state = SandboxState.forTests()
        let malformed = BinaryNotificationParser.Malformed(status: .missingPayload, identifier: nil, command: .framed)
        #expect(
            state.decide(malformed, from: peer, at: now)
                == .end(.init(status: .missingPayload, identifier: 0), afterMilliseconds: 0))
    }

    @Test(
        "A strict sandbox rejects unknown tokens and payloads that are no object; a lenient one accepts both",
        arguments: [
            (true, true, #"{"aps":{}}"#, nil), (true, false, #"{"aps":{}}"#, .invalidToken),
            (true, true, "[1]", .processingError), (true, true, "nonsense", .processingError),
            (false, false, "nonsense", nil),
        ] as [(Bool, Bool, String, BinaryStatus?)])
    func strict(strict: Bool, isKnown: Bool, payload: String, status: BinaryStatus?) throws {
        var state = SandboxState.forTests { $0.strict = strict }
        let notification = BinaryNotification.good(7, payload: payload)
        if isKnown { _ = try state.devices.install(token: notification.token, topic: "app", at: now) }
        let decision = state.decide(notification, from: peer, at: now)
        #expect(decision == (status.map { .end(.init(status: $0, identifier: 7), afterMilliseconds: 0) } ?? .next))
    }

    @Test("A removed device is rejected and listed once by feedback, until the app is installed again")
    func removal() throws {
        var state = SandboxState.forTests()
        let notification = BinaryNotification.good(7)
        let token = notification.token
        let refused = BinaryDecision.end(.init(status: .invalidToken, identifier: 7), afterMilliseconds: 0)
        _ = try state.removeDevice(token: token, topic: "app", at: now)
        _ = try state.removeDevice(token: token, topic: "app", at: now + 1)
        #expect(state.decide(notification, from: peer, at: now) == refused)
        #expect(
            state.readFeedback(topic: "app")?.tuples == [FeedbackTuple(timestamp: 0x4DC5_C049, token: token)])
        #expect(state.readFeedback(topic: "other")?.tuples == [])
        #expect(state.readFeedback(topic: nil) == nil)
        _ = try state.devices.install(token: token, topic: "app", at: now + 2)
        #expect(state.decide(notification, from: peer, at: now) == .next)
    }

    @Test("A strict sandbox knows only devices that it created")
    func strictRemoval() throws {
        var state = SandboxState.forTests { $0.strict = true }
        #expect(try state.removeDevice(token: [1], topic: "app", at: now) == nil)
        #expect(state.feedback.count == 0)
    }

    @Test("A token of another app is rejected, and so is a certificate without a topic")
    func topics() throws {
        var state = SandboxState.forTests()
        let notification = BinaryNotification.good(7)
        _ = try state.devices.install(token: notification.token, topic: "other", at: now)
        #expect(
            state.decide(notification, from: peer, at: now)
                == .end(.init(status: .invalidToken, identifier: 7), afterMilliseconds: 0))
        #expect(
            state.decide(notification, from: BinaryPeer(connection: 1, topic: nil), at: now)
                == .end(.init(status: .missingTopic, identifier: 7), afterMilliseconds: 0))
    }

    @Test("Feedback is cleared when it is sent only with the option", arguments: [false, true])
    func clearingOnHandshake(isStrict: Bool) throws {
        var state = SandboxState.forTests { $0.clearFeedbackOnHandshake = isStrict }
        _ = try state.removeDevice(token: [1], topic: "app", at: now)
        let handedOut = state.readFeedback(topic: "app")
        let reading = try #require(handedOut)
        #expect(reading.tuples.count == 1)
        #expect(state.feedback.count == (isStrict ? 0 : 1))
        state.clearFeedback(reading)
        #expect(state.feedback.count == 0)
        #expect(state.stats.feedback.cleared == 1)
    }

    @Test("Connections over the limit are refused and counted")
    func admission() {
        var state = SandboxState.forTests { $0.connectionLimit = 2 }
        #expect(state.admit(.binary, at: Date()) == 1)
        #expect(state.admit(.feedback, at: Date()) == 2)
        #expect(state.admit(.binary, at: Date()) == 3)
        #expect(state.admit(.binary, at: Date()) == nil)
        #expect(state.stats.binary.connections == .init(open: 2, seen: 2, refused: 1))
        #expect(state.stats.refusals.map(\.reason) == [.tooMany])
        #expect(state.stats.feedback.connections.seen == 1)
    }

    @Test("All refused connections are counted, and the newest twenty are kept")
    func refusals() {
        var state = SandboxState.forTests()
        for number in 1...25 { state.refuse(number, of: .http2, .noPreface, "why", at: now) }
        #expect(state.stats.http2.connections.noPreface == 25)
        #expect(state.stats.refusals.map(\.connection) == (6...25).map { $0 })
    }

    @Test("All counts are shown, also those that are 0")
    func stats() throws {
        let expected = #"""
            {"activities":{"active":0,"ended":0},"binary":{"answers":{"accepted":0},\#
            "connections":{"handshakes_failed":0,"open":0,"refused":0,"seen":0},"discarded":0,\#
            "discarded_bytes":0},"broadcasts":{"answers":{"accepted":0}},"browsers":{"connected":0,\#
            "removed":0,"subscribed":0,"waiting":0},"channels":{"answers":{"accepted":0},\#
            "connections":{"handshakes_failed":0,"no_alpn":0,"no_preface":0,"open":0,"refused":0,"seen":0},\#
            "count":0},"devices":{"installed":0,"removed":0},"fcm":{"answers":{"accepted":0}},\#
            "feedback":{"cleared":0,"connections":{"handshakes_failed":0,"open":0,"refused":0,"seen":0},\#
            "sent":0,"waiting":0},"http2":{"answers":{"accepted":0},"connections":{"handshakes_failed":0,\#
            "no_alpn":0,"no_preface":0,"open":0,"refused":0,"seen":0},"most_streams":0,\#
            "streams_over_limit":0},"inbox":{"count":0,"dropped":0,"last":0},"installations":{"installed":0,\#
            "removed":0},"proxy":{"connections":{"handshakes_failed":0,"no_tunnel":0,"open":0,"refused":0,\#
            "seen":0}},"refusals":[],"webpush":{"answers":{"accepted":0}}}
            """#
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        var state = SandboxState.forTests()
        #expect(String(decoding: try encoder.encode(state.stats), as: UTF8.self) == expected)
        for gateway in GatewayProtocol.allCases { state.counts.count(.accepted, over: gateway) }
        let counted = String(decoding: try encoder.encode(state.stats), as: UTF8.self)
        #expect(counted == expected.replacing(#""accepted":0"#, with: #""accepted":1"#))
    }
}

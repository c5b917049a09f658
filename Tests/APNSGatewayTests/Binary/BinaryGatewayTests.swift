import ChatDomain
import Foundation
import Logging
import NIOCore
import PushSandbox
import PushWire
import Synchronization
import TestSupport
import Testing

@testable import APNSGateway
@testable import GatewayPool

/// A gateway that is connected to a sandbox over real TLS.
private final class Pair: Sendable {
    let sandbox: Sandbox
    let addresses: SandboxAddresses
    let credentials: SandboxCredentials
    let gateway: BinaryGateway
    let folder: URL
    private let task: Task<Void, Never>
    private let hasEnded = Atomic(false)

    init(
        connections: Int = 1, settleTime: Duration = .seconds(30), probe: SandboxConfiguration.ProbeResponse = .answer
    ) async throws {
        folder = FileManager.default.temporaryDirectory.appending(path: "pushchat-\(UUID().uuidString)")
        let silent = Logger.silent
        var configuration = SandboxConfiguration(directory: folder.path)
        configuration.probeResponse = probe
        configuration.ports = SandboxPort.free
        credentials = try await configuration.credentials(logger: silent)
        sandbox = Sandbox(configuration: configuration, logger: silent)
        addresses = try await sandbox.start()
        let gateway = BinaryGateway(
            endpoint: try Self.endpoint(addresses[.binary], credentials),
            options: .init(connections: connections, settleTime: settleTime), connectionIDs: ConnectionIDs(),
            logger: silent
        )
        self.gateway = gateway
        task = Task { await gateway.run() }
    }

    static func endpoint(_ address: SandboxAddress, _ credentials: SandboxCredentials) throws -> GatewayEndpoint {
        try GatewayEndpoint(
            host: address.host, port: address.port,
            credentials: try ClientCredentials(certificate: credentials.clientFile), trust: credentials.authorityFile)
    }

    /// Stops gateway and sandbox if a test failed before ``end()``.
    deinit {
        guard !hasEnded.load(ordering: .acquiring) else { return }
        task.cancel()
        Task { [gateway, sandbox] in
            await gateway.drain()
            await gateway.finish()
            await sandbox.stop()
        }
        try? FileManager.default.removeItem(at: folder)
    }

    func end() async {
        hasEnded.store(true, ordering: .releasing)
        await gateway.drain()
        await gateway.finish()
        task.cancel()
        await sandbox.stop()
        try? FileManager.default.removeItem(at: folder)
    }

    func lease(_ slot: ConnectionSlot, _ count: Int, isProbe: Bool = false) throws -> Lease {
        let pushes = try (0..<count).map { number in
            Push(
                id: Int64(number), identifier: slot.firstIdentifier + UInt32(number),
                address: .token(try DeviceToken(parsing: String(repeating: "ab", count: 32))),
                payload: Array("{\"aps\":{}}".utf8))
        }
        return Lease(slot: slot, pushes: pushes, isProbe: isProbe)
    }

    /// Returns the reports of a connection until `count` pushes have one.
    func reports(_ slot: ConnectionSlot, _ count: Int) async -> [DeliveryReport] {
        var all: [DeliveryReport] = []
        var seen = 0
        while seen < count, let reports = await gateway.reports() {
            for report in reports where report.connection == slot.connection {
                all.append(report)
                seen += report.identifiers.count
            }
        }
        return all
    }
}

@Suite("The binary gateway's connections", .timeLimit(.minutes(5)))
struct BinaryGatewayTests {
    @Test("Silence settles pushes, and the connection stays open")
    func silence() async throws {
        let pair = try await Pair(settleTime: .milliseconds(300))
        let slot = try #require(await pair.gateway.slot(fresh: false))
        #expect(slot.firstIdentifier == 1)
        #expect(slot.isFresh)
        #expect(!slot.answersEach)
        pair.gateway.write(try pair.lease(slot, 3))
        let reports = await pair.reports(slot, 3)
        #expect(reports.map(\.outcome) == [.accepted])
        let next = try #require(await pair.gateway.slot(fresh: false))
        #expect(next.connection == slot.connection)
        #expect(next.firstIdentifier == 4)
        await pair.end()
    }

    @Test("A drain probes for unsettled pushes, reports every push, and then offers no slots")
    func drain() async throws {
        let pair = try await Pair()
        let slot = try #require(await pair.gateway.slot(fresh: false))
        pair.gateway.write(try pair.lease(slot, 100))
        async let reports = pair.reports(slot, 100)
        await pair.gateway.drain()
        #expect(await reports.map(\.outcome) == [.accepted])
        #expect(await pair.gateway.slot(fresh: false) == nil)
        // A late lease for a slot that was returned before.
        let late = ConnectionSlot(connection: slot.connection, firstIdentifier: 101, capacity: 3, isFresh: false)
        pair.gateway.write(try pair.lease(late, 3))
        await pair.gateway.finish()
        #expect(await pair.reports(late, 3).map(\.outcome) == [.notProcessed])
        #expect(await pair.gateway.reports() == nil)
        await pair.end()
    }

    @Test("New credentials replace the connections, and no push in flight is lost")
    func reconfigure() async throws {
        let pair = try await Pair(connections: 2)
        let slot = try #require(await pair.gateway.slot(fresh: false))
        pair.gateway.write(try pair.lease(slot, 50))
        async let reports = pair.reports(slot, 50)
        pair.gateway.reconfigure(endpoint: try Pair.endpoint(pair.addresses[.binary], pair.credentials))
        #expect(await reports.map(\.outcome) == [.accepted])
        let next = try #require(await pair.gateway.slot(fresh: false))
        #expect(next.connection.number > 2)
        await pair.end()
    }

    @Test("Without an endpoint there are no slots until one is configured")
    func lateEndpoint() async throws {
        let pair = try await Pair()
        let gateway = BinaryGateway(
            endpoint: nil, options: .init(connections: 1), connectionIDs: ConnectionIDs(),
            logger: .silent)
        let running = Task { await gateway.run() }
        async let slot = gateway.slot(fresh: false)
        gateway.reconfigure(endpoint: try Pair.endpoint(pair.addresses[.binary], pair.credentials))
        #expect(await slot != nil)
        await gateway.drain()
        running.cancel()
        await pair.end()
    }

    @Test("A request for a fresh slot opens a connection, and pushes in flight on the old one get their outcomes")
    func fresh() async throws {
        let pair = try await Pair()
        let slot = try #require(await pair.gateway.slot(fresh: false))
        pair.gateway.write(try pair.lease(slot, 5))
        let fresh = try #require(await pair.gateway.slot(fresh: true))
        #expect(fresh.isFresh)
        #expect(fresh.connection != slot.connection)
        #expect(await pair.reports(slot, 5).map(\.outcome) == [.accepted])
        await pair.end()
    }

    @Test("A probe gets its response at once, and its connection is replaced")
    func probe() async throws {
        let pair = try await Pair()
        let slot = try #require(await pair.gateway.slot(fresh: true))
        pair.gateway.write(try pair.lease(slot, 4, isProbe: true))
        #expect(await pair.reports(slot, 4).map(\.outcome) == [.accepted])
        let next = try #require(await pair.gateway.slot(fresh: false))
        #expect(next.connection != slot.connection)
        await pair.end()
    }

    @Test(
        "If a gateway does not understand probes, one group is in doubt, then silence proves several at a time",
        arguments: [SandboxConfiguration.ProbeResponse.unidentified, .close])
    func notUnderstood(probe: SandboxConfiguration.ProbeResponse) async throws {
        let pair = try await Pair(settleTime: .milliseconds(300), probe: probe)
        let first = try #require(await pair.gateway.slot(fresh: true))
        #expect(!first.isProvenBySilence)
        pair.gateway.write(try pair.lease(first, 4, isProbe: true))
        let reason = probe == .close ? "ConnectionClosed" : "ProcessingError"
        #expect(await pair.reports(first, 4).map(\.outcome) == [.unanswered(reason: reason)])
        for _ in 0..<3 {
            let slot = try #require(await pair.gateway.slot(fresh: true))
            #expect(slot.isProvenBySilence)
            pair.gateway.write(try pair.lease(slot, 4, isProbe: true))
        }
        var outcomes: [Outcome] = []
        while outcomes.count < 3, let reports = await pair.gateway.reports() { outcomes += reports.map(\.outcome) }
        #expect(outcomes == [.accepted, .accepted, .accepted])
        await pair.end()
    }

    @Test("Pushes written to a closed connection were not processed")
    func gone() async throws {
        let pair = try await Pair()
        let slot = try #require(await pair.gateway.slot(fresh: false))
        pair.gateway.reconfigure(endpoint: nil)
        pair.gateway.write(try pair.lease(slot, 3))
        #expect(await pair.reports(slot, 3).map(\.outcome) == [.notProcessed])
        await pair.end()
    }

    @Test("An error response arrives over a real connection")
    func refused() async throws {
        let pair = try await Pair()
        let slot = try #require(await pair.gateway.slot(fresh: false))
        var lease = try pair.lease(slot, 3)
        let tooLarge = Push(
            id: 9, identifier: 2, address: lease.pushes[0].address,
            payload: Array("{\"aps\":{\"alert\":\"\(String(repeating: "x", count: 2048))\"}}".utf8))
        lease = Lease(slot: slot, pushes: [lease.pushes[0], tooLarge, lease.pushes[2]])
        pair.gateway.write(lease)
        #expect(
            await pair.reports(slot, 3).map(\.outcome) == [
                .accepted, .rejected(reason: "InvalidPayloadSize"), .notProcessed,
            ])
        await pair.end()
    }

    @Test("An empty feedback list is read from the sandbox to its end")
    func feedback() async throws {
        let pair = try await Pair()
        let source = BinaryFeedbackSource(endpoint: try Pair.endpoint(pair.addresses[.feedback], pair.credentials))
        let rest = try await source.read { reports in Issue.record("\(reports.count) reports of an empty list") }
        #expect(rest == 0)
        await pair.end()
    }
}

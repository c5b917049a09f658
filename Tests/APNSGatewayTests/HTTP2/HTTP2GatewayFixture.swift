import ChatDomain
import Foundation
import Logging
import NIOCore
import NIOHTTP2
import PushSandbox
import PushWire
import Synchronization
import TestSupport
import Testing

@testable import APNSGateway
@testable import GatewayPool

/// The gateway under test, and the scripted server that it is connected to.
final class HTTP2GatewayFixture: Sendable {
    static let silent = Logger.silent
    /// Created once for all tests.
    static let credentials = Task {
        let folder = FileManager.default.temporaryDirectory.appending(path: "pushchat-\(UUID().uuidString)").path
        directory.withLock { $0 = folder }
        atexit { try? FileManager.default.removeItem(atPath: HTTP2GatewayFixture.directory.withLock { $0 }) }
        return try await SandboxConfiguration(directory: folder).credentials(logger: silent)
    }
    private static let directory = Mutex("/nonexistent")

    let server: ScriptedServer
    let gateway: HTTP2Gateway<APNSService>
    let endpoint: GatewayEndpoint
    let tokens: FakeTokenStore?
    private let task: Task<Void, Never>
    private let reader: Task<Void, Never>
    private let hasEnded = Atomic(false)
    private let recorder: DeliveryReportRecorder

    struct InFlight {
        var outcomes: [Name: [Outcome]] = [:]
        var reports = 0
    }

    struct Name: Hashable, Comparable {
        let connection: Int64
        let identifier: UInt32

        static func < (left: Name, right: Name) -> Bool {
            (left.connection, left.identifier) < (right.connection, right.identifier)
        }
    }

    /// - Parameters:
    ///   - streams: The server's first limit of streams. If `nil`, the server announces none.
    ///   - tokens: The token store. If `nil`, the certificate is the credential.
    ///   - clock: The pool's clock. If `nil`, the real one.
    init(
        streams: Int? = 100, tokens: FakeTokenStore? = nil, connections: Int = 1,
        clock: TestClock? = nil, logger: Logger = silent, adjust: (inout HTTP2Options) -> Void = { _ in },
        script: @escaping ScriptedServer.Script
    ) async throws {
        let credentials = try await Self.credentials.value
        let key = try ProviderKey(file: credentials.providerKeyFile, keyID: "ABCDE12345", teamID: "TEAM123456")
        let certificate = tokens != nil ? nil : try ClientCredentials(certificate: credentials.clientFile)
        server = try await ScriptedServer(
            certificate: credentials.serverFile,
            settings: streams.map { [HTTP2Setting(parameter: .maxConcurrentStreams, value: $0)] } ?? [], script: script)
        endpoint = try GatewayEndpoint(
            host: "localhost", port: server.port,
            credentials: certificate, trust: credentials.authorityFile,
            applicationProtocols: [GatewayEndpoint.http2])
        self.tokens = tokens
        var options = HTTP2Options(connections: connections)
        options.growthInterval = .milliseconds(1)
        if let clock { options.clock = clock.clock }
        // Tests with a certificate do not cover the beginning of a connection, so lift its limits.
        if tokens == nil { (options.limits.unconfirmedStreams, options.limits.firstResponse) = (.max, .hours(1)) }
        adjust(&options)
        let service = APNSService(
            endpoint: endpoint, bundleID: "com.example.app", tokens: tokens.map { TokenSource(key: key, store: $0) })
        let gateway = HTTP2Gateway(
            service: service, format: APNSFormat(.http2, payloadLimit: PushType.alert.payloadLimit), options: options,
            connectionIDs: ConnectionIDs(), logger: logger)
        self.gateway = gateway
        task = Task { await gateway.run() }
        let recorder = DeliveryReportRecorder()
        self.recorder = recorder
        reader = Task {
            while let reports = await gateway.reports() { recorder.note(reports) }
        }
    }

    /// Stops gateway and server if a test failed before ``end()``.
    deinit {
        guard !hasEnded.load(ordering: .acquiring) else { return }
        task.cancel()
        Task { [gateway, server] in
            await gateway.drain()
            await gateway.finish()
            await server.stop()
        }
    }

    func end() async {
        hasEnded.store(true, ordering: .releasing)
        await gateway.drain()
        await gateway.finish()
        task.cancel()
        await reader.value
        await server.stop()
    }

    func slot(fresh: Bool = false) async throws -> ConnectionSlot {
        try #require(await gateway.slot(fresh: fresh))
    }

    @discardableResult
    func write(_ slot: ConnectionSlot, _ count: Int = 1, isProbe: Bool = false, type: String = Push.alert) throws
        -> [Name]
    {
        let pushes = try (0..<count).map { number in
            try Self.push(slot.firstIdentifier + UInt32(number), type: type)
        }
        gateway.write(Lease(slot: slot, pushes: pushes, isProbe: isProbe))
        return pushes.map { Name(connection: slot.connection.number, identifier: $0.identifier) }
    }

    static func push(_ identifier: UInt32, type: String = Push.alert) throws -> Push {
        Push(
            id: Int64(identifier), identifier: identifier,
            address: .token(
                try DeviceToken(
                    parsing: String(repeating: "aB", count: 28) + String(identifier + 0x1000_0000, radix: 16))),
            payload: Array(#"{"aps":{}}"#.utf8),
            apnsID: "8c4f7a5e-0000-4000-8000-\(String(100_000_000_000 + Int(identifier)))", type: type)
    }

    /// Sends a number of pushes as the dispatcher does, slot by slot.
    func send(_ count: Int) async throws -> [Name] {
        var names: [Name] = []
        while names.count < count {
            let slot = try await slot()
            names += try write(slot, min(slot.capacity, count - names.count))
        }
        return names
    }

    /// Returns the outcomes of the pushes, in their order, once all have one.
    func outcomes(_ names: [Name]) async -> [Outcome] {
        await recorder.wait(for: names)
        return recorder.inFlight.withLock { inFlight in names.compactMap { inFlight.outcomes[$0]?.first } }
    }

    /// The number of pushes with more than one outcome.
    var doubles: Int { recorder.inFlight.withLock { $0.outcomes.values.filter { $0.count > 1 }.count } }
    var reportCount: Int { recorder.inFlight.withLock { $0.reports } }
    var requests: [ScriptedServer.Request] { server.record.withLock { $0.requests } }
    var peers: [ScriptedPeer] { server.record.withLock { $0.peers } }
    var violations: Int { server.record.withLock { $0.violations } }

    /// Waits until a condition holds. Checks it whenever an event happens at the server.
    func until(_ condition: @escaping @Sendable () -> Bool) async {
        for await _ in server.events() where condition() { return }
    }
}

/// Records the delivery reports.
private final class DeliveryReportRecorder: Sendable {
    let inFlight = Mutex(HTTP2GatewayFixture.InFlight())
    private let waiting = Mutex<[CheckedContinuation<Void, Never>]>([])

    func note(_ reports: [DeliveryReport]) {
        inFlight.withLock { inFlight in
            inFlight.reports += reports.count
            for report in reports {
                for identifier in report.identifiers {
                    inFlight.outcomes[.init(connection: report.connection.number, identifier: identifier), default: []]
                        .append(report.outcome)
                }
            }
        }
        let readers = waiting.withLock { waiting in
            defer { waiting = [] }
            return waiting
        }
        for reader in readers { reader.resume() }
    }

    func wait(for names: [HTTP2GatewayFixture.Name]) async {
        var index = 0
        while index < names.count {
            index = settled(names, from: index)
            guard index < names.count else { return }
            await withCheckedContinuation { continuation in
                // An outcome that arrives in between is noticed, because it is recorded before the waiting tasks
                // resume.
                waiting.withLock { $0.append(continuation) }
                if settled(names, from: index) > index {
                    for reader in waiting.withLock({ waiting in
                        defer { waiting = [] }
                        return waiting
                    }) { reader.resume() }
                }
            }
        }
    }

    private func settled(_ names: [HTTP2GatewayFixture.Name], from index: Int) -> Int {
        inFlight.withLock { inFlight in
            var index = index
            while index < names.count, inFlight.outcomes[names[index]] != nil { index += 1 }
            return index
        }
    }
}

/// Issues tokens, and a new one after the last was rejected.
actor FakeTokenStore: ProviderTokenStore {
    private(set) var refused: [String?] = []
    private(set) var issued: [IssuedToken] = []
    private var failures: Int
    /// The remaining lifetimes of the first tokens, in order. Later tokens have a full lifetime.
    private var lives: [Duration]

    init(failures: Int = 0, lives: [Duration] = []) {
        self.failures = failures
        self.lives = lives
    }

    func providerToken(
        for key: ProviderKeyName, refused: String?, sign: @escaping @Sendable (Timestamp) throws -> String
    ) async throws(ChatError) -> IssuedToken {
        self.refused.append(refused)
        if failures > 0 {
            failures -= 1
            throw .unavailable(cause: "the store is locked")
        }
        if let last = issued.last, last.text != refused, last.isUsable(at: .now()) { return last }
        let time = lives.isEmpty ? Timestamp.now() : Timestamp.now() - IssuedToken.lifetime + lives.removeFirst()
        guard let text = try? sign(time) else { throw .unavailable(cause: "no signature") }
        let token = IssuedToken(text: text, issuedAt: time)
        issued.append(token)
        return token
    }
}

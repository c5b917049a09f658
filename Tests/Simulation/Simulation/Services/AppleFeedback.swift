import CSimulation
import ChatDispatch
import ChatDomain
import Logging
import NIOCore
import PushWire
import ServiceLifecycle

@testable import APNSGateway
@testable import GatewayPool

/// Apple's feedback service, which lists devices that are gone, and forgets each list as it sends it
/// (docs/binary-gateway.md, "Feedback").
final class AppleFeedback: @unchecked Sendable {
    /// A report that the relay has stored. Its time counts, but not as one in the future.
    private struct Stored {
        let token: String
        let since: Timestamp
        let latest: Timestamp
        var isActedOn = false
    }

    private unowned let world: World
    private let mayBeActive: (_ token: String) -> Bool
    private var network: Network!
    private var interval: Duration?
    private var list: [FeedbackTuple] = []
    fileprivate var cuts = 0
    fileprivate var slowness = Duration.zero
    private var connection: FeedbackConnection?
    private var stored: [Stored] = []
    private var beganAt = Moment.now

    /// - Parameter mayBeActive: Whether the gateway has never rejected a token.
    init(_ world: World, _ mayBeActive: @escaping (_ token: String) -> Bool) {
        (self.world, self.mayBeActive) = (world, mayBeActive)
        network = Network(world, protocolName: nil) { [unowned self] link in
            let connection = FeedbackConnection(self, link, world.dice)
            self.connection = connection
            return connection
        }
    }

    func plan(_ choices: Choices) {
        let dice = choices.dice
        network.plan(choices)
        choices.maybe(20, 1...50, { "\($0) % of lists are cut" }, { self.cuts = $0 })
        choices.maybe(20, 1...3000, { "lists pause for up to \($0) ms" }, { self.slowness = .milliseconds($0) })
        guard dice.chance(70) else { return }
        let interval = dice.within(1...30)
        choices.add("feedback is read every \(interval) s") { self.interval = .seconds(interval) }
        choices.add(dice.within(1...20)) { dice in
            let (member, age, isKnown) = (
                dice.below(30), dice.within(dice.among([0...0, 0...5, -5...60])), dice.chance(90)
            )
            return ("member \(member) is gone for \(age) s", { self.report(member, age, isKnown) })
        }
    }

    private func report(_ member: Int, _ age: Int, _ isKnown: Bool) {
        let token = isKnown ? Clients.token(member).bytes ?? [] : world.dice.chance(50) ? [] : [7, 7, 7]
        let time = Timestamp.now() - .seconds(age)
        list.append(FeedbackTuple(timestamp: UInt32(clamping: time.seconds), token: token))
    }

    /// Returns the list, and forgets it.
    fileprivate func takeList() -> [FeedbackTuple] {
        defer { list = [] }
        // The relay may cancel pushes to these devices from now on.
        world.ledger.unregistered.formUnion(list.compactMap { DeviceToken(bytes: $0.token)?.description })
        return list
    }

    // MARK: - The relay

    func readers(for life: Life) -> [any Service] {
        guard let interval else { return [] }
        let endpoint = try! GatewayEndpoint(host: "feedback.push.apple.com", port: 2196, trust: nil)
        var source = BinaryFeedbackSource(endpoint: endpoint)
        source.connector = network.connector()
        return [
            FeedbackReader(
                app: .default, store: NotedStore(store: life.stores.feedback, feedback: self),
                source: { [source] in NotedSource(source: source, feedback: self) }, interval: { interval },
                logger: Life.logger(world))
        ]
    }

    /// Notes the reports that are stored, and acted on.
    private struct NotedStore: FeedbackStore {
        let store: any FeedbackStore
        let feedback: AppleFeedback

        func record(_ reports: [FeedbackReport], app: AppName) async throws(ChatError) {
            let now = Timestamp.now()
            try await store.record(reports, app: app)
            feedback.stored += reports.map {
                Stored(token: "\($0.token)", since: min($0.since, now), latest: $0.since)
            }
        }

        func actOnFeedback() async throws(ChatError) -> FeedbackResult {
            let count = feedback.stored.count
            let result = try await store.actOnFeedback()
            for index in 0..<count { feedback.stored[index].isActedOn = true }
            return result
        }
    }

    /// Compares the list that arrives with the one that was sent.
    private struct NotedSource: FeedbackSource {
        let source: BinaryFeedbackSource
        let feedback: AppleFeedback

        func read(_ store: @Sendable ([FeedbackReport]) async throws -> Void) async throws -> Int {
            feedback.connection = nil
            nonisolated(unsafe) var arrived: [FeedbackReport] = []
            let rest = try await source.read { reports in
                arrived += reports
                try await store(reports)
            }
            feedback.compare(arrived)
            return rest
        }
    }

    private func compare(_ arrived: [FeedbackReport]) {
        guard let connection else { return }
        let sent = connection.sent.compactMap { tuple in
            DeviceToken(bytes: tuple.token).map {
                FeedbackReport(token: $0, since: Timestamp(seconds: Int64(tuple.timestamp)))
            }
        }
        let read = connection.sent.prefix(connection.read).count { DeviceToken(bytes: $0.token) != nil }
        world.log("feedback: \(arrived.count) of \(sent.count)")
        if arrived.count < read || arrived != Array(sent.prefix(arrived.count)) {
            world.violate(.feedbackIsStored, "\(arrived.count) of \(sent.count) reports arrived, and \(read) were read")
        }
    }

    func relayDied() {
        network.relayDied()
        connection = nil
    }

    func calmDown() {
        network.calmDown()
        (cuts, slowness) = (0, .zero)
    }

    var isSettled: Bool { stored.allSatisfy(\.isActedOn) }

    // MARK: - Properties

    /// Clocks that step would make registrations older or newer than they are.
    func check(_ rows: StoredRows) {
        guard !world.retention.hasStepped(since: beganAt) else { return }
        for report in stored {
            guard let isActive = rows.activeDevices[report.token],
                let registered = world.clients.lastRegistration(of: report.token)
            else { continue }
            if isActive, registered.end.seconds <= report.since.seconds {
                world.violate(
                    .feedbackEndsOlderRegistrations, "\(report.token) is active, and gone since \(report.since)")
            }
        }
        for (token, isActive) in rows.activeDevices.sorted(by: { $0.key < $1.key }) where !isActive {
            guard let newest = stored.filter({ $0.token == token }).map(\.latest).max(),
                let registered = world.clients.lastRegistration(of: token), mayBeActive(token),
                registered.begin.seconds > newest.seconds
            else { continue }
            world.violate(
                .laterRegistrationsStay, "\(token) is inactive, registered at \(registered.begin), gone since \(newest)"
            )
        }
    }
}

/// The service's side of a connection: it sends its list, and closes, or goes on for a while without bytes.
private final class FeedbackConnection: Peer {
    private let feedback: AppleFeedback
    private let link: Link
    private let dice: Dice
    private(set) var sent: [FeedbackTuple] = []
    /// The number of tuples that the relay has read completely.
    private(set) var read = 0

    init(_ feedback: AppleFeedback, _ link: Link, _ dice: Dice) {
        (self.feedback, self.link, self.dice) = (feedback, link, dice)
    }

    func connected() {
        var list = feedback.takeList()
        let isCut = dice.chance(feedback.cuts)
        if isCut { list = Array(list.prefix(dice.below(list.count + 1))) }
        send(list[...], isCut)
    }

    private func send(_ list: ArraySlice<FeedbackTuple>, _ isCut: Bool) {
        guard link.isOpen else { return }
        guard !list.isEmpty else { return end(isCut) }
        let next = list.prefix(dice.within(1...5))
        var bytes = ByteBuffer()
        for tuple in next { tuple.write(to: &bytes) }
        sent += next
        link.send(bytes) { wasRead in if wasRead { self.read += next.count } }
        simulation_world.run(after: dice.within(.zero...feedback.slowness)) { self.send(list[next.endIndex...], isCut) }
    }

    private func end(_ isCut: Bool) {
        if isCut {
            link.send(ByteBuffer(bytes: [0, 0, 0]))
            return dice.chance(50) ? link.reset() : link.close()
        }
        // Some servers do not close.
        if dice.chance(80) { link.close() }
    }

    func received(_ bytes: ByteBuffer) {}
    func ended() {}
}

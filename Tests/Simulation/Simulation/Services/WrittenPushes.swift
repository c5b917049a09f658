import ChatDomain

/// The pushes that the relay has written, in all of its lives, as their service recognises them.
final class WrittenPushes: @unchecked Sendable {
    private unowned let world: World
    private var tokens: [Int64: String] = [:]
    private var apnsIDs: [Int64: String] = [:]
    /// The pushes of each connection, by their identifiers.
    private var places: [ConnectionID: [UInt32: Int64]] = [:]
    /// The attempts of a push that failed, perhaps for another cause.
    private struct Mishaps {
        /// The number of attempts that ended without a response, and of those in which the service sent the push back
        /// or refused the credentials.
        var losses = 0
        var returns = 0
        /// The last outcome of these.
        var last: Outcome?
    }

    private var mishaps: [Int64: Mishaps] = [:]
    /// The pushes without an outcome, and the times at which the gateway got them.
    private(set) var underWay: [Int64: Moment] = [:]
    /// Whether the gateway takes pushes.
    private(set) var isOpen = false

    init(_ world: World) { self.world = world }

    fileprivate func begin() { (underWay, isOpen) = ([:], true) }
    fileprivate func drain() { isOpen = false }
    func token(of push: Int64) -> String? { tokens[push] }

    fileprivate func note(_ row: QueuedPush) {
        if tokens[row.id] == nil { tokens[row.id] = row.address?.description }
    }

    fileprivate func note(_ lease: Lease) {
        for push in lease.pushes {
            places[lease.slot.connection, default: [:]][push.identifier] = push.id
            underWay[push.id] = .now
            guard let apnsID = push.apnsID else { continue }
            if let first = apnsIDs.updateValue(apnsID, forKey: push.id), first != apnsID {
                world.violate(.theSameIDAtEachAttempt, "push \(push.id) was \(first) and is \(apnsID)")
            }
        }
    }

    fileprivate func note(_ report: DeliveryReport) {
        for identifier in report.identifiers {
            guard let push = places[report.connection]?[identifier] else { continue }
            underWay[push] = nil
            switch report.outcome {
            case .unanswered: mishaps[push, default: Mishaps()].losses += 1
            case .sentBack, .notAuthorized: mishaps[push, default: Mishaps()].returns += 1
            default: continue
            }
            mishaps[push]?.last = report.outcome
        }
    }

    /// Returns the push with a payload, and the token of its device. `nil` if the relay has written no such push.
    func push(_ payload: [UInt8]) -> (id: Int64, token: String)? {
        let end = payload.lastIndex(of: UInt8(ascii: ":")) ?? 0
        let id = Int64(String(decoding: payload[(end + 1)...].dropLast(), as: UTF8.self))
        return id.flatMap { id in tokens[id].map { (id, $0) } }
    }

    func isKnown(_ push: Int64, apnsID: String) -> Bool { apnsIDs[push] == apnsID }

    /// Whether a push may have failed for what happened to it often enough, although it is not the cause
    /// (``PushLifeCycle``).
    func permits(_ push: StoredRows.Push) -> Bool {
        if world.ledger.isGone(push) { return true }
        guard push.state == "failed", let mishaps = mishaps[push.id] else { return false }
        return switch mishaps.last {
        case .unanswered(let reason): mishaps.losses >= PushLifeCycle.aloneFrom + 5 && push.reason == reason
        case .notAuthorized(let reason, _): mishaps.returns >= 10 && push.reason == reason
        case .sentBack(let reason): mishaps.returns >= 30 && push.reason == reason
        default: false
        }
    }
}

/// A format that adds the push id to each payload, so that a service recognises the push.
struct MarkedFormat: PushFormat {
    private let format: any PushFormat
    private let pushes: WrittenPushes
    private let address: @Sendable (Address) -> Address

    /// - Parameter address: Returns the form of an address that the format requires.
    init(
        _ format: any PushFormat, _ pushes: WrittenPushes, address: @escaping @Sendable (Address) -> Address = { $0 }
    ) {
        (self.format, self.pushes, self.address) = (format, pushes, address)
    }

    var tokens: TokenKind { .bytes }
    var showsUnread: Bool { format.showsUnread }
    func payload(of alert: ChatAlert) throws(ChatError) -> String { try format.payload(of: alert) }
    func warning(pushType: String) -> String? { format.warning(pushType: pushType) }

    func update(
        _ update: AlertUpdate, of alert: ChatAlert, endpoint: String?
    ) throws(ChatError) -> PushUpdate? {
        try format.update(update, of: alert, endpoint: endpoint)
    }

    func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification {
        try format.compose(content, for: app)
    }

    func compose(
        _ content: ActivityContent, tag: ActivityTag, timestamp: Int64
    ) throws(ChatError) -> ComposedNotification {
        try format.compose(content, tag: tag, timestamp: timestamp)
    }

    func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push {
        pushes.note(row)
        let row = QueuedPush(
            id: row.id, lane: row.lane, history: row.history, address: row.address.map(address), payload: row.payload,
            isOurs: row.isOurs, expiration: row.expiration, priority: row.priority, type: row.type,
            collapseID: row.collapseID, notBefore: row.notBefore, apnsID: row.apnsID, notification: row.notification,
            message: row.message, dueSince: row.dueSince, obstacle: row.obstacle, isOfReader: row.isOfReader,
            unread: row.unread)
        let push = try format.push(row, identifier: identifier)
        return Push(
            id: push.id, identifier: push.identifier, address: push.address,
            payload: push.payload.dropLast() + Array(#","simulation":\#(push.id)}"#.utf8),
            expiration: push.expiration, priority: push.priority, apnsID: push.apnsID, type: push.type,
            collapseID: push.collapseID)
    }
}

/// A gateway whose leases and reports are noted.
struct NotedGateway: PushGateway {
    let format: any PushFormat
    private let gateway: any PushGateway
    private let pushes: WrittenPushes

    init(_ gateway: any PushGateway, _ format: any PushFormat, _ pushes: WrittenPushes) {
        (self.gateway, self.format, self.pushes) = (gateway, format, pushes)
        pushes.begin()
    }

    var openConnections: Int { gateway.openConnections }
    func run() async { await gateway.run() }
    func slot(fresh: Bool) async -> ConnectionSlot? { await gateway.slot(fresh: fresh) }

    func write(_ lease: Lease) {
        pushes.note(lease)
        gateway.write(lease)
    }

    func reports() async -> [DeliveryReport]? {
        let reports = await gateway.reports()
        for report in reports ?? [] { pushes.note(report) }
        return reports
    }

    func drain() async {
        pushes.drain()
        await gateway.drain()
    }
    func finish() async { await gateway.finish() }
}

import ChatDomain

/// The pushes of one app that are between the queue and the gateway. Decides which pushes travel together, matches each
/// outcome to its push, and computes the push's next state. A pure value: the dispatcher performs the actions.
struct InFlightPushes: Sendable {
    /// The number of fully settled blocks to remember, in case the gateway reports an error after its silence was
    /// counted as acceptance. Covers about a million pushes in a few hundred kilobytes.
    private static let maxSettledBlocks = 2000
    /// The minimum number of settled blocks to keep for each of the newest connections, and for each connection with
    /// unsettled pushes. So a busy connection cannot evict the blocks of the others.
    private static let settledBlocksPerConnection = 250
    private static let recentConnectionCount = 8
    /// The number of outcomes to record in one transaction. The transaction takes a few milliseconds at most, because a
    /// response to a client may have to wait for it.
    private static let batchSize = 1000

    /// Pushes with consecutive identifiers and consecutive push ids.
    private struct Block: Sendable {
        let firstIdentifier: UInt32
        let firstPushID: Int64
        var count: Int
        let lane: PushLane
        let notification: NotificationID?
        /// 0 for a push with a single attempt. Otherwise `nil`, because other expirations do not matter here.
        let expiration: Int64?
        let leasedAt: Timestamp
        /// The due time of the first push. The others' times are close to it, see ``joins(dueSince:)``.
        let dueSince: Timestamp?

        /// Whether a push with this due time may join the block. Its due time may differ from the first push's by
        /// 100 ms, or by an eighth of the time for which the first push has waited, whichever is more.
        func joins(dueSince time: Timestamp?) -> Bool {
            guard let dueSince, let time else { return dueSince == time }
            return abs(time.milliseconds - dueSince.milliseconds)
                <= max(100, abs(leasedAt.milliseconds - dueSince.milliseconds) / 8)
        }

        var identifiers: ClosedRange<Int64> { Int64(firstIdentifier)...Int64(firstIdentifier) + Int64(count) - 1 }

        func pushID(of identifier: Int64) -> Int64 { firstPushID + identifier - Int64(firstIdentifier) }
    }

    private struct Connection: Sendable {
        var blocks: [Block] = []
        /// Identifiers that have no outcome yet.
        var unsettled = IDRanges()
        let answersEach: Bool
        /// Whether only silence proves that the gateway accepted the last lease.
        var isProvenBySilence = false
        /// The number of pushes in the probe, and whether nothing else was due. `nil` if the last lease was not a
        /// probe.
        var probe: (count: Int, isAll: Bool)?
        /// Whether the last lease consists of suspect pushes. Its losses shrink the next groups, not the probe window.
        var isSuspect = false
        /// Whether at least one push of the last lease was lost.
        var hasLost = false

        /// Drops blocks whose pushes all have an outcome. If silence counts as acceptance, drops only the oldest of
        /// these blocks.
        /// - Parameters:
        ///   - capacity: The number of settled blocks that this connection and older ones may keep. The call subtracts
        ///     the number that this connection keeps.
        ///   - isRecent: Whether the connection is one of the newest.
        /// - Returns: Whether no block is left.
        mutating func forget(beyond capacity: inout Int, isRecent: Bool) -> Bool {
            let firstUnsettled = unsettled.first ?? .max
            let settled = (0..<blocks.count).partitioningIndex { blocks[$0].identifiers.upperBound >= firstUnsettled }
            let own = isRecent || unsettled.first != nil ? InFlightPushes.settledBlocksPerConnection : 0
            let kept = answersEach ? 0 : min(settled, max(capacity, own))
            capacity = max(0, capacity - kept)
            if settled > kept { blocks.removeFirst(settled - kept) }
            return blocks.isEmpty
        }
    }

    let lifeCycle: PushLifeCycle
    private var connections: [ConnectionID: Connection] = [:]
    /// Connections in the order of their first lease.
    private var order: [ConnectionID] = []
    /// The non-empty histories of leased pushes, by push id.
    private var histories: [Int64: PushHistory] = [:]
    private var window: ProbeWindow
    private var turn = LaneTurn()
    private(set) var lastAccepted: Timestamp?
    /// Whether the next pushes are a probe that needs a fresh connection.
    private(set) var needsFreshConnection = false

    /// Starts without leased pushes.
    /// - Parameter startsInDoubt: Whether an earlier process may have sent some of the queued pushes.
    init(_ lifeCycle: PushLifeCycle, startsInDoubt: Bool = false) {
        self.lifeCycle = lifeCycle
        window = ProbeWindow(limit: startsInDoubt ? ProbeWindow.afterStart : nil)
    }

    /// The number of blocks that reports may still refer to.
    var rememberedBlocks: Int { connections.values.reduce(0) { $0 + $1.blocks.count } }

    // MARK: - From the queue to the gateway

    /// The lanes to lease from next, in order.
    var lanes: [PushLane] { turn.next.map { [$0] } ?? PushLane.allCases }
    /// Whether the next lease serves a single lane in turn. An empty result then does not mean that no push is due.
    var servesSingleLane: Bool { turn.next != nil }

    mutating func endTurn() { turn = LaneTurn(last: turn.next ?? turn.last) }

    /// The number of pushes to lease for `slot`.
    func limit(for slot: ConnectionSlot) -> Int {
        slot.answersEach ? slot.capacity : min(slot.capacity, window.limit ?? .max)
    }

    /// The result of admitting leased pushes.
    struct Admission: Sendable {
        /// The pushes to write. May be empty.
        var lease: Lease
        /// Settlements of pushes that must not be sent.
        var settlements: [Settlement] = []
        /// The queue's rows of the lease's pushes, in the same order.
        var rows: [QueuedPush] = []
        /// Pushes to release to the queue, by lane, because they cannot travel with this lease.
        var released: [PushLane: IDRanges] = [:]

        fileprivate mutating func refuse(_ row: QueuedPush, _ transition: Transition) {
            settlements.append(Settlement(row.id...row.id, transition, notification: row.notification))
        }
    }

    /// Admits leased pushes in order until the lease is full or a push cannot travel with the others. Remembers the
    /// admitted pushes.
    mutating func admit(
        _ leased: LeasedPushes, to slot: ConnectionSlot, format: any PushFormat, at now: Timestamp
    ) -> Admission {
        var admission = Admission(lease: Lease(slot: slot, pushes: []))
        var (pushes, rows) = ([Push](), [QueuedPush]())
        var capacity = limit(for: slot)
        let isWindowed = !slot.answersEach && window.limit != nil
        var isSuspect: Bool?
        var lastLane: PushLane?
        var remaining = leased.pushes[...]
        needsFreshConnection = false
        while let row = remaining.first, pushes.count < capacity {
            if let obstacle = lifeCycle.obstacle(to: row, at: now) {
                admission.refuse(row, obstacle)
            } else {
                let group = lifeCycle.group(row.history)
                let isProbe = group.isProbe || isWindowed
                if isSuspect == nil, isProbe, !slot.isFresh {
                    needsFreshConnection = true
                    break
                }
                // Suspect pushes never travel with others.
                if let isSuspect, isSuspect != group.isProbe { break }
                capacity = min(capacity, group.size)
                guard pushes.count < capacity else { break }
                do throws(PushRefusal) {
                    let identifier = slot.firstIdentifier + UInt32(pushes.count)
                    pushes.append(try format.push(row, identifier: identifier))
                    rows.append(row)
                    isSuspect = group.isProbe
                } catch {
                    admission.refuse(row, Transition(.failed(reason: error.reason, hint: error.hint)))
                }
            }
            lastLane = row.lane
            remaining = remaining.dropFirst()
        }
        for row in remaining { admission.released[row.lane, default: IDRanges()].insert(row.id...row.id) }
        let isProbe = (isSuspect == true || isWindowed) && !pushes.isEmpty
        if !pushes.isEmpty {
            let isAll = remaining.isEmpty && leased.lanes.isEmpty
            remember(rows, slot, probe: isProbe ? (pushes.count, isAll) : nil, isSuspect: isSuspect == true, at: now)
        }
        if !needsFreshConnection {
            turn.leased(
                through: lastLane, remaining: leased.lanes.union(remaining.map(\.lane)),
                isSinglePush: slot.capacity == 1)
        }
        admission.lease = Lease(slot: slot, pushes: pushes, isProbe: isProbe)
        admission.rows = rows
        return admission
    }

    private mutating func remember(
        _ rows: [QueuedPush], _ slot: ConnectionSlot, probe: (count: Int, isAll: Bool)?, isSuspect: Bool,
        at now: Timestamp
    ) {
        if connections[slot.connection] == nil { order.append(slot.connection) }
        var connection = connections[slot.connection] ?? Connection(answersEach: slot.answersEach)
        connections[slot.connection] = nil
        connection.probe = probe
        connection.hasLost = false
        connection.isSuspect = isSuspect
        connection.isProvenBySilence = slot.isProvenBySilence
        for (index, row) in rows.enumerated() {
            let identifier = slot.firstIdentifier + UInt32(index)
            if row.history != PushHistory() { histories[row.id] = row.history }
            let expiration = row.expiration == 0 ? row.expiration : nil
            if index > 0, let last = connection.blocks.last, last.firstPushID + Int64(last.count) == row.id,
                last.lane == row.lane, last.notification == row.notification, last.expiration == expiration,
                last.joins(dueSince: row.dueSince)
            {
                connection.blocks[connection.blocks.count - 1].count += 1
            } else {
                connection.blocks.append(
                    Block(
                        firstIdentifier: identifier, firstPushID: row.id, count: 1, lane: row.lane,
                        notification: row.notification, expiration: expiration, leasedAt: now,
                        dueSince: row.dueSince))
            }
        }
        connection.unsettled.insert(Int64(slot.firstIdentifier)...Int64(slot.firstIdentifier) + Int64(rows.count) - 1)
        connections[slot.connection] = connection
    }

    // MARK: - From the gateway to the queue

    /// The consequences of reports.
    struct Conclusion: Sendable {
        /// The settlements to record, in batches of about ``InFlightPushes/batchSize`` pushes. Each comes with the
        /// report that caused it, for the log.
        private(set) var batches: [[(settlement: Settlement, report: DeliveryReport)]] = []
        private var lastBatch = 0
        /// Outcomes, for the metrics.
        var answers: [DispatchProgress.Response] = []
        /// Pushes to release to the queue, by lane, because nothing has happened to them.
        var released: [PushLane: IDRanges] = [:]

        mutating func add(_ settlement: Settlement, _ report: DeliveryReport) {
            if batches.isEmpty || lastBatch >= InFlightPushes.batchSize {
                batches.append([])
                lastBatch = 0
            }
            batches[batches.count - 1].append((settlement, report))
            lastBatch += settlement.count
        }
    }

    mutating func conclude(_ reports: [DeliveryReport], at now: Timestamp) -> Conclusion {
        var conclusion = Conclusion()
        // Update `lastAccepted` first: the life cycle judges the other reports by it.
        if reports.contains(where: { $0.outcome == .accepted && concernsUnsettledPush($0) }) { lastAccepted = now }
        for report in reports {
            guard var connection = connections[report.connection] else { continue }
            connections[report.connection] = nil
            let identifiers = report.identifierRange
            let concerned = report.overrulesSilence ? [identifiers] : connection.unsettled.intersection(identifiers)
            var lost = 0
            for range in concerned {
                conclude(report, range, connection.blocks, connection.answersEach, &conclusion, at: now)
                if case .unanswered = report.outcome { lost += range.count }
                connection.unsettled.subtract(range)
            }
            if !connection.answersEach { adapt(&connection, lost: lost) }
            connections[report.connection] = connection
        }
        forget()
        return conclusion
    }

    private func concernsUnsettledPush(_ report: DeliveryReport) -> Bool {
        connections[report.connection]?.unsettled.intersection(report.identifierRange).isEmpty == false
    }

    /// Adjusts the number of pushes that may be written before the gateway must confirm them.
    private mutating func adapt(_ connection: inout Connection, lost: Int) {
        if lost > 0 {
            if !connection.isSuspect { window.lost(lost) }
            connection.hasLost = true
        } else if connection.unsettled.isEmpty, let probe = connection.probe, !connection.hasLost {
            window.confirmed(probe.count, isAll: probe.isAll, bySilence: connection.isProvenBySilence)
            connection.probe = nil
        }
    }

    private mutating func conclude(
        _ report: DeliveryReport, _ identifiers: ClosedRange<Int64>, _ blocks: [Block], _ answersEach: Bool,
        _ conclusion: inout Conclusion, at now: Timestamp
    ) {
        for block in blocks where block.identifiers.overlaps(identifiers) {
            let part = block.identifiers.clamped(to: identifiers)
            let pushIDs = block.pushID(of: part.lowerBound)...block.pushID(of: part.upperBound)
            conclusion.answers.append(
                DispatchProgress.Response(
                    outcome: report.outcome, count: part.count,
                    writtenAt: answersEach && report.outcome.isResponse ? block.leasedAt : nil,
                    dueSince: block.dueSince))
            for run in splitByHistory(pushIDs) {
                let history = histories.isEmpty ? nil : histories.removeValue(forKey: run.lowerBound)
                let transition = lifeCycle.transition(
                    report.outcome, history ?? PushHistory(), lane: block.lane, expiration: block.expiration,
                    leasedAt: block.leasedAt, lastAccepted: lastAccepted, at: now)
                if transition.changesNothing, !report.overrulesSilence {
                    if case .due(let lane, _) = transition.result {
                        conclusion.released[lane, default: IDRanges()].insert(run)
                    }
                } else {
                    let settlement = Settlement(
                        run, transition, notification: block.notification, overrulesSilence: report.overrulesSilence)
                    conclusion.add(settlement, report)
                }
            }
        }
    }

    /// Splits a range of push ids: each push with a history gets a range for itself.
    private func splitByHistory(_ pushIDs: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        guard !histories.isEmpty else { return [pushIDs] }
        var runs: [ClosedRange<Int64>] = []
        for pushID in pushIDs {
            if histories[pushID] == nil, let last = runs.last, histories[last.lowerBound] == nil {
                runs[runs.count - 1] = last.lowerBound...pushID
            } else {
                runs.append(pushID...pushID)
            }
        }
        return runs
    }

    /// Forgets settled blocks beyond the limits, starting with the oldest connections.
    private mutating func forget() {
        var capacity = Self.maxSettledBlocks
        for (age, connectionID) in order.reversed().enumerated()
        where connections[connectionID]?.forget(beyond: &capacity, isRecent: age < Self.recentConnectionCount) == true {
            connections[connectionID] = nil
        }
        if order.count > connections.count { order.removeAll { connections[$0] == nil } }
    }
}

extension Outcome {
    /// Whether the gateway itself responded.
    fileprivate var isResponse: Bool {
        switch self {
        case .accepted, .rejected, .badAddress, .unregistered, .retry, .notAuthorized: true
        case .postponed, .sentBack, .notProcessed, .unanswered: false
        }
    }
}

extension DeliveryReport {
    fileprivate var identifierRange: ClosedRange<Int64> {
        Int64(identifiers.lowerBound)...Int64(identifiers.upperBound)
    }
}

/// Decides which lanes the next lease serves. Usually it serves all lanes in order, so that bulk pushes and retries do
/// not delay the others. If a lease does not reach a later lane, the next lease may serve only that lane. So every lane
/// makes progress, even if the lanes before it are never empty.
struct LaneTurn: Sendable {
    /// The only lane that the next lease serves. `nil` if it serves all lanes in order.
    private(set) var next: PushLane?
    /// The lane that had the latest turn.
    private(set) var last: PushLane?

    init(last: PushLane? = nil) {
        self.last = last
    }

    /// Records how far a lease got in the order of the lanes, and chooses the next turn.
    /// - Parameters:
    ///   - lane: The last lane that the lease served. `nil` if it served none.
    ///   - lanes: The lanes in which more pushes may be due.
    ///   - isSinglePush: Whether the slot had room for a single push. Such a connection has just opened, and may end
    ///     with this push. So no lane gets a turn then.
    mutating func leased(through lane: PushLane?, remaining lanes: Set<PushLane>, isSinglePush: Bool) {
        let wasTurn = next != nil
        last = next ?? last
        next = nil
        guard !wasTurn, !isSinglePush else { return }
        let waiting: [PushLane] = lane == .normal ? [.bulk, .retry] : [.retry]
        next = (last == waiting.first ? waiting.reversed() : waiting).first { lanes.contains($0) && $0 != lane }
    }
}

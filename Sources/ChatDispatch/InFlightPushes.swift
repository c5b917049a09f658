import ChatDomain

/// What the dispatcher knows of the pushes of one app between the queue and the gateway, and what follows from it: which
/// may go together, which push an outcome is about, what becomes of it. A value; the dispatcher acts.
struct InFlightPushes: Sendable {
    /// Blocks that are remembered after all of their pushes have their outcome, for a gateway that answers after silence was
    /// taken for acceptance: about a million pushes, some hundred kilobytes.
    private static let mostSettledBlocks = 2000
    /// Of these, so many are kept for each of the newest connections, and for each on which reports are due, however many
    /// another one has.
    private static let settledBlocksEach = 250
    private static let newestConnections = 8
    /// Pushes whose outcomes are recorded in one transaction: some milliseconds, for which an answer may have to wait.
    private static let batch = 1000

    /// Pushes with consecutive identifiers and entries.
    private struct Block: Sendable {
        let firstIdentifier: UInt32
        let firstEntry: Int64
        var count: Int
        let lane: PushLane
        let notification: NotificationID?
        /// 0 for a single attempt; other times do not matter here.
        let expiration: Int64?
        let leasedAt: Timestamp
        /// Of the first; the others' are about the same.
        let dueSince: Timestamp?

        /// Whether a push that could go since another time counts as one of these: what it has waited differs by little.
        func isAbout(_ time: Timestamp?) -> Bool {
            guard let dueSince, let time else { return dueSince == time }
            return abs(time.milliseconds - dueSince.milliseconds)
                <= max(100, abs(leasedAt.milliseconds - dueSince.milliseconds) / 8)
        }

        var identifiers: ClosedRange<Int64> { Int64(firstIdentifier)...Int64(firstIdentifier) + Int64(count) - 1 }

        func entry(of identifier: Int64) -> Int64 { firstEntry + identifier - Int64(firstIdentifier) }
    }

    private struct Connection: Sendable {
        var blocks: [Block] = []
        /// Identifiers without an outcome.
        var open = IDRanges()
        let answersEach: Bool
        /// Only silence proves the group.
        var isProvenBySilence = false
        /// Pushes of a group that was asked about, and whether nothing else was due; nil where there is none.
        var probe: (count: Int, isAll: Bool)?
        /// The group is suspected: its losses make groups smaller, not the window.
        var isSuspect = false
        /// The group was lost, or a part of it.
        var hasLost = false

        /// Drops the blocks with all reports; where silence is taken for acceptance, only the oldest of them.
        /// - Parameters:
        ///   - capacity: how many of these may stay, of all connections.
        ///   - isNew: it is one of the newest.
        /// - Returns: whether nothing is left.
        mutating func forget(beyond capacity: inout Int, isNew: Bool) -> Bool {
            let firstOpen = open.first ?? .max
            let settled = (0..<blocks.count).partitioningIndex { blocks[$0].identifiers.upperBound >= firstOpen }
            let own = isNew || open.first != nil ? InFlightPushes.settledBlocksEach : 0
            let kept = answersEach ? 0 : min(settled, max(capacity, own))
            capacity = max(0, capacity - kept)
            if settled > kept { blocks.removeFirst(settled - kept) }
            return blocks.isEmpty
        }
    }

    let lifeCycle: PushLifeCycle
    private var connections: [ConnectionID: Connection] = [:]
    /// Connections in the order in which they were first written to.
    private var order: [ConnectionID] = []
    /// Of the leased pushes whose history is not empty.
    private var histories: [Int64: PushHistory] = [:]
    private var window: ProbeWindow
    private var turn = LaneTurn()
    private(set) var lastAccepted: Timestamp?
    /// The next pushes are to be probed alone.
    private(set) var needsFreshConnection = false

    /// - Parameter startsInDoubt: an earlier process may have sent some of what is queued.
    init(_ lifeCycle: PushLifeCycle, startsInDoubt: Bool = false) {
        self.lifeCycle = lifeCycle
        window = ProbeWindow(limit: startsInDoubt ? ProbeWindow.afterStart : nil)
    }

    /// Blocks that reports can be about.
    var rememberedBlocks: Int { connections.values.reduce(0) { $0 + $1.blocks.count } }

    // MARK: - From the queue to the gateway

    /// Which lanes the next lease is to look at, in order.
    var lanes: [PushLane] { turn.next.map { [$0] } ?? PushLane.allCases }
    /// It is one lane's turn: that nothing was found in it does not say that nothing is due.
    var isTurn: Bool { turn.next != nil }

    mutating func turnIsEmpty() { turn = LaneTurn(last: turn.next ?? turn.last) }

    /// How many pushes to ask for.
    func limit(for slot: ConnectionSlot) -> Int {
        slot.answersEach ? slot.capacity : min(slot.capacity, window.limit ?? .max)
    }

    /// What becomes of leased pushes.
    struct Admission: Sendable {
        /// To be written; may be empty.
        var lease: Lease
        /// Pushes that do not go.
        var settlements: [Settlement] = []
        /// The rows of the lease's pushes.
        var rows: [QueuedPush] = []
        /// Pushes that go back to the queue, by lane: they do not fit.
        var givenBack: [PushLane: IDRanges] = [:]

        fileprivate mutating func refuse(_ row: QueuedPush, _ transition: Transition) {
            settlements.append(Settlement(row.entry...row.entry, transition, notification: row.notification))
        }
    }

    /// Takes pushes in their order, as far as they may go together, and remembers them.
    mutating func admit(
        _ leased: LeasedPushes, to slot: ConnectionSlot, format: any PushFormat, at now: Timestamp
    ) -> Admission {
        var admission = Admission(lease: Lease(slot: slot, pushes: []))
        var (pushes, rows) = ([Push](), [QueuedPush]())
        var capacity = limit(for: slot)
        let isWindowed = !slot.answersEach && window.limit != nil
        var isSuspect: Bool?
        var lastLane: PushLane?
        var rest = leased.pushes[...]
        needsFreshConnection = false
        while let row = rest.first, pushes.count < capacity {
            if let obstacle = lifeCycle.obstacle(to: row, at: now) {
                admission.refuse(row, obstacle)
            } else {
                let group = lifeCycle.group(row.history)
                let isProbe = group.isProbe || isWindowed
                if isSuspect == nil, isProbe, !slot.isFresh {
                    needsFreshConnection = true
                    break
                }
                // What is suspected and what is not do not go together.
                if let isSuspect, isSuspect != group.isProbe { break }
                capacity = min(capacity, group.size)
                guard pushes.count < capacity else { break }
                do throws(PushRefusal) {
                    let identifier = slot.firstIdentifier + UInt32(pushes.count)
                    pushes.append(try format.push(row, identifier: identifier))
                    rows.append(row)
                    isSuspect = group.isProbe
                } catch {
                    admission.refuse(row, Transition(.failed(reason: error.reason)))
                }
            }
            lastLane = row.lane
            rest = rest.dropFirst()
        }
        for row in rest { admission.givenBack[row.lane, default: IDRanges()].insert(row.entry...row.entry) }
        let isProbe = (isSuspect == true || isWindowed) && !pushes.isEmpty
        if !pushes.isEmpty {
            let isAll = rest.isEmpty && leased.lanes.isEmpty
            remember(rows, slot, probe: isProbe ? (pushes.count, isAll) : nil, isSuspect: isSuspect == true, at: now)
        }
        if !needsFreshConnection {
            turn.took(through: lastLane, of: leased.lanes.union(rest.map(\.lane)), isSingle: slot.capacity == 1)
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
            if row.history != PushHistory() { histories[row.entry] = row.history }
            let expiration = row.expiration == 0 ? row.expiration : nil
            if index > 0, let last = connection.blocks.last, last.firstEntry + Int64(last.count) == row.entry,
                last.lane == row.lane, last.notification == row.notification, last.expiration == expiration,
                last.isAbout(row.dueSince)
            {
                connection.blocks[connection.blocks.count - 1].count += 1
            } else {
                connection.blocks.append(
                    Block(
                        firstIdentifier: identifier, firstEntry: row.entry, count: 1, lane: row.lane,
                        notification: row.notification, expiration: expiration, leasedAt: now,
                        dueSince: row.dueSince))
            }
        }
        connection.open.insert(Int64(slot.firstIdentifier)...Int64(slot.firstIdentifier) + Int64(rows.count) - 1)
        connections[slot.connection] = connection
    }

    // MARK: - From the gateway to the queue

    /// What follows from reports.
    struct Conclusion: Sendable {
        /// To be written down, in batches of about ``InFlightPushes/batch`` pushes; for each settlement the outcome that it comes
        /// from, for the log.
        private(set) var batches: [[(settlement: Settlement, report: DeliveryReport)]] = []
        private var lastBatch = 0
        /// For figures.
        var answers: [DispatchProgress.Answer] = []
        /// To which nothing has happened.
        var givenBack: [PushLane: IDRanges] = [:]

        mutating func add(_ settlement: Settlement, _ report: DeliveryReport) {
            if batches.isEmpty || lastBatch >= InFlightPushes.batch {
                batches.append([])
                lastBatch = 0
            }
            batches[batches.count - 1].append((settlement, report))
            lastBatch += settlement.count
        }
    }

    mutating func conclude(_ reports: [DeliveryReport], at now: Timestamp) -> Conclusion {
        var conclusion = Conclusion()
        // First, because what others met at the same time is judged by it.
        if reports.contains(where: { $0.outcome == .accepted && isOpen($0) }) { lastAccepted = now }
        for report in reports {
            guard var connection = connections[report.connection] else { continue }
            connections[report.connection] = nil
            let identifiers = report.identifierRange
            let concerned = report.overrulesSilence ? [identifiers] : connection.open.intersection(identifiers)
            var lost = 0
            for range in concerned {
                conclude(report, range, connection.blocks, connection.answersEach, &conclusion, at: now)
                if case .unanswered = report.outcome { lost += range.count }
                connection.open.subtract(range)
            }
            if !connection.answersEach { adapt(&connection, lost: lost) }
            connections[report.connection] = connection
        }
        forget()
        return conclusion
    }

    private func isOpen(_ report: DeliveryReport) -> Bool {
        connections[report.connection]?.open.intersection(report.identifierRange).isEmpty == false
    }

    /// How much may be written before the gateway is asked to confirm.
    private mutating func adapt(_ connection: inout Connection, lost: Int) {
        if lost > 0 {
            if !connection.isSuspect { window.lost(lost) }
            connection.hasLost = true
        } else if connection.open.isEmpty, let probe = connection.probe, !connection.hasLost {
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
            let entries = block.entry(of: part.lowerBound)...block.entry(of: part.upperBound)
            conclusion.answers.append(
                DispatchProgress.Answer(
                    outcome: report.outcome, count: part.count,
                    writtenAt: answersEach && report.outcome.isAnswer ? block.leasedAt : nil,
                    dueSince: block.dueSince))
            for run in uniform(entries) {
                let history = histories.isEmpty ? nil : histories.removeValue(forKey: run.lowerBound)
                let transition = lifeCycle.transition(
                    report.outcome, history ?? PushHistory(), lane: block.lane, expiration: block.expiration,
                    leasedAt: block.leasedAt, lastAccepted: lastAccepted, at: now)
                if transition.changesNothing, !report.overrulesSilence {
                    if case .due(let lane, _) = transition.result {
                        conclusion.givenBack[lane, default: IDRanges()].insert(run)
                    }
                } else {
                    let settlement = Settlement(
                        run, transition, notification: block.notification, overrulesSilence: report.overrulesSilence)
                    conclusion.add(settlement, report)
                }
            }
        }
    }

    /// The entries in pieces with the same history.
    private func uniform(_ entries: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        guard !histories.isEmpty else { return [entries] }
        var runs: [ClosedRange<Int64>] = []
        for entry in entries {
            if histories[entry] == nil, let last = runs.last, histories[last.lowerBound] == nil {
                runs[runs.count - 1] = last.lowerBound...entry
            } else {
                runs.append(entry...entry)
            }
        }
        return runs
    }

    /// Drops what no outcome can be about any more, of the oldest connections first.
    private mutating func forget() {
        var capacity = Self.mostSettledBlocks
        for (age, connectionID) in order.reversed().enumerated()
        where connections[connectionID]?.forget(beyond: &capacity, isNew: age < Self.newestConnections) == true {
            connections[connectionID] = nil
        }
        if order.count > connections.count { order.removeAll { connections[$0] == nil } }
    }
}

extension Outcome {
    /// The gateway itself has answered.
    fileprivate var isAnswer: Bool {
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

/// Which lane the next lease is for. The lanes go in their order, so that bulk pushes and repeats do not delay the
/// others. The later lanes have their turn after each lease that did not reach them, so that they get on behind a queue that
/// is never empty.
struct LaneTurn: Sendable {
    /// Nil: all of them, in their order.
    private(set) var next: PushLane?
    /// The lane that had a turn last.
    private(set) var last: PushLane?

    init(last: PushLane? = nil) {
        self.last = last
    }

    /// A lease came as far as a lane.
    /// - Parameters:
    ///   - lanes: in which there is more.
    ///   - isSingle: it had capacity for one push only: then a connection is at its beginning, and may end with it.
    mutating func took(through lane: PushLane?, of lanes: Set<PushLane>, isSingle: Bool) {
        let wasTurn = next != nil
        last = next ?? last
        next = nil
        guard !wasTurn, !isSingle else { return }
        let waiting: [PushLane] = lane == .normal ? [.bulk, .retry] : [.retry]
        next = (last == waiting.first ? waiting.reversed() : waiting).first { lanes.contains($0) && $0 != lane }
    }
}

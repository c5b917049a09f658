import ChatDomain
import Foundation
import Synchronization

/// The pushes of one command, in memory: what the dispatcher drains where there is no relay.
actor DirectQueue: PushQueue {
    private enum Place {
        case waiting(until: Timestamp?)
        case written(ConnectionEpoch, identifier: UInt32)
        case settled
    }

    private struct Entry {
        var result: DirectResult
        var place = Place.waiting(until: nil)
        /// How often a connection ended over it.
        var unanswered = 0

        var isWaiting: Bool {
            if case .waiting = place { true } else { false }
        }

        var isSettled: Bool {
            if case .settled = place { true } else { false }
        }
    }

    /// How often a connection may end over a push until that is laid to it.
    private static let mostUnanswered = 3

    private let content: NotificationContent
    private let clock: TimeSource
    private let retry = RetryPolicy()
    private var entries: [Entry]
    private let listeners = Mutex<[AsyncStream<Void>.Continuation]>([])

    init(_ content: NotificationContent, to tokens: [DeviceToken], clock: @escaping TimeSource = Timestamp.now) {
        self.content = content
        self.clock = clock
        entries = tokens.map { Entry(result: DirectResult(token: $0)) }
    }

    var hasWaiting: Bool { entries.contains(where: \.isWaiting) }
    var isSettled: Bool { entries.allSatisfy(\.isSettled) }
    var results: [DirectResult] { entries.map(\.result) }

    func lease(app: AppName, for slot: ConnectionSlot) -> Lease {
        let now = clock()
        let due = entries.indices.filter { index in
            guard case .waiting(let time) = entries[index].place else { return false }
            return time.map { $0 <= now } ?? true
        }
        // What may have made the gateway close goes alone, so that the others are not drawn in again.
        let suspect = due.first { entries[$0].unanswered > 0 }
        if suspect != nil, !slot.isFresh { return Lease(slot: slot, pushes: [], needsFreshConnection: true) }
        let taken = suspect.map { [$0] } ?? Array(due.prefix(slot.room))
        let pushes = zip(taken, slot.firstIdentifier...).map { index, identifier in
            entries[index].place = .written(slot.connection, identifier: identifier)
            entries[index].result.attempts += 1
            if slot.namesPushes, entries[index].result.apnsID == nil {
                entries[index].result.apnsID = UUID().uuidString.lowercased()
            }
            return push(index, identifier)
        }
        if !taken.isEmpty { tell() }
        return Lease(slot: slot, pushes: pushes, isProbe: suspect != nil)
    }

    private func push(_ index: Int, _ identifier: UInt32) -> Push {
        Push(
            entry: Int64(index), identifier: identifier, token: entries[index].result.token,
            payload: Array(content.payload.utf8), expiration: content.expiration, priority: content.priority,
            id: entries[index].result.apnsID, type: content.pushType, collapseID: content.collapseID)
    }

    @discardableResult
    func settle(_ verdicts: [Verdict]) -> [Settlement] {
        for verdict in verdicts {
            for index in entries.indices {
                guard case .written(verdict.connection, let identifier) = entries[index].place,
                    verdict.identifiers.contains(identifier)
                else { continue }
                settle(verdict.outcome, &entries[index])
            }
        }
        tell()
        return []
    }

    private func settle(_ outcome: Outcome, _ entry: inout Entry) {
        func end(_ outcome: DirectResult.Outcome, _ reason: String? = nil, hint: String? = nil) {
            entry.place = .settled
            entry.result.outcome = outcome
            entry.result.reason = reason
            entry.result.hint = hint
        }
        func wait(_ reason: String) {
            // An expiration of 0 asks for a single attempt.
            guard content.expiration != 0, let delay = retry.delay(afterAttempts: entry.result.attempts) else {
                return end(.refused, reason)
            }
            entry.place = .waiting(until: clock() + delay)
            entry.result.reason = reason
        }
        switch outcome {
        case .accepted: end(.accepted)
        case .rejected(let reason, let hint): end(.refused, reason, hint: hint)
        // Better credentials do not come while a command runs.
        case .unregistered(_, let reason), .notAuthorized(let reason): end(.refused, reason)
        case .retry(let reason), .sentBack(let reason): wait(reason)
        case .notProcessed: entry.place = .waiting(until: nil)
        case .unanswered(let reason):
            entry.unanswered += 1
            // Until one of its repeats is answered.
            entry.result.outcome = .unknown
            guard entry.unanswered < Self.mostUnanswered, content.expiration != 0 else { return end(.unknown, reason) }
            wait(reason)
        }
    }

    func recover() -> Recovery { Recovery(count: 0, lastEpoch: ConnectionEpoch(0)) }

    func nextDue(app: AppName) -> Timestamp? {
        entries.compactMap { entry in
            if case .waiting(let time) = entry.place { time } else { nil }
        }.min()
    }

    /// Rings at once, and with every change.
    nonisolated func announceArrivals(to bell: AsyncStream<Void>.Continuation) {
        bell.yield()
        listeners.withLock { $0.append(bell) }
    }

    private func tell() {
        for listener in listeners.withLock({ $0 }) { listener.yield() }
    }
}

/// What became of a push that a command sent itself.
struct DirectResult: Sendable, Hashable {
    enum Outcome: String, Sendable {
        case accepted, refused
        /// The connection ended, and nobody knows; the device may have it.
        case unknown
        /// The time was over before it could be sent, or sent again.
        case unsent
    }

    let token: DeviceToken
    var outcome = Outcome.unsent
    /// As the gateway spells it.
    var reason: String?
    var hint: String?
    var apnsID: String?
    var attempts = 0

    init(token: DeviceToken) {
        self.token = token
    }

    var json: JSONValue {
        .object([
            "token": .string(token.description), "outcome": .string(outcome.rawValue), "reason": .optional(reason),
            "hint": .optional(hint), "attempts": .number(attempts), "apns_id": .optional(apnsID),
        ])
    }

    var line: String {
        Output.oneLine(
            ["\(token)", outcome.rawValue, reason, hint.map { "(\($0))" }].compactMap { $0 }.joined(separator: " "))
    }
}

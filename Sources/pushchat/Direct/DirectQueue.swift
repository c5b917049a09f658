import ChatDomain
import Foundation
import Synchronization

/// An in-memory queue of the pushes of one command, which a dispatcher sends without a relay. The relay's rules decide
/// about retries.
final class DirectQueue: PushQueue {
    /// The relay's rules with two changes, because a command has to end: it does not wait for other credentials, and
    /// gives up a push after three attempts without a response.
    static let lifeCycle = PushLifeCycle(.init(unansweredLimit: 3, credentialsMayChange: false))

    private struct Entry {
        var result: DirectResult
        let id = UUID().uuidString.lowercased()
        var history = PushHistory()
        var isLeased = false
        var isSettled = false
        /// The time of the next attempt. `nil` if the push is due now.
        var due: Timestamp?

        var isWaiting: Bool { !isLeased && !isSettled }
        var lane: PushLane { PushLane(history, isBulk: false) }
    }

    private let content: NotificationContent
    private let composed: ComposedNotification
    private let now: TimeSource
    private let entries: Mutex<[Entry]>
    private let signals = Signals()

    init(
        _ content: NotificationContent, _ composed: ComposedNotification, to tokens: [DeviceToken],
        now: @escaping TimeSource = Timestamp.now
    ) {
        self.content = content
        self.composed = composed
        self.now = now
        entries = Mutex(tokens.map { Entry(result: DirectResult(token: $0)) })
    }

    var hasWaiting: Bool { entries.withLock { $0.contains(where: \.isWaiting) } }
    var isSettled: Bool { entries.withLock { $0.allSatisfy(\.isSettled) } }
    var results: [DirectResult] { entries.withLock { $0.map(\.result) } }

    func lease(app: AppName, lanes: [PushLane], limit: Int) -> LeasedPushes {
        let now = self.now()
        let pushes = entries.withLock { entries in
            let due = lanes.flatMap { lane in
                entries.indices.filter { index in
                    let entry = entries[index]
                    return entry.isWaiting && entry.lane == lane && entry.due.map { $0 <= now } ?? true
                }
            }
            return due.prefix(limit).map { index in
                entries[index].isLeased = true
                let entry = entries[index]
                return QueuedPush(
                    id: Int64(index), lane: entry.lane, history: entry.history, address: .token(entry.result.token),
                    payload: Array(composed.payload.utf8), isOurs: true, expiration: content.expiration,
                    priority: composed.priority.map(Int64.init), type: composed.pushType,
                    collapseID: content.collapseID, apnsID: entry.id)
            }
        }
        if !pushes.isEmpty { signals.send() }
        return LeasedPushes(pushes)
    }

    func release(_ ranges: [ClosedRange<Int64>], lane: PushLane, app: AppName) {
        entries.withLock { entries in
            for index in ranges.joined() { entries[Int(index)].isLeased = false }
        }
        signals.send()
    }

    func settle(_ settlements: [Settlement], app: AppName) -> [SettledPushes] {
        entries.withLock { entries in
            for settlement in settlements {
                for index in settlement.pushIDs { Self.settle(&entries[Int(index)], settlement.transition) }
            }
        }
        signals.send()
        return settlements.map { SettledPushes(count: $0.count) }
    }

    private static func settle(_ entry: inout Entry, _ transition: Transition) {
        entry.isLeased = false
        entry.history.attempts += transition.added.attempts
        entry.history.unanswered += transition.added.unanswered
        entry.history.refused += transition.added.refused
        entry.result.attempts = entry.history.attempts
        entry.result.apnsID = entry.id
        entry.result.reason = transition.reason
        switch transition.result {
        case .sent:
            entry.result.outcome = .accepted
            entry.isSettled = true
        case .failed(_, let hint):
            entry.result.outcome = transition.added.unanswered > 0 ? .unknown : .refused
            entry.result.hint = hint
            entry.isSettled = true
        case .expired, .cancelled:
            entry.isSettled = true
        case .waiting(let time, _):
            entry.due = time
        case .due:
            entry.due = nil
        }
        // The outcome stays unknown until the gateway responds to a retry.
        if !entry.isSettled, transition.added.unanswered > 0 { entry.result.outcome = .unknown }
    }

    func nextDue(app: AppName) -> Timestamp? {
        entries.withLock { $0.filter(\.isWaiting).compactMap(\.due).min() }
    }

    /// Signals once at the start, and after every change.
    func announceArrivals(of app: AppName, to signal: AsyncStream<Void>.Continuation) {
        signal.yield()
        signals.add(signal, of: app)
    }
}

/// The result of a push that a command sent itself.
struct DirectResult: Sendable, Hashable {
    enum Outcome: String, Sendable {
        case accepted, refused
        /// The connection ended without a response. The device may have received the push.
        case unknown
        /// The time limit ended before the push could be sent, or retried.
        case unsent
    }

    let token: DeviceToken
    var outcome = Outcome.unsent
    /// The gateway's name for the reason.
    var reason: String?
    var hint: String?
    var apnsID: String?
    var attempts = 0

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

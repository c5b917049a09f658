import ChatDomain
import Foundation
import Synchronization

/// An in-memory queue of the pushes of one command, which a dispatcher sends without a relay. The relay's rules decide
/// about retries.
final class DirectQueue: PushQueue {
    /// The relay's rules with two changes, because a command has to end: it does not wait for other credentials, and
    /// gives up a push after three attempts without a response.
    static let lifeCycle = PushLifeCycle(.init(unansweredLimit: 3, credentialsMayChange: false))

    private struct DirectPush {
        var result: DirectResult
        let apnsID = UUID().uuidString.lowercased()
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
    private let pushes: Mutex<[DirectPush]>
    private let signals = Signals()

    init(
        _ content: NotificationContent, _ composed: ComposedNotification, to tokens: [DeviceToken],
        now: @escaping TimeSource = Timestamp.now
    ) {
        self.content = content
        self.composed = composed
        self.now = now
        pushes = Mutex(tokens.map { DirectPush(result: DirectResult(token: $0)) })
    }

    var hasWaiting: Bool { pushes.withLock { $0.contains(where: \.isWaiting) } }
    var isSettled: Bool { pushes.withLock { $0.allSatisfy(\.isSettled) } }
    var results: [DirectResult] { pushes.withLock { $0.map(\.result) } }

    func lease(app: AppName, lanes: [PushLane], limit: Int) -> LeasedPushes {
        let now = self.now()
        let leased = pushes.withLock { pushes in
            let due = lanes.flatMap { lane in
                pushes.indices.filter { index in
                    let push = pushes[index]
                    return push.isWaiting && push.lane == lane && push.due.map { $0 <= now } ?? true
                }
            }
            return due.prefix(limit).map { index in
                pushes[index].isLeased = true
                let push = pushes[index]
                return QueuedPush(
                    id: Int64(index), lane: push.lane, history: push.history, address: .token(push.result.token),
                    payload: Array(composed.payload.utf8), isOurs: true, expiration: content.expiration,
                    priority: composed.priority.map(Int64.init), type: composed.pushType,
                    collapseID: content.collapseID, apnsID: push.apnsID)
            }
        }
        if !leased.isEmpty { signals.send() }
        return LeasedPushes(leased)
    }

    func release(_ ranges: [ClosedRange<Int64>], lane: PushLane, app: AppName) {
        pushes.withLock { pushes in
            for index in ranges.joined() { pushes[Int(index)].isLeased = false }
        }
        signals.send()
    }

    func settle(_ settlements: [Settlement], app: AppName) -> [SettledPushes] {
        pushes.withLock { pushes in
            for settlement in settlements {
                for index in settlement.pushIDs { Self.settle(&pushes[Int(index)], settlement.transition) }
            }
        }
        signals.send()
        return settlements.map { SettledPushes(count: $0.count) }
    }

    private static func settle(_ push: inout DirectPush, _ transition: Transition) {
        push.isLeased = false
        push.history.attempts += transition.added.attempts
        push.history.unanswered += transition.added.unanswered
        push.history.refused += transition.added.refused
        push.result.attempts = push.history.attempts
        push.result.apnsID = push.apnsID
        push.result.reason = transition.reason
        switch transition.result {
        case .sent:
            push.result.outcome = .accepted
            push.isSettled = true
        case .failed(_, let hint):
            push.result.outcome = transition.added.unanswered > 0 ? .unknown : .refused
            push.result.hint = hint
            push.isSettled = true
        case .expired, .cancelled:
            push.isSettled = true
        case .waiting(let time, _, _):
            push.due = time
        case .due:
            push.due = nil
        }
        // The outcome stays unknown until the gateway responds to a retry.
        if !push.isSettled, transition.added.unanswered > 0 { push.result.outcome = .unknown }
    }

    func nextDue(app: AppName) -> Timestamp? {
        pushes.withLock { $0.filter(\.isWaiting).compactMap(\.due).min() }
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
        ["\(token)", outcome.rawValue, reason, hint.map { "(\($0))" }].compactMap { $0 }.joined(separator: " ").oneLine
    }
}

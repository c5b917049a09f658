import Foundation
import PushWire

/// The push service's response to a message that it accepts: 201.
struct BrowserReceipt: Sendable, Hashable {
    /// The number of seconds for which the service stores a message for a real browser. A simulated browser needs no
    /// storage.
    let ttl: Int
    /// The connection over which a real browser gets the message at once.
    var wakes: Int?
}

typealias BrowserDecision = ServiceDecision<BrowserReceipt, WebPushRefusal>

extension SandboxState {
    /// Decides on a message for a browser, and records it.
    /// - Parameter applies: Whether faults apply. `false` if a fault has postponed this message before.
    mutating func decide(_ push: BrowserPush, at now: Date, faults applies: Bool = true) -> BrowserDecision {
        if applies, let fault = faults.trigger(BrowserFault.self, token: push.token, at: now) {
            switch fault {
            case .status(let status, let retryAfter, let delay):
                let refusal = WebPushRefusal(fault: status, retryAfter: retryAfter)
                record(push, .denied(refusal), at: now)
                return .refuse(refusal, delay: delay)
            case .limitRate(_, let status, let retryAfter):
                let refusal = WebPushRefusal(fault: status, retryAfter: retryAfter)
                record(push, .denied(refusal), at: now)
                return .refuse(refusal)
            case .delay(let milliseconds):
                return .postpone(milliseconds: milliseconds)
            case .drop:
                record(push, .dropped, at: now)
                return .ignore
            case .close:
                record(push, .closed, at: now)
                return .end(.close)
            }
        }
        do {
            let ttl = try push.check(browsers[push.secret], at: now)
            record(push, .accepted, at: now)
            return .accept(BrowserReceipt(ttl: ttl, wakes: keep(push, ttl: ttl, at: now)))
        } catch {
            record(push, .denied(error), at: now)
            return .refuse(error)
        }
    }

    private mutating func record(_ push: BrowserPush, _ answer: InboxEntry.Response, at now: Date) {
        record(
            answer, BrowserDetails(headers: push.shownHeaders), token: push.token,
            payload: (try? push.payload?.get()) ?? [],
            at: now)
    }
}

/// The result of one attempt to deliver an event.
package enum WebhookOutcome: Sendable, Hashable {
    /// - Parameter retryAfter: The time that the receiver asks for.
    case answered(status: Int, retryAfter: Timestamp? = nil)
    /// The receiver did not respond in time.
    case unanswered(String)
}

/// The changes that follow from an outcome. The store applies them.
package struct WebhookSettlement: Sendable, Hashable {
    package enum Event: Sendable, Hashable {
        case delivered
        case waiting(until: Timestamp)
        case failed
    }

    /// A change of the webhook's state.
    package enum Change: Sendable, Hashable {
        case paused(String)
        case ended(String)
    }

    package let event: Event
    /// The number of failures since the last success.
    package let failures: Int
    /// The time before which the webhook sends nothing. `nil` for no pause.
    package let notBefore: Timestamp?
    package let change: Change?
    /// Whether a success ends an outage, so that events that wait for their next attempt are due.
    package let isRecovery: Bool

    /// For an event that the webhook does not want.
    package static func skipped(failures: Int) -> WebhookSettlement {
        WebhookSettlement(event: .delivered, failures: failures, notBefore: nil, change: nil, isRecovery: false)
    }
}

/// The rules for deliveries of webhooks: Standard Webhooks' schedule and meanings of statuses.
package enum WebhookLifeCycle {
    /// The pauses after the first, second, … failed attempt. After the last one, the event fails.
    package static let pauses: [Duration] = [
        .seconds(5), .seconds(300), .seconds(1800), .seconds(7200), .seconds(18_000), .seconds(36_000),
        .seconds(50_400), .seconds(72_000), .seconds(86_400),
    ]
    /// The number of failed attempts after which later events may overtake an event.
    package static let orderedAttempts = 3
    /// The maximum time for which a receiver can ask.
    package static let longestThrottle = Duration.seconds(86_400)
    /// The longest pause between two requests to a receiver that fails, whichever events they are for.
    private static let longestPause = Duration.seconds(300)
    /// The time in which a relay has to settle an attempt. A relay that has seen the same lease for this time, by its own
    /// clock, may send the event again.
    package static let lease = Duration.seconds(45)
    /// The longest time for which an event or a webhook waits. If a time is further away, the clock was set back.
    package static let longestDelay = Duration.seconds(95_040)

    /// The maximum number of waiting events of a webhook.
    package static let mostWaiting = 100_000
    /// The age at which an event without an attempt is dropped. Events with attempts have a day more, for the schedule.
    package static let longestWait = Duration.seconds(3 * 86_400)
    package static let longestRetry = Duration.seconds(4 * 86_400)

    /// - Parameters:
    ///   - attempts: The number of attempts, with this one.
    ///   - failures: The failures before this attempt.
    ///   - random: From 0 to 1.
    package static func settlement(
        of outcome: WebhookOutcome, attempts: Int, failures: Int, now: Timestamp, random: Double
    ) -> WebhookSettlement {
        if case .answered(200..<300, _) = outcome {
            return WebhookSettlement(
                event: .delivered, failures: 0, notBefore: nil, change: nil, isRecovery: failures >= orderedAttempts)
        }
        let failures = failures + 1
        if case .answered(410, _) = outcome {
            return WebhookSettlement(
                event: .failed, failures: failures, notBefore: nil, change: .ended("the receiver answered 410 Gone"),
                isRecovery: false)
        }
        var throttled: Timestamp?
        if case .answered(let status, let time?) = outcome, [429, 502, 503, 504].contains(status) {
            throttled = min(time, now + longestThrottle)
        }
        let pause = min(longestPause, .seconds(1 << min(failures - 1, 9)))
        let notBefore = max(now + pause, throttled ?? now)
        guard attempts <= pauses.count else {
            // Other events may have been delivered since the first attempt. Then only this one fails.
            let isDead = failures > pauses.count
            return WebhookSettlement(
                event: .failed, failures: failures, notBefore: notBefore,
                change: isDead ? .paused("\(failures) requests have failed in a row: \(reason(outcome))") : nil,
                isRecovery: false)
        }
        let jitter = 0.9 + 0.2 * random
        let next = now + .milliseconds(Int64(Double(pauses[max(1, attempts) - 1] / .milliseconds(1)) * jitter))
        return WebhookSettlement(
            event: .waiting(until: max(next, throttled ?? next)), failures: failures, notBefore: notBefore, change: nil,
            isRecovery: false)
    }

    private static func reason(_ outcome: WebhookOutcome) -> String {
        switch outcome {
        case .answered(let status, _): "the last response was \(status)"
        case .unanswered(let error): error
        }
    }

    /// Returns the number of the oldest waiting events to drop. Events that replace dropped ones go with
    /// those after them, into one.
    ///
    /// - Parameter events: The oldest waiting events in their order.
    /// - Parameter excess: The number of events above ``mostWaiting``.
    package static func dropped(
        _ events: [(type: String, queued: Timestamp, attempts: Int)], excess: Int, now: Timestamp
    ) -> Int {
        var dropped = 0
        for (index, event) in events.enumerated() {
            let limit = event.attempts == 0 ? longestWait : longestRetry
            if index < excess || event.queued < now - limit {
                dropped = index + 1
            } else if event.type != WebhookEventKind.gap {
                break
            }
        }
        // A single replacement is not replaced again.
        return events.prefix(dropped).allSatisfy { $0.type == WebhookEventKind.gap } && dropped < 2 ? 0 : dropped
    }
}

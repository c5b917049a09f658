import ChatDomain

/// Finds out whether refusals concern single subscriptions or the whole push service. A value.
///
/// ntfy's servers, for example, answer 507 for a topic without a subscriber. Such answers must not stop the pushes to
/// other subscriptions.
struct RefusalWatch: Sendable {
    /// The weight of refusals from which the service is the cause: five subscriptions that it accepted before, or twenty
    /// that it has never accepted.
    static let limit = 20
    private static let weight = (accepted: 4, unknown: 1)
    /// The time over which refusals because of the rate are counted. A service that limits the rate still accepts some
    /// pushes, so an acceptance proves nothing against them.
    private static let window = Duration.seconds(60)
    /// The number of subscriptions after which the older half is forgotten. It limits memory to about 400 kB per
    /// service.
    private static let generation = 2000

    private enum Verdict: Sendable {
        case accepted, refused
    }

    private var recent: [DeviceToken: Verdict] = [:]
    private var older: [DeviceToken: Verdict] = [:]
    /// The weight of refusals since the service last showed that it works.
    private var refusals = 0
    private var limits = (since: Timestamp(milliseconds: 0), weight: 0)

    /// Whether the last response to a push of this subscription was a refusal. Its next refusal proves nothing new.
    func wasRefused(_ subscription: DeviceToken) -> Bool { verdict(subscription) == .refused }

    /// Records that the service has accepted a push, or has rejected it because of the push itself.
    mutating func worked(for subscription: DeviceToken, accepted: Bool) {
        if accepted { set(.accepted, for: subscription) }
        refusals = 0
    }

    /// Records a refusal that may concern only its subscription.
    /// - Returns: Whether the service must be the cause.
    mutating func refused(_ subscription: DeviceToken) -> Bool {
        refusals += weigh(subscription)
        return reached(&refusals)
    }

    /// Records a refusal because of the rate.
    /// - Returns: Whether the service limits the relay, and not only single subscriptions.
    mutating func limited(_ subscription: DeviceToken, at now: Timestamp) -> Bool {
        if now < limits.since || now >= limits.since + Self.window { limits = (now, 0) }
        limits.weight += weigh(subscription)
        return reached(&limits.weight)
    }

    /// Records a refusal, which counts once until the subscription is accepted again.
    mutating func weigh(_ subscription: DeviceToken) -> Int {
        let verdict = verdict(subscription)
        set(.refused, for: subscription)
        switch verdict {
        case .accepted: return Self.weight.accepted
        case .refused: return 0
        case nil: return Self.weight.unknown
        }
    }

    private func reached(_ weight: inout Int) -> Bool {
        guard weight >= Self.limit else { return false }
        weight = 0
        return true
    }

    private func verdict(_ subscription: DeviceToken) -> Verdict? { recent[subscription] ?? older[subscription] }

    private mutating func set(_ verdict: Verdict, for subscription: DeviceToken) {
        recent[subscription] = verdict
        if recent.count >= Self.generation { (older, recent) = (recent, [:]) }
    }
}

/// The broadcast channel of a Live Activity. Decides the next request to the push service. A value: the sender of
/// activities performs the requests, and stores the channel before and after each.
package struct ActivityChannel: Sendable, Hashable {
    package enum State: String, Sendable, Hashable {
        /// The relay has not asked for a channel yet.
        case wanted
        /// The relay has asked for a channel, and has not recorded the response.
        case requested
        case open
        /// The activity has no channel (any more). The relay sends a push to each device.
        case refused
        /// The channel was deleted, or the activity ended before it had one.
        case deleted
    }

    /// A request to the push service.
    package enum Step: Sendable, Hashable {
        case create, broadcast, delete
    }

    /// The first version of iOS on which an activity can listen to a channel.
    package static let firstSystem = 18
    /// The number of failures after which an activity starts without a channel, with those of requests that were not sent
    /// because another activity's request has just failed. They take about 15 seconds, or 90 if the service does not
    /// answer.
    private static let mostCreations = 5
    /// The number of failures after which a broadcast or a deletion is given up. With the pauses, they take about eight
    /// hours, the longest time for which an activity is active.
    private static let mostFailures = 100
    /// The longest pause after a failure, in seconds.
    private static let longestPause: Int64 = 300

    package private(set) var state: State
    /// The id at the push service. `nil` before the channel is open.
    package private(set) var id: String?
    /// The newest revision of the activity that needs no broadcast. The first is part of the start.
    package private(set) var revision: Int64
    /// The number of requests that failed in a row.
    package private(set) var failures: Int
    /// The end of the pause after a failure.
    package private(set) var notBefore: Timestamp?

    package init(
        state: State = .wanted, id: String? = nil, revision: Int64 = 1, failures: Int = 0, notBefore: Timestamp? = nil
    ) {
        self.state = state
        self.id = id
        self.revision = revision
        self.failures = failures
        self.notBefore = notBefore
    }

    /// Whether it is known if the activity has a channel. The start waits for that.
    package var isDecided: Bool { state != .wanted && state != .requested }

    /// Returns the next request. `nil` if nothing remains to be done now.
    ///
    /// - Parameters:
    ///   - revision: The activity's newest revision.
    ///   - pause: The time until which no broadcast and no deletion of the app may be sent.
    package mutating func next(revision: Int64, isEnded: Bool, pause: Timestamp?, at now: Timestamp) -> Step? {
        let step: Step?
        switch state {
        case .wanted, .requested: step = isEnded ? nil : .create
        case .open: step = self.revision < revision ? .broadcast : isEnded ? .delete : nil
        case .refused, .deleted: step = nil
        }
        guard let step else {
            if !isDecided { state = .deleted }
            notBefore = nil
            return nil
        }
        notBefore = [notBefore, step == .create ? nil : pause].compactMap { $0 }.filter { $0 > now }.max()
        guard notBefore == nil else { return nil }
        if step == .create { state = .requested }
        return step
    }

    /// Records the response to a request.
    ///
    /// - Parameters:
    ///   - revision: The revision that was broadcast.
    ///   - notBefore: The earliest time of a retry.
    package mutating func answered(
        _ answer: BroadcastAnswer, to step: Step, revision: Int64, at now: Timestamp,
        notBefore earliest: Timestamp? = nil
    ) {
        if case .unavailable(_, let wanted) = answer {
            failures += 1
            if failures < (step == .create ? Self.mostCreations : Self.mostFailures) {
                let pause = now + .seconds(min(Self.longestPause, 1 << min(failures - 1, 10)))
                notBefore = max(pause, earliest ?? pause, min(wanted ?? pause, now + .seconds(Self.longestPause)))
                return
            }
        }
        (failures, notBefore) = (0, nil)
        switch (step, answer) {
        case (.create, .accepted(let channel?)): (state, id) = (.open, channel)
        case (.create, _): state = .refused
        case (.broadcast, .gone), (.broadcast, .missingCapability): state = .refused
        case (.broadcast, _): self.revision = revision
        case (.delete, _): state = .deleted
        }
    }
}

/// The push service's answer to a broadcast, or to a request about a channel.
package enum BroadcastAnswer: Sendable, Hashable {
    /// `channel` is the id of a new channel.
    case accepted(channel: String?)
    /// The app may not broadcast at all.
    case missingCapability(String)
    /// The channel does not exist.
    case gone(String)
    /// Another attempt would also fail.
    case refused(String)
    /// The service accepts nothing at the moment, or cannot be reached. `notBefore` is the time of a retry that it named.
    case unavailable(String, notBefore: Timestamp? = nil)
}

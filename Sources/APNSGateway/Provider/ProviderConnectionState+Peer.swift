import APNSWire
import ChatDomain
import NIOCore

/// What the peer does, and what it means for the pushes.
extension ProviderConnectionState {
    /// - Parameter maxStreams: nil where the frame does not name it, and what was stays.
    mutating func received(maxStreams: Int?, now: NIODeadline) {
        peerLimit = maxStreams ?? peerLimit ?? ProviderLimits.unstatedStreams
        clock.closedSince = peerLimit == 0 ? clock.closedSince ?? now : nil
    }

    /// - Parameter status: nil in trailers.
    mutating func received(status: Int?, endsStream: Bool, on id: Int, now: NIODeadline) {
        // 1xx is a word in between.
        if let status, status >= 200 { streams[id]?.status = status }
        if endsStream { answered(id, now: now) }
    }

    /// A piece of an answer's body; what is beyond the limit is not read, and settles the stream.
    mutating func received(body: ByteBufferView, endsStream: Bool, on id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isSettled else { return }
        if stream.status != 200 {
            let room = ProviderRefusal.bodyLimit - stream.body.count
            streams[id]?.body += body.prefix(room)
            if body.count > room { return answered(id, now: now) }
        }
        if endsStream { answered(id, now: now) }
    }

    /// The peer has ended a stream early.
    mutating func received(reset isRefused: Bool, on id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isSettled else { return }
        if stream.status == 200 {
            answered(id, now: now)
        } else if isRefused, stream.status == 0 {
            settle(id, .sentBack(reason: "RefusedStream"))
            noteRefused(id, now: now)
        } else {
            settle(id, stream.outcomeUnfinished(reason: "StreamReset"))
        }
    }

    /// The stream is closed on both sides.
    mutating func closed(_ id: Int, now: NIODeadline) {
        received(reset: false, on: id, now: now)
        streams[id] = nil
    }

    /// Streams above `last` were not and will not be processed (RFC 9113 §6.8).
    mutating func received(goAwayAfter last: Int, reason: String) {
        for (id, stream) in streams where id > last {
            if !stream.isSettled { outcomes.append((stream.identifier, .sentBack(reason: "GoAway"))) }
            streams[id] = nil
        }
        retire(.goAway(reason))
    }

    mutating func settle(_ id: Int, _ outcome: Outcome) {
        guard let stream = streams[id], !stream.isSettled else { return }
        streams[id]?.isSettled = true
        lingering.append(id)
        outcomes.append((stream.identifier, outcome))
    }

    private mutating func answered(_ id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isSettled else { return }
        clock.lastAnswer = now
        if stream.status == 200 {
            report.good += 1
            noteProgress()
            return settle(id, .accepted)
        }
        guard stream.status > 0 else { return settle(id, .unanswered(reason: "MalformedAnswer")) }
        let refusal = ProviderRefusal(status: stream.status, body: stream.body)
        settle(id, judge.outcome(of: refusal, type: stream.type, writtenAt: stream.writtenAt))
        if refusal.status != 403 { isProved = true }
        switch refusal.remedy {
        case .giveUp:
            report.good += 1
            if good == .nothing { good = .refusal }
        case .deactivate, .retryDevice:
            report.good += 1
            good = .progress
        case .retryService:
            report.troubles += 1
            good = .progress
        case .reconnect: retire(.goAway(refusal.reason))
        case .mendCredentials:
            unaccepted += 1
            // Where pushes are taken, a single one may be what the credentials are not good for.
            let isThePush = hasAccepted && unaccepted < ProviderLimits.toleratedRefusals
            if !isThePush || refusal.isOfTokenAge { retire(.credentials(refusal)) }
        }
    }

    private mutating func noteProgress() {
        isProved = true
        hasAccepted = true
        unaccepted = 0
        refusals = 0
        if let believed = believedLimit {
            believedLimit = believed + 1 < peerLimit ?? 0 ? believed + 1 : nil
        }
        good = .progress
    }

    /// Halves the limit for each round of refused streams; from the second on, with pauses that grow.
    private mutating func noteRefused(_ id: Int, now: NIODeadline) {
        guard id > refusalHorizon else { return }
        believedLimit = max(1, min(streamLimit, streams.count) / 2)
        refusalHorizon = lastStream
        refusals += 1
        guard refusals > 1 else { return }
        if refusals > limits.refusals { return retire(.refusedStreams) }
        let full = limits.firstPause.nanoseconds << Int64(min(refusals - 2, 20))
        pausedUntil = now + .nanoseconds(min(limits.longestPause.nanoseconds, full))
    }
}

extension ProviderRefusal {
    /// Whether it is the provider token and never the push.
    fileprivate var isOfTokenAge: Bool {
        known == .expiredProviderToken || known == .tooManyProviderTokenUpdates
    }
}

import ChatDomain
import NIOCore

/// When things happened on a connection of the provider API.
struct ProviderConnectionClock: Sendable {
    /// Streams up to `stream` were open by then. A few dozen at the most: one for each look at the clock.
    struct Mark: Sendable {
        let stream: Int
        let at: NIODeadline
    }

    /// When the provider token is too old; nil with a certificate.
    let tokenEnd: NIODeadline?
    let opened: NIODeadline
    /// After how long without a push the connection is closed; nil for one that is kept.
    let idleLimit: TimeAmount?
    var lastHeard: NIODeadline
    var lastAnswer = NIODeadline.distantPast
    var lastOpened: NIODeadline
    /// Since when a stream has been open.
    var busySince: NIODeadline
    var waitingSince: NIODeadline
    /// Since when the peer has allowed no stream at all, which RFC 9113 §6.5.2 means for a short while only.
    var closedSince: NIODeadline?
    var pingSent: NIODeadline?
    var drainSince: NIODeadline?
    var marks: [Mark] = []

    init(now: NIODeadline, tokenEnd: NIODeadline? = nil, idleLimit: TimeAmount? = nil) {
        self.tokenEnd = tokenEnd
        self.idleLimit = idleLimit
        opened = now
        lastHeard = now
        lastOpened = now
        busySince = now
        waitingSince = now
    }
}

extension ProviderConnectionState {
    enum TickAction: Sendable, Hashable {
        case ping
        /// Nothing comes any more, or a drain has taken long enough.
        case giveUp(reason: String)
    }

    /// Something came, whatever it was.
    mutating func heard(now: NIODeadline) {
        clock.lastHeard = now
        clock.pingSent = nil
    }

    /// Starts the time that a drain may take.
    mutating func drain(now: NIODeadline) {
        clock.drainSince = clock.drainSince ?? now
        retire(.drained)
    }

    /// Looks at the clock; called every ``ProviderLimits/tick``.
    mutating func tick(now: NIODeadline) -> TickAction? {
        expire(now: now)
        if !hasSettings, now - clock.opened >= limits.silence + limits.pong { return .giveUp(reason: "ConnectionLost") }
        if let tokenEnd = clock.tokenEnd, now >= tokenEnd { retire(.tokenAge) }
        if let limit = clock.idleLimit, isEmpty, now - clock.lastOpened >= limit { retire(.idle) }
        // The peer allows no streams, or takes no bytes: another connection may fare better.
        if !waiting.isEmpty, now - max(clock.lastOpened, clock.waitingSince) >= limits.answer { retire(.unresponsive) }
        if let since = clock.closedSince, now - since >= limits.answer { retire(.unresponsive) }
        if let since = clock.drainSince, now - since >= limits.drain { return .giveUp(reason: "NoAnswer") }
        if let sent = clock.pingSent {
            return now - sent >= limits.pong ? .giveUp(reason: "ConnectionLost") : nil
        }
        let isBusy = !streams.isEmpty
        let silence = now - (isBusy ? max(clock.lastHeard, clock.busySince) : clock.lastHeard)
        guard silence >= (isBusy ? limits.silence : limits.quiet) else { return nil }
        clock.pingSent = now
        return .ping
    }

    /// Settles the streams whose time is up. With a stream's time within a tick of exact, one mark per tick will do.
    private mutating func expire(now: NIODeadline) {
        if lastStream > clock.marks.last?.stream ?? 0 { clock.marks.append(.init(stream: lastStream, at: now)) }
        guard let due = clock.marks.last(where: { now - $0.at >= limits.answer }) else { return }
        clock.marks.removeAll { $0.stream <= due.stream }
        let late = streams.filter { $0.key <= due.stream && !$0.value.isSettled }
        guard !late.isEmpty else { return }
        for (id, stream) in late { settle(id, stream.outcomeUnfinished(reason: "NoAnswer")) }
        // Not one answer in all that time: it will not answer the next ones either.
        if now - clock.lastAnswer >= limits.answer { retire(.unresponsive) }
    }
}

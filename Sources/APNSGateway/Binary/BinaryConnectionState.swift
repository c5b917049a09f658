import APNSWire
import ChatDomain
import NIOCore

/// Decides what became of the pushes written on one connection of the binary protocol.
///
/// A value without a socket. The protocol answers only failures, so acceptance is inferred: from an error answer about a
/// later push, from the answer to a sentinel, or from silence. Silence counts from the moment that the peer's system has
/// acknowledged the bytes, and only while the peer keeps reading; a gateway that stops reading stops the
/// clock (apns-binary.md §8).
struct BinaryConnectionState: Sendable {
    /// Silence after which pushes count as accepted.
    let settleTime: TimeAmount
    /// How long the peer may read nothing before the connection is closed.
    private let stallLimit: TimeAmount
    /// Writes that are closer together than this settle together, so that the list of marks stays short.
    private static let markSpacing = TimeAmount.milliseconds(50)
    /// Identifiers after which a connection is replaced, long before they run out.
    private static let lastIdentifier: UInt32 = 1 << 31

    let connectionID: ConnectionID
    /// The highest identifier of a push that was given to this connection.
    private var written: UInt32 = 0
    /// Everything up to here has its outcome.
    private(set) var settled: UInt32 = 0
    /// The bad notification that was sent on purpose; nothing is written after it.
    private(set) var sentinel: UInt32?
    /// Known when the connection is over. `nil` if it carried no sentinel.
    private(set) var sentinelResult: SentinelResult?
    /// The connection is over.
    private(set) var isFinished = false
    private(set) var result = ConnectionResult.nothing

    private struct Mark {
        var identifier: UInt32
        /// The connection's total of bytes that must be acknowledged.
        var bytes: UInt64
        var writtenAt: NIODeadline
        var acknowledgedAt: NIODeadline?
    }

    private var marks: [Mark] = []
    private var lastProgress = TCPProgress(written: 0, acknowledged: 0)
    private var movingSince: NIODeadline
    private var lastMoved: NIODeadline

    init(connectionID: ConnectionID, settleTime: TimeAmount, stallLimit: TimeAmount, now: NIODeadline) {
        self.connectionID = connectionID
        self.settleTime = settleTime
        self.stallLimit = stallLimit
        self.movingSince = now
        self.lastMoved = now
    }

    var isSettled: Bool { settled == written }

    /// Whether more may be written: not after an answer, a sentinel, or too many.
    var takesPushes: Bool { !isFinished && sentinel == nil && written < Self.lastIdentifier }

    /// Pushes up to `identifier` go out now.
    mutating func willWrite(through identifier: UInt32, now: NIODeadline) {
        // The stall clock runs only while something is in flight.
        if isSettled { lastMoved = now }
        written = max(written, identifier)
    }

    /// Whether the sentinel is alone on the connection.
    var isTrial: Bool { sentinel == 1 }

    /// A sentinel goes out now; its identifier follows the last push's.
    mutating func willWriteSentinel() -> UInt32 {
        let identifier = written + 1
        sentinel = identifier
        return identifier
    }

    /// The system has taken the bytes up to a push; `progress` was read just after.
    mutating func didWrite(through identifier: UInt32, progress: TCPProgress, now: NIODeadline) {
        guard identifier > settled else { return }
        if let last = marks.last, last.acknowledgedAt == nil, now - last.writtenAt < Self.markSpacing {
            marks[marks.count - 1].identifier = identifier
            marks[marks.count - 1].bytes = progress.written
        } else {
            marks.append(Mark(identifier: identifier, bytes: progress.written, writtenAt: now))
        }
    }

    enum TickAction: Sendable, Hashable {
        case settle(DeliveryReport)
        /// The peer has read nothing for the stall limit.
        case close
    }

    /// Checks the connection's progress; called every fraction of the settle time while something is in flight.
    ///
    /// - Parameter progress: nil on a system without the counters; what it took from us counts as acknowledged then.
    mutating func tick(progress: TCPProgress?, now: NIODeadline) -> TickAction? {
        let isDrained =
            progress.map { $0.acknowledged >= $0.written } ?? (isSettled || marks.last?.identifier == written)
        let progress = progress ?? .unknown
        let moved = progress.acknowledged > lastProgress.acknowledged
        lastProgress = progress
        if isDrained || moved {
            // After a standstill the settle timer starts anew: the peer may only now read what it took long ago.
            if lastMoved > movingSince, now - lastMoved > Self.standstill { movingSince = now }
            lastMoved = now
        } else if now - lastMoved >= stallLimit {
            return .close
        }
        for index in marks.indices where marks[index].acknowledgedAt == nil {
            guard marks[index].bytes <= progress.acknowledged else { break }
            marks[index].acknowledgedAt = now
        }
        // After a sentinel the gateway has to answer: silence means nothing any more.
        guard sentinel == nil, now - lastMoved < Self.standstill else { return nil }
        var through: UInt32?
        var done = 0
        for mark in marks {
            guard let acknowledged = mark.acknowledgedAt, now - max(acknowledged, movingSince) >= settleTime else {
                break
            }
            through = mark.identifier
            done += 1
        }
        marks.removeFirst(done)
        guard let through, through > settled else { return nil }
        defer {
            settled = through
            result = .progress
        }
        return .settle(report((settled + 1)...through, .accepted))
    }

    /// A pause in the peer's acknowledgements that is more than the network's own delay.
    private static let standstill = TimeAmount.milliseconds(500)

    /// The gateway's only message: it ends the connection. Every push that is not settled gets its outcome.
    ///
    /// For every status the pushes before the named one were processed and those after it discarded; only the outcome
    /// on the named one differs: refused, or with Shutdown the last that succeeded.
    mutating func answered(_ response: BinaryErrorResponse) -> [DeliveryReport] {
        guard !isFinished else { return [] }
        isFinished = true
        let reports = reports(on: response)
        // After a connection that achieved nothing the next must not come at once.
        if sentinelResult == .answered || reports.contains(where: \.isProgress) {
            result = .progress
        } else if result == .nothing, reports.contains(where: \.isRefusal) {
            result = .refusal
        }
        settled = written
        marks = []
        return reports
    }

    private mutating func reports(on response: BinaryErrorResponse) -> [DeliveryReport] {
        let named = response.identifier
        if let sentinel, named == sentinel || (named == 0 && response.status == .missingDeviceToken) {
            // The second form: Apple's gateway answered a token without bytes with identifier 0 (§7), and no push of ours
            // lacks a token.
            sentinelResult = .answered
            return isSettled ? [] : [report((settled + 1)...written, .accepted)]
        }
        let isLastGood = response.status == .shutdown || response.status == .noErrors
        guard named > 0, named <= written else {
            // It does not name a push of ours; or it shuts down, and has processed none. After a sentinel it may also answer
            // that, having processed all of them.
            if sentinel != nil { sentinelResult = .notUnderstood }
            guard !isSettled else { return [] }
            let isUnread = isLastGood && sentinel == nil
            return [
                report((settled + 1)...written, isUnread ? .notProcessed : .unanswered(reason: response.status.name))
            ]
        }
        if sentinel != nil { sentinelResult = .notReached }
        var reports: [DeliveryReport] = []
        if named > settled + 1 { reports.append(report((settled + 1)...(named - 1), .accepted)) }
        let late = named <= settled
        let outcome = isLastGood ? Outcome.accepted : Self.outcome(of: response.status)
        reports.append(report(named...named, outcome, overrulesSilence: late && !isLastGood))
        if named < written {
            reports.append(report((named + 1)...written, .notProcessed, overrulesSilence: named + 1 <= settled))
        }
        return reports
    }

    /// The connection is gone without an answer about the rest.
    mutating func closed(reason: String) -> [DeliveryReport] {
        isFinished = true
        if sentinel != nil, sentinelResult == nil { sentinelResult = .notUnderstood }
        guard !isSettled else { return [] }
        defer { settled = written }
        return [report((settled + 1)...written, .unanswered(reason: reason))]
    }

    /// The outcome of the push that an error answer names.
    static func outcome(of status: BinaryStatus) -> Outcome {
        switch status {
        case .processingError, .unknown: .retry(reason: status.name)
        // Not the HTTP/2 provider API's BadDeviceToken: that costs no connection, and may only mean that the token is one of
        // the other environment.
        case .invalidToken: .badAddress(reason: status.name)
        default: .rejected(reason: status.name)
        }
    }

    private func report(
        _ identifiers: ClosedRange<UInt32>, _ outcome: Outcome, overrulesSilence: Bool = false
    ) -> DeliveryReport {
        DeliveryReport(
            connection: connectionID, identifiers: identifiers, outcome: outcome, overrulesSilence: overrulesSilence)
    }
}

extension DeliveryReport {
    /// Whether a push was accepted, or the gateway asks for it again.
    fileprivate var isProgress: Bool {
        switch outcome {
        case .accepted, .retry, .unregistered: true
        case .rejected, .badAddress, .notAuthorized, .sentBack, .notProcessed, .postponed, .unanswered: false
        }
    }

    /// Whether a push was refused because of itself. A refused topic is the certificate's fault and concerns every push.
    fileprivate var isRefusal: Bool {
        if case .badAddress = outcome { return true }
        guard case .rejected(let reason, _) = outcome else { return false }
        return reason != BinaryStatus.missingTopic.name && reason != BinaryStatus.invalidTopicSize.name
    }
}

import ChatDomain
import GatewayPool
import NIOCore
import PushWire

/// Decides the outcomes of the pushes on one connection of the binary protocol.
///
/// A pure value without a socket. The protocol reports only failures, so acceptance is inferred: from an error response
/// about a later push, from the response to a sentinel, or from silence. Silence counts from the time when the peer's
/// system has acknowledged the bytes, and only while the peer keeps reading. See "When a push counts as sent" in
/// `docs/binary-gateway.md`.
struct BinaryConnectionState: Sendable {
    /// The duration of silence after which pushes count as accepted.
    let settleTime: TimeAmount
    /// The time without a read by the peer after which the connection is closed.
    private let stallLimit: TimeAmount
    /// Writes within this time share a mark and settle together, so that the list of marks stays short.
    private static let markSpacing = TimeAmount.milliseconds(50)
    /// The identifier at which a connection is replaced, long before the range is exhausted.
    private static let lastIdentifier: UInt32 = 1 << 31

    let connectionID: ConnectionID
    /// The highest identifier of a push that was written on this connection.
    private var written: UInt32 = 0
    /// The identifier up to which all pushes have their outcome.
    private(set) var settled: UInt32 = 0
    /// The identifier of the sentinel, a notification that is invalid on purpose. Nothing is written after it. `nil` if
    /// none was sent.
    private(set) var sentinel: UInt32?
    /// The result of the sentinel, which is known when the connection is over. `nil` if it carried no sentinel.
    private(set) var sentinelResult: SentinelResult?
    /// Whether the connection is over.
    private(set) var isFinished = false
    private(set) var result = ConnectionResult.nothing

    private struct Mark {
        var identifier: UInt32
        /// The connection's total of bytes that the peer must have acknowledged.
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

    /// Whether more pushes may be written. `false` after a response, a sentinel, or the last identifier.
    var takesPushes: Bool { !isFinished && sentinel == nil && written < Self.lastIdentifier }

    /// Records that pushes up to `identifier` are written now.
    mutating func willWrite(through identifier: UInt32, now: NIODeadline) {
        // The stall time runs only while pushes are in flight.
        if isSettled { lastMoved = now }
        written = max(written, identifier)
    }

    /// Whether the sentinel is alone on the connection.
    var isTrial: Bool { sentinel == 1 }

    /// Records that a sentinel is written now. Returns its identifier, which follows that of the last push.
    mutating func willWriteSentinel() -> UInt32 {
        let identifier = written + 1
        sentinel = identifier
        return identifier
    }

    /// Records that the system has accepted the bytes up to a push. `progress` was read just afterwards.
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

    /// Checks the connection's progress. Called several times per settle time while pushes are in flight.
    ///
    /// - Parameter progress: `nil` on a system without the counters. Bytes that the system has accepted then count as
    ///   acknowledged.
    mutating func tick(progress: TCPProgress?, now: NIODeadline) -> TickAction? {
        let isDrained =
            progress.map { $0.acknowledged >= $0.written } ?? (isSettled || marks.last?.identifier == written)
        let progress = progress ?? .unknown
        let moved = progress.acknowledged > lastProgress.acknowledged
        lastProgress = progress
        if isDrained || moved {
            // After a standstill, the settle time starts again: the peer may only now read bytes that its system
            // received long ago.
            if lastMoved > movingSince, now - lastMoved > Self.standstill { movingSince = now }
            lastMoved = now
        } else if now - lastMoved >= stallLimit {
            return .close
        }
        for index in marks.indices where marks[index].acknowledgedAt == nil {
            guard marks[index].bytes <= progress.acknowledged else { break }
            marks[index].acknowledgedAt = now
        }
        // After a sentinel the gateway must respond, so silence proves nothing.
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

    /// A pause in the peer's acknowledgements that is longer than the network's own delay.
    private static let standstill = TimeAmount.milliseconds(500)

    /// Records the gateway's error response, its only message, which ends the connection. Every push that is not
    /// settled gets its outcome.
    ///
    /// For every status, the gateway has processed the pushes before the named one and discarded those after it. Only
    /// the outcome of the named push differs: it was rejected, or, with Shutdown, it was the last accepted one.
    mutating func answered(_ response: BinaryErrorResponse) -> [DeliveryReport] {
        guard !isFinished else { return [] }
        isFinished = true
        let reports = reports(on: response)
        // After a connection that achieved nothing, the next one must wait.
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
            // Identifier 0 is the second form of the response to a sentinel. Apple's gateway sent it for an empty
            // token, as the authors of Pushy observed (Pushy 0.4.3, `ApnsConnection.java`). It cannot concern a push of
            // the relay, because every push has a token.
            sentinelResult = .answered
            return isSettled ? [] : [report((settled + 1)...written, .accepted)]
        }
        let isLastGood = response.status == .shutdown || response.status == .noErrors
        guard named > 0, named <= written else {
            // The response names no push of the relay. If the gateway shuts down, it has processed no push. After a
            // sentinel, however, the response may refer to the sentinel, and then the gateway has processed all pushes.
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
            #if PLANTED_FAULTS
            if PlantedFault.discardedPushesAccepted.isPlanted {
                reports[reports.count - 1] = report((named + 1)...written, .accepted)
            }
            #endif
        }
        return reports
    }

    /// Records that the connection is over without a response about the remaining pushes.
    mutating func closed(reason: String) -> [DeliveryReport] {
        isFinished = true
        if sentinel != nil, sentinelResult == nil { sentinelResult = .notUnderstood }
        guard !isSettled else { return [] }
        defer { settled = written }
        return [report((settled + 1)...written, .unanswered(reason: reason))]
    }

    /// Returns the outcome of the push that an error response names.
    static func outcome(of status: BinaryStatus) -> Outcome {
        switch status {
        case .processingError, .unknown: .retry(reason: status.name)
        // This differs from `BadDeviceToken` of the HTTP/2 provider API, which costs no connection and may only mean
        // that the token belongs to the other environment.
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
    /// Whether the gateway accepted a push, or asks for a retry.
    fileprivate var isProgress: Bool {
        switch outcome {
        case .accepted, .retry, .unregistered: true
        case .rejected, .badAddress, .notAuthorized, .sentBack, .notProcessed, .postponed, .unanswered: false
        }
    }

    /// Whether the gateway rejected a push because of the push itself. A rejected topic is the certificate's fault and
    /// concerns every push.
    fileprivate var isRefusal: Bool {
        if case .badAddress = outcome { return true }
        guard case .rejected(let reason, _) = outcome else { return false }
        return reason != BinaryStatus.missingTopic.name && reason != BinaryStatus.invalidTopicSize.name
    }
}

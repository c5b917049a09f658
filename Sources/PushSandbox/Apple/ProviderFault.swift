import PushWire

/// The faults of the provider API: of pushes to devices, broadcasts, and channel management.
enum ProviderFault: FaultAction, Hashable {
    /// Responds with this refusal after the delay. If the status is 410 and the refusal has no timestamp, the
    /// current time is used.
    case refuse(ProviderRefusal, delay: Int)
    /// Responds with this status and without a body, after the delay.
    case status(Int, delay: Int)
    /// Closes the connection without a response. The notification is not processed.
    case close
    /// Processes the notification, and closes the connection instead of writing the response.
    case closeAccepted
    /// Resets the connection. The notification is not processed.
    case reset
    /// Processes the notification, then neither reads nor writes for this time, or for good if the time is `nil`.
    /// Not even a PING is acknowledged.
    case stopReading(Int?)
    /// Processes the notification after this time.
    case delay(Int)
    /// Records the notification as dropped and continues. The stream stays open.
    case drop
    /// Sends GOAWAY. If `lastStream` is `nil`, GOAWAY names the stream before the notification's stream, so the
    /// notification is not processed.
    case goAway(reason: String?, lastStream: Int?, code: Int)
    /// Limits the number of streams for this time, or for the rest of the connection if the time is `nil`.
    case limitStreams(Int, milliseconds: Int?)
    /// Resets the notification's stream with the code. The notification is not processed.
    case resetStream(code: Int)
    /// Lets the connection's provider token expire, until the client sends another.
    case expireToken
    /// Changes the effect of an accepted push or broadcast on Live Activities.
    case activity(ActivityFault)

    static let gateway = GatewayProtocol.http2
    /// Error codes of HTTP/2 (RFC 9113 §7).
    private static let internalErrorCode = 2
    private static let refusedStreamCode = 7

    /// The event of the Live Activity pushes that the fault counts and hits. `nil` if it counts all notifications.
    var event: ActivityPayload.Event? {
        switch self {
        case .activity(.noUpdateToken): .start
        case .activity(.keepToken): .end
        default: nil
        }
    }

    /// The actions of channel management, which all three protocols share.
    static let channelForms = [
        FaultForm("status", .status, .reason, .timestamp, .delay, read: refusal),
        FaultForm("close", Self.close), FaultForm("reset", Self.reset),
        FaultForm("stop_reading", .delay) { Self.stopReading(try $0.delay()) },
        .delay(Self.delay), FaultForm("drop", Self.drop), FaultForm("close_accepted", Self.closeAccepted),
        FaultForm("goaway", .reason, .lastStream, .code) { fields in
            let code = try code(&fields, default: 0)
            let last = try fields.integer(.lastStream, in: 0...Int(Int32.max))
            if let last, last != 0, last.isMultiple(of: 2) {
                throw ControlError("last_stream: must be 0 or odd, as clients number their streams")
            }
            return Self.goAway(reason: try fields.reason(), lastStream: last, code: code)
        },
        FaultForm("stream_limit", .limit, .delay) { fields in
            let delay = try fields.delay()
            let limit = try fields.integer(.limit, in: 0...StreamLimit.initialLimit, default: 1)
            return Self.limitStreams(limit, milliseconds: delay)
        },
        FaultForm("reset_stream", .code) { Self.resetStream(code: try code(&$0, default: internalErrorCode)) },
        FaultForm("refuse_stream") { fields in
            fields.set(.action, "reset_stream")
            fields.set(.code, refusedStreamCode)
            return Self.resetStream(code: refusedStreamCode)
        },
        FaultForm("expire_token", Self.expireToken),
    ]

    static let forms = channelForms + [.noUpdateToken, .keepToken].map(form)
    static let broadcastForms = channelForms + [.lose, .reorder].map(form)

    private static func form(_ fault: ActivityFault) -> FaultForm { FaultForm(fault.rawValue, Self.activity(fault)) }

    private static func code(_ fields: inout FaultFields, default value: Int) throws(ControlError) -> Int {
        try fields.integer(.code, in: 0...Int(UInt32.max), default: value)
    }

    /// Parses a response. A reason of Apple's implies its status. Any other reason needs a status.
    @Sendable private static func refusal(_ fields: inout FaultFields) throws -> any FaultAction {
        let delay = try fields.responseDelay()
        let reason = try fields.reason()
        let known = reason.flatMap { ProviderReason(rawValue: $0)?.status ?? BroadcastReason(rawValue: $0)?.status }
        guard let status = try fields.status() ?? known else {
            throw ControlError(
                "status: must be given with the action status, from 300 to 599, unless reason is one of Apple's")
        }
        fields.set(.status, status)
        let timestamp = try fields.integer(.timestamp, in: 0...Int.max).map(Int64.init)
        if let reason {
            return refuse(ProviderRefusal(status: status, reason: reason, timestamp: timestamp), delay: delay)
        }
        guard timestamp == nil else {
            throw ControlError("timestamp: only with a reason; without one the response has no body")
        }
        return Self.status(status, delay: delay)
    }
}

/// A fault that changes the effect of an accepted push or broadcast on Live Activities. The value is the action's name.
enum ActivityFault: String, Sendable {
    /// The start of a Live Activity never gets an update token. Hits only starts.
    case noUpdateToken = "no_update_token"
    /// The token remains valid after the end of a Live Activity. Hits only ends.
    case keepToken = "keep_token"
    /// The broadcast reaches no activity.
    case lose
    /// The broadcast reaches the activities after the next one of its channel.
    case reorder
}

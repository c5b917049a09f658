import Foundation
import PushWire

/// An error to simulate, once or several times (`docs/sandbox.md`, "Faults"). Its JSON is that of `POST /faults` and
/// `GET /faults`.
struct Fault: Sendable, Hashable {
    /// The effect of a fault on the notifications that it hits. All times are in milliseconds.
    enum Action: Sendable, Hashable {
        case binary(Binary)
        case http2(HTTP2)
        case webPush(WebPush)
        case fcm(FCM)
    }

    enum Binary: Sendable, Hashable {
        /// Responds with the status after the delay. Everything that arrives until then is read and discarded.
        ///
        /// With ``BinaryStatus/shutdown`` the notification is accepted, and the packet names it as the last good one.
        /// `identifier` replaces the notification's own identifier in the packet.
        case status(BinaryStatus, delay: Int, identifier: UInt32?)
        /// Closes the connection cleanly without a response. The notification is not processed.
        case close
        /// Resets the connection. The notification is not processed.
        case reset
        /// Accepts the notification, then stops reading for this time, or for good if the time is `nil`.
        case stopReading(Int?)
        /// Processes the notification, and all later ones of its connection, after this time.
        case delay(Int)
        /// Records the notification as dropped and continues. The client believes that it was accepted.
        case drop
        /// Sends this response to a probe, and hits only probes. The status is used only in an unidentified error.
        case probe(SandboxConfiguration.ProbeResponse, BinaryStatus)
    }

    enum HTTP2: Sendable, Hashable {
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
        /// Accepts the start of a Live Activity that never gets an update token. Hits only starts.
        case noUpdateToken
        /// Accepts the end of a Live Activity, whose token remains valid. Hits only ends.
        case keepToken
        /// Accepts a broadcast and delivers it to no activity.
        case lose
        /// Accepts a broadcast and delivers it after the next one of its channel.
        case reorder
    }

    enum WebPush: Sendable, Hashable {
        /// Responds with the status after the delay. `retryAfter` is in seconds.
        case status(Int, retryAfter: Int?, delay: Int)
        /// Processes this number of messages per minute, and responds to the others with the status.
        case limitRate(Int, status: Int, retryAfter: Int?)
        /// Closes the connection without a response. The message is not processed.
        case close
        /// Processes the message after this time.
        case delay(Int)
        /// Records the message as dropped, and never responds.
        case drop
    }

    /// The faults of FCM and of its token endpoint.
    enum FCM: Sendable, Hashable {
        /// The value of `Retry-After`.
        struct Retry: Sendable, Hashable {
            let seconds: Int
            /// Whether the value is a date instead of a number of seconds.
            let isDate: Bool

            func text(at now: Date) -> String {
                guard isDate else { return "\(seconds)" }
                return now.addingTimeInterval(Double(seconds)).httpDate
            }
        }

        /// Responds with FCM's error after the delay.
        case refuse(FCMRefusal, retry: Retry?, delay: Int)
        /// Responds with this status and a page in HTML after the delay.
        case fail(Int, retry: Retry?, delay: Int)
        /// Refuses an access token after the delay.
        case grant(AccessTokens.Refusal, delay: Int)
        /// Ends the connection without a response. The message is not processed.
        case end(Disconnection)
        /// Processes the message after this time.
        case delay(Int)
        /// Records the message as dropped, and never responds.
        case drop
        /// Ends all access tokens, then processes the message.
        case expireToken
    }

    /// The fault's id, from 1. The ``FaultTable`` assigns it.
    fileprivate(set) var id = 0
    /// The token whose notifications the fault counts and hits. `nil` if it counts all.
    let token: [UInt8]?
    /// The number of matching notifications that pass first, counted from the creation of the fault.
    let after: Int
    /// The number of notifications to hit.
    let times: Int
    /// After the first ``after`` notifications, the fault hits only every Nth one. With 1, it hits every notification.
    let every: Int
    let action: Action
    /// The protocol whose notifications or requests the fault counts and hits.
    let gateway: GatewayProtocol
    /// The number of notifications that have passed, at most ``after``.
    fileprivate(set) var passed = 0
    /// The number of notifications that were hit, at most ``times``.
    fileprivate(set) var hit = 0
    /// The number of notifications since the last hit that were not hit because of ``every``.
    fileprivate var skipped = 0
    /// The minute of a rate limit, and the number of messages that have passed in it.
    private var minuteStart = Date.distantPast
    private var passedInMinute = 0

    /// Whether a rate limit lets the message pass, which is counted.
    fileprivate mutating func passesRate(at now: Date) -> Bool {
        guard case .webPush(.limitRate(let limit, _, _)) = action else { return false }
        if now < minuteStart || now.timeIntervalSince(minuteStart) >= 60 { (minuteStart, passedInMinute) = (now, 0) }
        guard passedInMinute < limit else { return false }
        passedInMinute += 1
        return true
    }

    /// - Parameter gateway: The protocol, if it is not that of the action: broadcasts and channel management share the
    ///   actions of HTTP/2, and the token endpoint those of FCM.
    init(
        _ action: Action, over gateway: GatewayProtocol? = nil, token: [UInt8]? = nil, after: Int = 0, times: Int = 1,
        every: Int = 1
    ) {
        self.action = action
        self.gateway =
            switch action {
            case .binary: .binary
            case .http2: gateway ?? .http2
            case .webPush: .webpush
            case .fcm: gateway ?? .fcm
            }
        self.token = token
        self.after = after
        self.times = times
        self.every = every
    }

    /// Whether the fault hits only probes. Other faults never hit a probe.
    fileprivate var isForProbes: Bool {
        if case .binary(.probe) = action { true } else { false }
    }

    /// The event of the Live Activity pushes that the fault counts and hits. `nil` if it counts all notifications.
    fileprivate var event: ActivityPayload.Event? {
        switch action {
        case .http2(.noUpdateToken): .start
        case .http2(.keepToken): .end
        default: nil
        }
    }

    /// Whether the fault has hit all its notifications.
    var isSpent: Bool { hit >= times }
}

// MARK: - JSON

extension Fault: Encodable {
    /// The maximum delay in milliseconds.
    private static let maxDelay = 60_000
    /// The maximum of `after`, `times` and `every`.
    private static let maxCount = 1_000_000
    /// The maximum of `retry_after`: one day, in seconds.
    private static let maxRetryAfter = 86_400
    /// The maximum size of a reason in bytes.
    private static let maxReasonSize = 100
    /// Error codes of HTTP/2 (RFC 9113 §7).
    private static let internalErrorCode = 2
    private static let refusedStreamCode = 7

    enum Field: String, CodingKey, CaseIterable {
        case `protocol`, token, after, times, every, action
        // Only with some actions:
        case status, identifier, answer, reason, timestamp
        case lastStream = "last_stream"
        case code, limit
        case delay = "delay_ms"
        case retryAfter = "retry_after"
        case retryAfterForm = "retry_after_form"
    }

    /// Fields that only responses have.
    private enum Progress: CodingKey { case id, passed, hit }

    private enum Name: String, CaseIterable {
        case status
        case close
        case reset
        case stopReading = "stop_reading"
        case delay
        case drop
        case probe
        case closeAccepted = "close_accepted"
        case goAway = "goaway"
        case rateLimit = "rate_limit"
        case streamLimit = "stream_limit"
        case resetStream = "reset_stream"
        case refuseStream = "refuse_stream"
        case expireToken = "expire_token"
        case noUpdateToken = "no_update_token"
        case keepToken = "keep_token"
        case lose
        case reorder

        /// The fields that the action allows in addition to the common ones. `nil` if the protocol has no such action.
        func fields(over gateway: GatewayProtocol) -> Set<Field>? {
            switch (self, gateway) {
            case (.status, .binary): [.status, .identifier, .delay]
            case (.status, .http2), (.status, .broadcast), (.status, .channels): [.status, .reason, .timestamp, .delay]
            case (.status, .webpush): [.status, .retryAfter, .delay]
            case (.rateLimit, .webpush): [.limit, .status, .retryAfter]
            case (.rateLimit, _): nil
            case (.status, .fcm), (.status, .fcmToken): [.status, .reason, .retryAfter, .retryAfterForm, .delay]
            case (.expireToken, .fcm), (.reset, .fcm), (.goAway, .fcm): []
            case (.probe, .binary): [.answer, .status]
            case (.probe, _): nil
            case (.delay, _): [.delay]
            case (.close, _), (.drop, _): []
            case (_, .webpush), (_, .fcm), (_, .fcmToken): nil
            case (.stopReading, _): [.delay]
            case (.reset, _): []
            case (_, .binary): nil
            case (.noUpdateToken, .http2), (.keepToken, .http2), (.lose, .broadcast), (.reorder, .broadcast): []
            case (.noUpdateToken, _), (.keepToken, _), (.lose, _), (.reorder, _): nil
            case (.goAway, _): [.reason, .lastStream, .code]
            case (.streamLimit, _): [.limit, .delay]
            case (.resetStream, _): [.code]
            case (.closeAccepted, _), (.refuseStream, _), (.expireToken, _): []
            }
        }
    }

    /// Parses a fault.
    /// - Throws: ``ControlError`` that names the first invalid field and the rule.
    init(_ body: ControlBody<Field>) throws(ControlError) {
        guard let gateway = try body.string(.protocol).flatMap(GatewayProtocol.init) else {
            throw ControlError("protocol: \(GatewayProtocol.rule())")
        }
        let token = try body.token(.token)
        guard token == nil || ![.broadcast, .channels, .fcmToken].contains(gateway) else {
            throw ControlError("token: not allowed with the protocol \(gateway.rawValue), whose requests have none")
        }
        let after = try body.integer(.after, in: 0...Self.maxCount)
        let times = try body.integer(.times, in: 1...Self.maxCount)
        let every = try body.integer(.every, in: 1...Self.maxCount)
        let names = Name.allCases.filter { $0.fields(over: gateway) != nil }
        guard let name = try body.string(.action).flatMap(Name.init), let fields = name.fields(over: gateway) else {
            throw ControlError("action: must be one of \(names.map(\.rawValue).joined(separator: ", "))")
        }
        for field in Field.allCases.drop(while: { $0 != .status }) where body.has(field) && !fields.contains(field) {
            let owners = names.filter { $0.fields(over: gateway)?.contains(field) == true }.map(\.rawValue)
            let hint = owners.isEmpty ? "" : ", only with \(owners.joined(separator: ", "))"
            throw ControlError("\(field.rawValue): not allowed with the action \(name.rawValue)\(hint)")
        }
        let action: Action =
            switch gateway {
            case .binary: .binary(try Self.binary(name, body))
            case .http2, .broadcast, .channels: .http2(try Self.http2(name, body))
            case .webpush: .webPush(try Self.webPush(name, body))
            case .fcm: .fcm(try Self.fcm(name, body))
            case .fcmToken: .fcm(try Self.fcmToken(name, body))
            }
        // A limit holds until it is deleted.
        let usual = name == .rateLimit ? Self.maxCount : 1
        self.init(action, over: gateway, token: token, after: after ?? 0, times: times ?? usual, every: every ?? 1)
    }

    private static func binary(_ name: Name, _ body: ControlBody<Field>) throws(ControlError) -> Binary {
        let delay = try body.integer(.delay, in: 0...maxDelay)
        switch name {
        case .close: return .close
        case .reset: return .reset
        case .drop: return .drop
        case .stopReading: return .stopReading(delay)
        case .delay: return .delay(try required(delay))
        case .probe:
            guard !body.has(.token) else {
                throw ControlError("token: not allowed with the action probe, because a probe has no token")
            }
            let answers = SandboxConfiguration.ProbeResponse.allCases
            guard let answer = try body.string(.answer).flatMap(SandboxConfiguration.ProbeResponse.init) else {
                throw ControlError(
                    "answer: must be one of \(answers.map(\.rawValue).joined(separator: ", ")), with the action probe")
            }
            let status = try body.integer(.status, in: 0...255).map { BinaryStatus(rawValue: UInt8($0)) }
            guard status == nil || answer == .unidentified else {
                throw ControlError("status: allowed with the action probe only if answer is unidentified")
            }
            return .probe(answer, status ?? SandboxState.unidentifiedStatus)
        // The names after `status` belong to other protocols and were rejected before.
        case .status, .closeAccepted, .goAway, .rateLimit, .streamLimit, .resetStream, .refuseStream, .expireToken,
            .noUpdateToken,
            .keepToken, .lose, .reorder:
            guard let status = try body.integer(.status, in: 0...255) else {
                throw ControlError("status: must be given with the action status, from 0 to 255")
            }
            let identifier = try body.integer(.identifier, in: 0...Int(UInt32.max))
            return .status(
                BinaryStatus(rawValue: UInt8(status)), delay: delay ?? 0, identifier: identifier.map(UInt32.init))
        }
    }

    private static func http2(_ name: Name, _ body: ControlBody<Field>) throws(ControlError) -> HTTP2 {
        let delay = try body.integer(.delay, in: 0...maxDelay)
        let code = try body.integer(.code, in: 0...Int(UInt32.max))
        switch name {
        case .status: return try status(body, delay: delay ?? 0)
        case .close: return .close
        case .closeAccepted: return .closeAccepted
        case .reset: return .reset
        case .drop: return .drop
        case .stopReading: return .stopReading(delay)
        case .delay: return .delay(try required(delay))
        case .goAway:
            let last = try body.integer(.lastStream, in: 0...Int(Int32.max))
            if let last, last != 0, last.isMultiple(of: 2) {
                throw ControlError("last_stream: must be 0 or odd, as clients number their streams")
            }
            return .goAway(reason: try reason(body), lastStream: last, code: code ?? 0)
        case .streamLimit:
            let limit = try body.integer(.limit, in: 0...StreamLimit.initialLimit)
            return .limitStreams(limit ?? 1, milliseconds: delay)
        case .resetStream: return .resetStream(code: code ?? internalErrorCode)
        case .refuseStream: return .resetStream(code: refusedStreamCode)
        case .noUpdateToken: return .noUpdateToken
        case .keepToken: return .keepToken
        case .lose: return .lose
        case .reorder: return .reorder
        // `probe` and `rate_limit` belong to other protocols and were rejected before.
        case .expireToken, .probe, .rateLimit: return .expireToken
        }
    }

    private static func webPush(_ name: Name, _ body: ControlBody<Field>) throws(ControlError) -> WebPush {
        let delay = try body.integer(.delay, in: 0...maxDelay)
        switch name {
        case .close: return .close
        case .drop: return .drop
        case .delay: return .delay(try required(delay))
        case .rateLimit:
            guard let limit = try body.integer(.limit, in: 1...maxCount) else {
                throw ControlError("limit: must be given with the action rate_limit, in messages per minute")
            }
            return .limitRate(
                limit, status: try body.integer(.status, in: 300...599) ?? 429,
                retryAfter: try body.integer(.retryAfter, in: 0...maxRetryAfter))
        // The names after `status` belong to other protocols and were rejected before.
        case .status, .reset, .stopReading, .probe, .closeAccepted, .goAway, .streamLimit, .resetStream, .refuseStream,
            .expireToken, .noUpdateToken, .keepToken, .lose, .reorder:
            guard let status = try body.integer(.status, in: 300...599) else {
                throw ControlError("status: must be given with the action status, from 300 to 599")
            }
            let retryAfter = try body.integer(.retryAfter, in: 0...maxRetryAfter)
            return .status(status, retryAfter: retryAfter, delay: delay ?? 0)
        }
    }

    private static func fcm(_ name: Name, _ body: ControlBody<Field>) throws(ControlError) -> FCM {
        if let other = try common(name, body) { return other }
        let delay = try body.integer(.delay, in: 0...maxDelay) ?? 0
        let retry = try retry(body)
        let status = try body.integer(.status, in: 300...599)
        guard let reason = try reason(body) else {
            guard let status else {
                throw ControlError(
                    "status: must be given with the action status, from 300 to 599, unless reason is one of FCM's")
            }
            return .fail(status, retry: retry, delay: delay)
        }
        guard let code = FCMRefusal.Code(rawValue: reason), status == nil || status == FCMRefusal(code).status else {
            let codes = FCMRefusal.Code.allCases.map(\.rawValue).joined(separator: ", ")
            throw ControlError("reason: must be one of \(codes), with its own status or none")
        }
        return .refuse(FCMRefusal(code), retry: retry, delay: delay)
    }

    private static func fcmToken(_ name: Name, _ body: ControlBody<Field>) throws(ControlError) -> FCM {
        if let other = try common(name, body) { return other }
        let delay = try body.integer(.delay, in: 0...maxDelay) ?? 0
        if let status = try body.integer(.status, in: 300...599) {
            guard !body.has(.reason) else { throw ControlError("reason: not allowed with status") }
            return .fail(status, retry: try retry(body), delay: delay)
        }
        guard let reason = try reason(body) else {
            throw ControlError("status: must be given with the action status, from 300 to 599, unless reason is given")
        }
        return .grant(AccessTokens.Refusal(error: reason, errorDescription: "a fault of the sandbox"), delay: delay)
    }

    /// Parses the actions that FCM and its token endpoint share. `nil` for the action `status`.
    private static func common(_ name: Name, _ body: ControlBody<Field>) throws(ControlError) -> FCM? {
        switch name {
        case .close: return .end(.close)
        case .reset: return .end(.reset)
        case .goAway: return .end(.goAway)
        case .drop: return .drop
        case .delay: return .delay(try required(try body.integer(.delay, in: 0...maxDelay)))
        case .expireToken: return .expireToken
        // The others belong to other protocols and were rejected before.
        default: return nil
        }
    }

    private static func retry(_ body: ControlBody<Field>) throws(ControlError) -> FCM.Retry? {
        let form = try body.string(.retryAfterForm)
        guard [nil, "seconds", "date"].contains(form) else {
            throw ControlError("retry_after_form: must be seconds or date")
        }
        guard let seconds = try body.integer(.retryAfter, in: 0...maxRetryAfter) else {
            guard form == nil else { throw ControlError("retry_after_form: only with retry_after") }
            return nil
        }
        return FCM.Retry(seconds: seconds, isDate: form == "date")
    }

    private static func required(_ delay: Int?) throws(ControlError) -> Int {
        if let delay { return delay }
        throw ControlError("delay_ms: must be given with the action delay, from 0 to \(maxDelay)")
    }

    /// Parses an HTTP/2 error. A reason of Apple's implies its status. Any other reason needs a status.
    private static func status(_ body: ControlBody<Field>, delay: Int) throws(ControlError) -> HTTP2 {
        let reason = try reason(body)
        let known = reason.flatMap { ProviderReason(rawValue: $0)?.status ?? BroadcastReason(rawValue: $0)?.status }
        guard let status = try body.integer(.status, in: 300...599) ?? known else {
            throw ControlError(
                "status: must be given with the action status, from 300 to 599, unless reason is one of Apple's")
        }
        let timestamp = try body.integer(.timestamp, in: 0...Int.max).map(Int64.init)
        if let reason {
            return .refuse(ProviderRefusal(status: status, reason: reason, timestamp: timestamp), delay: delay)
        }
        guard timestamp == nil else {
            throw ControlError("timestamp: only with a reason; without one the response has no body")
        }
        return .status(status, delay: delay)
    }

    /// Parses the reason. It is inserted into JSON unchanged, so it must not need escapes.
    private static func reason(_ body: ControlBody<Field>) throws(ControlError) -> String? {
        guard let reason = try body.string(.reason) else { return nil }
        let isPlain = reason.utf8.allSatisfy { (0x20..<0x7F).contains($0) && $0 != 0x22 && $0 != 0x5C }
        guard isPlain, (1...maxReasonSize).contains(reason.utf8.count) else {
            throw ControlError(
                "reason: must be 1 to \(maxReasonSize) printable ASCII characters, without quotes and backslashes")
        }
        return reason
    }

    func encode(to encoder: any Encoder) throws {
        var progress = encoder.container(keyedBy: Progress.self)
        try progress.encode(id, forKey: .id)
        try progress.encode(passed, forKey: .passed)
        try progress.encode(hit, forKey: .hit)
        var fields = encoder.container(keyedBy: Field.self)
        try fields.encode(gateway, forKey: .protocol)
        try fields.encodeIfPresent(token?.hex, forKey: .token)
        try fields.encode(after, forKey: .after)
        try fields.encode(times, forKey: .times)
        if every != 1 { try fields.encode(every, forKey: .every) }
        let (name, reason, numbers) = parts
        try fields.encode(name.rawValue, forKey: .action)
        try fields.encodeIfPresent(probeResponse?.rawValue, forKey: .answer)
        try fields.encodeIfPresent(reason, forKey: .reason)
        try fields.encodeIfPresent(retry.map { $0.isDate ? "date" : "seconds" }, forKey: .retryAfterForm)
        for (field, number) in numbers { try fields.encodeIfPresent(number, forKey: field) }
    }

    /// The response to a probe. `nil` with all other actions.
    private var probeResponse: SandboxConfiguration.ProbeResponse? {
        if case .binary(.probe(let answer, _)) = action { answer } else { nil }
    }

    /// The `Retry-After` of FCM's responses. `nil` for none, and with all other protocols.
    private var retry: FCM.Retry? {
        switch action {
        case .fcm(.refuse(_, let retry, _)), .fcm(.fail(_, let retry, _)): retry
        default: nil
        }
    }

    /// The action's name, its reason, and its numeric fields.
    private var parts: (Name, reason: String?, numbers: [Field: Int?]) {
        switch action {
        case .binary(.status(let status, let delay, let identifier)):
            (.status, nil, [.status: Int(status.rawValue), .delay: delay, .identifier: identifier.map(Int.init)])
        case .binary(.probe(let answer, let status)):
            (.probe, nil, [.status: answer == .unidentified ? Int(status.rawValue) : nil])
        case .http2(.status(let status, let delay)):
            (.status, nil, [.status: status, .delay: delay])
        case .http2(.refuse(let refusal, let delay)):
            (
                .status, refusal.reason,
                [.status: refusal.status, .delay: delay, .timestamp: refusal.timestamp.map(Int.init)]
            )
        case .webPush(.status(let status, let retryAfter, let delay)):
            (.status, nil, [.status: status, .retryAfter: retryAfter, .delay: delay])
        case .webPush(.limitRate(let limit, let status, let retryAfter)):
            (.rateLimit, nil, [.limit: limit, .status: status, .retryAfter: retryAfter])
        case .binary(.close), .http2(.close), .webPush(.close): (.close, nil, [:])
        case .binary(.reset), .http2(.reset): (.reset, nil, [:])
        case .binary(.drop), .http2(.drop), .webPush(.drop): (.drop, nil, [:])
        case .binary(.stopReading(let delay)), .http2(.stopReading(let delay)): (.stopReading, nil, [.delay: delay])
        case .binary(.delay(let delay)), .http2(.delay(let delay)), .webPush(.delay(let delay)):
            (.delay, nil, [.delay: delay])
        case .http2(.closeAccepted): (.closeAccepted, nil, [:])
        case .http2(.goAway(let reason, let last, let code)): (.goAway, reason, [.lastStream: last, .code: code])
        case .http2(.limitStreams(let limit, let delay)): (.streamLimit, nil, [.limit: limit, .delay: delay])
        case .http2(.resetStream(let code)): (.resetStream, nil, [.code: code])
        case .http2(.expireToken): (.expireToken, nil, [:])
        case .http2(.noUpdateToken): (.noUpdateToken, nil, [:])
        case .http2(.keepToken): (.keepToken, nil, [:])
        case .http2(.lose): (.lose, nil, [:])
        case .http2(.reorder): (.reorder, nil, [:])
        case .fcm(.refuse(let refusal, let retry, let delay)):
            (
                .status, refusal.errorCode,
                [.status: refusal.status, .retryAfter: retry?.seconds, .delay: delay]
            )
        case .fcm(.fail(let status, let retry, let delay)):
            (.status, nil, [.status: status, .retryAfter: retry?.seconds, .delay: delay])
        case .fcm(.grant(let refusal, let delay)): (.status, refusal.error, [.delay: delay])
        case .fcm(.end(.close)): (.close, nil, [:])
        case .fcm(.end(.reset)): (.reset, nil, [:])
        case .fcm(.end(.goAway)): (.goAway, nil, [:])
        case .fcm(.delay(let delay)): (.delay, nil, [.delay: delay])
        case .fcm(.drop): (.drop, nil, [:])
        case .fcm(.expireToken): (.expireToken, nil, [:])
        }
    }
}

// MARK: - The table

/// The faults that wait for notifications, and those that are spent.
struct FaultTable: Sendable {
    /// The maximum number of waiting faults. Each notification is compared with all of them.
    static let limit = 100
    /// The maximum number of spent faults to keep for `GET /faults`. The newest are kept.
    static let spentLimit = 100

    private var waiting: [Fault] = []
    private var spent: [Fault] = []
    private var lastID = 0

    /// All faults, oldest first.
    var all: [Fault] { (waiting + spent).sorted { $0.id < $1.id } }

    /// Adds a fault.
    /// - Returns: The fault with its id.
    @discardableResult
    mutating func add(_ fault: Fault) throws(LimitReached) -> Fault {
        guard waiting.count < Self.limit else {
            throw LimitReached(
                text: "\(Self.limit) faults are waiting, which is the limit; delete them with DELETE /faults")
        }
        lastID += 1
        var fault = fault
        fault.id = lastID
        waiting.append(fault)
        return fault
    }

    mutating func clear() {
        waiting = []
        spent = []
    }

    /// Counts a notification.
    ///
    /// If several faults are due, the oldest applies. Every waiting fault that is not due yet counts the notification
    /// as well.
    /// - Parameters:
    ///   - isProbe: Whether the notification is a probe of the binary protocol.
    ///   - now: The time. Only limits of the rate of Web Push need it.
    ///   - event: Returns the event of a Live Activity push, and `nil` for any other notification.
    /// - Returns: The action to apply, which belongs to `gateway`. `nil` if no fault is due.
    mutating func trigger(
        token: [UInt8], over gateway: GatewayProtocol, isProbe: Bool = false, at now: Date = .distantPast,
        event: () -> ActivityPayload.Event? = { nil }
    ) -> Fault.Action? {
        guard !waiting.isEmpty else { return nil }
        var due: Int?
        for index in waiting.indices
        where waiting[index].gateway == gateway && waiting[index].isForProbes == isProbe
            && (waiting[index].token == nil || waiting[index].token == token)
            && (waiting[index].event == nil || waiting[index].event == event())
        {
            if waiting[index].passed < waiting[index].after {
                waiting[index].passed += 1
            } else if waiting[index].passesRate(at: now) {
                continue
            } else if waiting[index].skipped < waiting[index].every - 1 {
                waiting[index].skipped += 1
            } else if due == nil {
                due = index
            }
        }
        guard let due else { return nil }
        waiting[due].hit += 1
        waiting[due].skipped = 0
        let action = waiting[due].action
        if waiting[due].isSpent {
            spent.append(waiting.remove(at: due))
            if spent.count > Self.spentLimit { spent.removeFirst() }
        }
        return action
    }
}

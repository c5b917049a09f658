/// The metadata keys of this target's log lines.
///
/// Nicknames, codes and texts are never logged. A udid and a device token are logged only by their first characters.
enum LogKeys {
    static let address = "address"
    static let requestID = "request_id"
    /// The trace id of `traceparent`.
    static let trace = "trace_id"
    /// The first eight digits of a udid.
    static let member = "member"
    /// ``DeviceToken/shortened``.
    static let token = "token"
    static let app = "app"
    /// The id of another app's credential.
    static let credential = "credential"
    static let message = "message_id"
    static let notification = "notification"
    static let activity = "activity"
    /// The event of a Live Activity: start, update or end.
    static let event = "event"
    static let devices = "devices"
    static let streams = "streams"
    /// The number of pushes that were queued before the response.
    static let queued = "queued"
    /// Whether the `Idempotency-Key` was used before.
    static let isRepeat = "repeat"
    /// Whether the member was in a room before it left.
    static let wasJoined = "was_joined"
    /// The name of a token; `admin` for the administrator.
    static let caller = "caller"
    static let result = "result"
    static let code = "code"
    static let status = "status"
    static let reason = "reason"
    /// The number of failures that a line represents.
    static let count = "count"
    static let cause = "cause"
    /// The pattern of the path, such as `/v1/devices/{token}`.
    static let route = "route"
    /// The name of a readiness check.
    static let check = "check"
}

/// The metadata keys of this target's log lines.
///
/// Nicknames, codes and texts are never logged; a udid and a device token only by their beginning.
enum LogKeys {
    static let address = "address"
    static let requestID = "request_id"
    /// Of `traceparent`.
    static let trace = "trace_id"
    /// The first eight digits of a udid.
    static let member = "member"
    /// ``DeviceToken/shortened``.
    static let token = "token"
    static let app = "app"
    static let message = "message_id"
    static let notification = "notification"
    static let devices = "devices"
    static let streams = "streams"
    /// Pushes that were queued before the answer.
    static let queued = "queued"
    /// Whether an `Idempotency-Key` was seen before.
    static let isRepeat = "repeat"
    /// Whether a member was in a room before it left.
    static let wasJoined = "was_joined"
    /// The name of a token; `admin` for the administrator.
    static let caller = "caller"
    static let result = "result"
    static let code = "code"
    static let status = "status"
    static let reason = "reason"
    /// How many alike, where a line stands for several.
    static let count = "count"
    static let cause = "cause"
    /// The pattern of the address, as `/v1/devices/{token}`.
    static let route = "route"
    /// What is checked for readiness.
    static let check = "check"
}

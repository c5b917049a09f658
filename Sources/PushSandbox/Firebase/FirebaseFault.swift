import Foundation

/// The value of `Retry-After` in a fault.
struct FaultRetry: Sendable, Hashable {
    let seconds: Int
    /// Whether the value is a date instead of a number of seconds.
    let isDate: Bool

    func text(at now: Date) -> String {
        guard isDate else { return "\(seconds)" }
        return now.addingTimeInterval(Double(seconds)).httpDate
    }
}

/// The faults of FCM.
enum FirebaseFault: FaultAction, Hashable {
    /// Responds with FCM's error after the delay.
    case refuse(FCMRefusal, retry: FaultRetry?, delay: Int)
    /// Responds with this status and a page in HTML after the delay.
    case fail(Int, retry: FaultRetry?, delay: Int)
    /// Ends the connection without a response. The message is not processed.
    case end(Disconnection)
    /// Processes the message after this time.
    case delay(Int)
    /// Records the message as dropped, and never responds.
    case drop
    /// Ends all access tokens, then processes the message.
    case expireToken

    static let gateway = GatewayProtocol.fcm

    static let forms = [
        FaultForm("status", .status, .reason, .retryAfter, .retryAfterForm, .delay) { fields in
            let delay = try fields.responseDelay()
            let retry = try fields.retry()
            let status = try fields.status()
            guard let reason = try fields.reason() else {
                guard let status else {
                    throw ControlError(
                        "status: must be given with the action status, from 300 to 599, unless reason is one of FCM's")
                }
                return Self.fail(status, retry: retry, delay: delay)
            }
            guard let code = FCMRefusal.Code(rawValue: reason), status == nil || status == FCMRefusal(code).status
            else {
                let codes = FCMRefusal.Code.allCases.map(\.rawValue).joined(separator: ", ")
                throw ControlError("reason: must be one of \(codes), with its own status or none")
            }
            fields.set(.status, FCMRefusal(code).status)
            return Self.refuse(FCMRefusal(code), retry: retry, delay: delay)
        },
        FaultForm("close", Self.end(.close)), FaultForm("reset", Self.end(.reset)), .delay(Self.delay),
        FaultForm("drop", Self.drop), FaultForm("goaway", Self.end(.goAway)),
        FaultForm("expire_token", Self.expireToken),
    ]
}

/// The faults of Google's token endpoint.
enum GrantFault: FaultAction, Hashable {
    /// Refuses an access token after the delay.
    case refuse(AccessTokens.Refusal, delay: Int)
    /// Responds with this status and a page in HTML after the delay.
    case fail(Int, retry: FaultRetry?, delay: Int)
    case close
    case delay(Int)
    /// Never responds.
    case drop

    static let gateway = GatewayProtocol.fcmToken

    static let forms = [
        FaultForm("status", .status, .reason, .retryAfter, .retryAfterForm, .delay) { fields in
            let delay = try fields.responseDelay()
            if let status = try fields.status() {
                guard !fields.has(.reason) else { throw ControlError("reason: not allowed with status") }
                return Self.fail(status, retry: try fields.retry(), delay: delay)
            }
            guard let reason = try fields.reason() else {
                throw ControlError(
                    "status: must be given with the action status, from 300 to 599, unless reason is given")
            }
            let refusal = AccessTokens.Refusal(error: reason, errorDescription: "a fault of the sandbox")
            return Self.refuse(refusal, delay: delay)
        },
        FaultForm("close", Self.close), .delay(Self.delay), FaultForm("drop", Self.drop),
    ]
}

extension FaultFields {
    fileprivate mutating func retry() throws(ControlError) -> FaultRetry? {
        let form = try string(.retryAfterForm)
        guard [nil, "seconds", "date"].contains(form) else {
            throw ControlError("retry_after_form: must be seconds or date")
        }
        guard let seconds = try retryAfter() else {
            guard form == nil else { throw ControlError("retry_after_form: only with retry_after") }
            return nil
        }
        set(.retryAfterForm, form ?? "seconds")
        return FaultRetry(seconds: seconds, isDate: form == "date")
    }
}

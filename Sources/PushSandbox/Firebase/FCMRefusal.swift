import Foundation

/// FCM's reason for rejecting a message, with the response that Google's service sends.
///
/// Source: the error table of the FCM v1 API (https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode).
struct FCMRefusal: Error, Sendable, Hashable {
    /// The part of a message that breaks a rule.
    struct Violation: Sendable, Hashable, Encodable {
        /// The field's path, for example `message.android.ttl`.
        let field: String
        let description: String
    }

    let status: Int
    /// The name of the status in Google's APIs, for example `NOT_FOUND`.
    let name: String
    /// FCM's own code, for example `UNREGISTERED`. `nil` if the error comes from Google's common API front end.
    var errorCode: String?
    let message: String
    var violations: [Violation] = []
    /// The reason in a `google.rpc.ErrorInfo`, for example `ACCESS_TOKEN_EXPIRED`.
    var reason: String?
    /// The value of `Retry-After`: a number of seconds or an HTTP date. `nil` for none.
    var retryAfter: String?

    init(_ status: Int, _ name: String, _ errorCode: String? = nil, _ message: String) {
        self.status = status
        self.name = name
        self.errorCode = errorCode
        self.message = message
    }

    /// The name in the inbox, in counts and in the log.
    var shortName: String { errorCode ?? name }
}

// MARK: - Errors of the service

extension FCMRefusal {
    /// FCM's own codes of errors.
    enum Code: String, Sendable, CaseIterable {
        case unspecified = "UNSPECIFIED_ERROR"
        case invalidArgument = "INVALID_ARGUMENT"
        case unregistered = "UNREGISTERED"
        case senderMismatch = "SENDER_ID_MISMATCH"
        case quotaExceeded = "QUOTA_EXCEEDED"
        case unavailable = "UNAVAILABLE"
        case internalError = "INTERNAL"
        case thirdPartyAuthentication = "THIRD_PARTY_AUTH_ERROR"
    }

    init(_ code: Code) {
        switch code {
        case .unspecified: self.init(500, "UNKNOWN", code.rawValue, "An unknown error occurred.")
        case .invalidArgument:
            self.init(
                400, "INVALID_ARGUMENT", code.rawValue,
                "The registration token is not a valid FCM registration token")
        case .unregistered: self.init(404, "NOT_FOUND", code.rawValue, "Requested entity was not found.")
        case .senderMismatch: self.init(403, "PERMISSION_DENIED", code.rawValue, "SenderId mismatch")
        case .quotaExceeded: self.init(429, "RESOURCE_EXHAUSTED", code.rawValue, "Quota exceeded.")
        case .unavailable:
            self.init(503, "UNAVAILABLE", code.rawValue, "The service is currently unavailable.")
        case .internalError: self.init(500, "INTERNAL", code.rawValue, "Internal error encountered.")
        case .thirdPartyAuthentication:
            self.init(401, "UNAUTHENTICATED", code.rawValue, "Auth error from APNS or Web Push Service")
        }
    }

    /// A bearer token that is missing, unknown or expired.
    static var unauthenticated: FCMRefusal {
        var refusal = FCMRefusal(
            401, "UNAUTHENTICATED", nil,
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
                + "authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project."
        )
        refusal.reason = "ACCESS_TOKEN_EXPIRED"
        return refusal
    }

    /// A project in the path that is not the account's.
    static func otherProject(_ project: String) -> FCMRefusal {
        FCMRefusal(
            403, "PERMISSION_DENIED", nil,
            "Permission 'cloudmessaging.messages.create' denied on resource "
                + "'//cloudresourcemanager.googleapis.com/projects/\(project.prefix(100))' (or it may not exist).")
    }

    /// A rule of FCM that the message breaks.
    static func broken(_ rule: String) -> FCMRefusal {
        FCMRefusal(400, "INVALID_ARGUMENT", Code.invalidArgument.rawValue, rule)
    }

    /// Fields that the API's front end rejects.
    static func invalid(_ violations: [Violation]) -> FCMRefusal {
        var refusal = FCMRefusal(
            400, "INVALID_ARGUMENT", nil, violations.map(\.description).joined(separator: "\n"))
        refusal.violations = violations
        return refusal
    }
}

// MARK: - JSON

extension FCMRefusal: Encodable {
    private enum Envelope: CodingKey { case error }
    private enum Key: CodingKey { case code, message, status, details }
    private enum Detail: String, CodingKey {
        case type = "@type"
        case errorCode, reason, domain, fieldViolations
    }

    func encode(to encoder: any Encoder) throws {
        var envelope = encoder.container(keyedBy: Envelope.self)
        var error = envelope.nestedContainer(keyedBy: Key.self, forKey: .error)
        try error.encode(status, forKey: .code)
        try error.encode(message, forKey: .message)
        try error.encode(name, forKey: .status)
        guard errorCode != nil || reason != nil || !violations.isEmpty else { return }
        var details = error.nestedUnkeyedContainer(forKey: .details)
        if let errorCode {
            var detail = details.nestedContainer(keyedBy: Detail.self)
            try detail.encode("type.googleapis.com/google.firebase.fcm.v1.FcmError", forKey: .type)
            try detail.encode(errorCode, forKey: .errorCode)
        }
        if let reason {
            var detail = details.nestedContainer(keyedBy: Detail.self)
            try detail.encode("type.googleapis.com/google.rpc.ErrorInfo", forKey: .type)
            try detail.encode(reason, forKey: .reason)
            try detail.encode("googleapis.com", forKey: .domain)
        }
        if !violations.isEmpty {
            var detail = details.nestedContainer(keyedBy: Detail.self)
            try detail.encode("type.googleapis.com/google.rpc.BadRequest", forKey: .type)
            try detail.encode(violations, forKey: .fieldViolations)
        }
    }
}

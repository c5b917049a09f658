/// Why a request was not done: what the user reads, and for the log the cause.
///
/// A gateway's refusal is an ``Outcome``, not an error.
package struct ChatError: Error, Sendable, CustomStringConvertible {
    package enum Code: String, Sendable, Hashable, CaseIterable {
        /// `cmd` is missing or not one of ours.
        case unknownCommand = "unknown_command"
        /// A field that must be there is not.
        case missingField = "missing_field"
        /// A field is there and breaks its rule.
        case invalidField = "invalid_field"
        /// The body or its description cannot be read at all.
        case malformedRequest = "malformed_request"
        /// The udid has not joined a room.
        case notJoined = "not_joined"
        /// What the address names does not exist.
        case notFound = "not_found"
        /// What the address names could be several things.
        case ambiguous
        /// What is there already does not go with it.
        case conflict
        /// An `Idempotency-Key` was used before, for something else.
        case idempotencyConflict = "idempotency_conflict"
        /// The request must prove who sends it, and does not.
        case unauthorized
        /// The request comes from where none may come.
        case forbidden
        case tooLarge = "too_large"
        case unsupportedMediaType = "unsupported_media_type"
        case tooManyRequests = "too_many_requests"
        /// The store cannot take it now; nothing was accepted.
        case unavailable
        case internalError = "internal_error"
    }

    package let code: Code
    /// For the user: names the field and the rule. One line of ASCII, as it also travels in a header.
    package let message: String
    /// The field's name as the request has it.
    package let field: String?
    /// When it is worth trying again.
    package let retryAfter: Duration?
    /// For the log, never for the user.
    package let cause: String?

    package init(
        _ code: Code, _ message: String, field: String? = nil, retryAfter: Duration? = nil, cause: String? = nil
    ) {
        self.code = code
        self.message = message
        self.field = field
        self.retryAfter = retryAfter
        self.cause = cause
    }

    /// `Missing udid`, in the original server's words.
    package static func missing(_ field: String) -> ChatError {
        ChatError(.missingField, "Missing \(field)", field: field)
    }

    /// `Invalid udid: <rule>`: the original server's words, and then the rule that was broken.
    package static func invalid(_ field: String, _ rule: String) -> ChatError {
        ChatError(.invalidField, "Invalid \(field): \(rule)", field: field)
    }

    package static func notJoined(_ field: String = "udid") -> ChatError {
        ChatError(.notJoined, "This \(field) has not joined a room", field: field)
    }

    package static func notFound(_ what: String) -> ChatError {
        ChatError(.notFound, "There is no such \(what)")
    }

    package static func unauthorized(_ reason: String) -> ChatError {
        ChatError(.unauthorized, reason)
    }

    package static func unavailable(retryAfter: Duration = .seconds(2), cause: String) -> ChatError {
        ChatError(
            .unavailable, "The server cannot store this now; nothing was accepted, try again", retryAfter: retryAfter,
            cause: cause)
    }

    package var description: String { cause.map { "\(message) (\($0))" } ?? message }
}

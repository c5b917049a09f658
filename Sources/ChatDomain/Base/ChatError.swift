/// The error of a failed request: a message for the user, and a cause for the log.
///
/// A push that a gateway rejects has an ``Outcome``, not an error.
package struct ChatError: Error, Sendable, CustomStringConvertible {
    package enum Code: String, Sendable, Hashable, CaseIterable {
        /// `cmd` is missing or unknown.
        case unknownCommand = "unknown_command"
        /// A required field is missing.
        case missingField = "missing_field"
        /// A field breaks its rule.
        case invalidField = "invalid_field"
        /// The request's body or headers cannot be read.
        case malformedRequest = "malformed_request"
        /// The udid has not joined a room.
        case notJoined = "not_joined"
        /// The requested object does not exist.
        case notFound = "not_found"
        /// The request matches several objects.
        case ambiguous
        /// The request conflicts with stored data.
        case conflict
        /// The `Idempotency-Key` was used before with different content.
        case idempotencyConflict = "idempotency_conflict"
        /// The request lacks valid credentials.
        case unauthorized
        /// The sender may not make this request.
        case forbidden
        case tooLarge = "too_large"
        case unsupportedMediaType = "unsupported_media_type"
        case tooManyRequests = "too_many_requests"
        /// The store cannot accept the request now. Nothing was stored.
        case unavailable
        case internalError = "internal_error"
    }

    package let code: Code
    /// The message for the user, which names the field and the rule. One line of ASCII, because it is also sent in a
    /// header.
    package let message: String
    /// The field's name in the request.
    package let field: String?
    // Not last: with a pointer in the last word, the optimizer of Swift 6.3 merges the store of that word with the one that
    // clears `swifterror`, and then crashes while it splits an asynchronous function that throws typed and other errors.
    /// The messages that the request may mean, if it names several (``Code/conflict``).
    package var ids: [Int64] = []
    /// The time after which a retry makes sense.
    package let retryAfter: Duration?
    /// The cause for the log. It is never shown to the user.
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

    /// `Missing udid`, as in the tutorial's server.
    package static func missing(_ field: String) -> ChatError {
        ChatError(.missingField, "Missing \(field)", field: field)
    }

    /// `Invalid udid: <rule>`: the words of the tutorial's server, and the rule that was broken.
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

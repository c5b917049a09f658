import ChatDomain
import HTTPTypes
import Hummingbird

/// An error with its HTTP status and texts. The only place that maps errors to status codes.
struct ErrorResponse: Error, Sendable {
    let status: HTTPResponse.Status
    /// The error code, for programs.
    let code: String
    /// The error text, for people.
    let message: String
    var field: String?
    /// The messages among which the request must choose. Empty for other errors.
    var ids: [MessageID] = []
    var retryAfter: Duration?
    /// The cause. It is logged and never sent.
    var cause: String?
    /// The value of the `Allow` header. `nil` unless the path exists but does not support the request's method.
    var allow: String?
    /// The error's number in the API's own list, if its form has one. `nil` for the usual number.
    var apiCode: Int?
    /// The status under which the metrics count the response. `nil` for its own. The error is then the client's, whatever
    /// the status.
    var countedStatus: Int?

    init(_ error: any Error) {
        switch error {
        case let error as ErrorResponse: self = error
        case let error as ChatError: self.init(error)
        case let error as HTTPError where error.status == .notFound: self = .notFound
        default: self.init(ChatError(.internalError, "\(error)"))
        }
    }

    private init(_ error: ChatError) {
        status =
            switch error.code {
            case .unknownCommand, .missingField, .invalidField, .malformedRequest: .badRequest
            case .notJoined, .notFound: .notFound
            case .ambiguous, .conflict: .conflict
            case .unauthorized: .unauthorized
            case .forbidden: .forbidden
            case .idempotencyConflict: .unprocessableContent
            case .tooLarge: .contentTooLarge
            case .unsupportedMediaType: .unsupportedMediaType
            case .tooManyRequests: .tooManyRequests
            case .unavailable: .serviceUnavailable
            case .internalError: .internalServerError
            }
        code = error.code.rawValue
        // The description of an internal error is logged and never sent.
        message = error.code == .internalError ? Self.internalMessage : error.message
        field = error.field
        ids = error.ids
        retryAfter = error.retryAfter
        cause = error.code == .internalError ? error.description : error.cause
    }

    init(_ status: HTTPResponse.Status, code: String, message: String) {
        self.status = status
        self.code = code
        self.message = message
    }

    private static let internalMessage = "Internal error; the cause is in the server's log"

    static let notFound = ErrorResponse(.notFound, code: "not_found", message: "There is nothing at this address")

    /// Whether the address itself is unknown, not only the thing that it names.
    var isUnknownAddress: Bool { status == .notFound && message == Self.notFound.message }

    static func methodNotAllowed(allow: String) -> ErrorResponse {
        var response = ErrorResponse(
            .methodNotAllowed, code: "method_not_allowed", message: "This address accepts only \(allow)")
        response.allow = allow
        return response
    }

    /// The headers of every form. `X-Error-Description` repeats the text, because the tutorial's client reads it there.
    var headers: HTTPFields {
        var headers = HTTPFields()
        headers.reserveCapacity(8)
        headers.append(HTTPField(name: .errorDescription, value: line))
        headers.append(HTTPField(name: .cacheControl, value: "no-store"))
        if let allow { headers.append(HTTPField(name: .allow, value: allow)) }
        if let retryAfter {
            headers.append(HTTPField(name: .retryAfter, value: String(Self.wholeSeconds(retryAfter))))
        }
        return headers
    }

    /// Returns the headers, with a challenge if a token is needed. It reports no error to a request without credentials
    /// (RFC 6750 §3.1).
    func headers(challenging request: Request) -> HTTPFields {
        var headers = headers
        guard status == .unauthorized else { return headers }
        let fault = #" error="invalid_token", error_description="\#(line.filter { $0 != "\"" })""#
        let isGiven = request.headers.first(.authorization) != nil
        headers.append(HTTPField(name: .wwwAuthenticate, value: "Bearer" + (isGiven ? fault : "")))
        return headers
    }

    private var line: String { HeaderText.sanitized(message, limit: 1000) }

    /// The members of an RFC 9457 problem.
    var problem: JSONObject {
        var problem: JSONObject = [
            "type": .string("about:blank"), "title": .string(status.reasonPhrase), "status": .number(status.code),
            "detail": .string(message), "code": .string(code),
        ]
        problem["field"] = field.map { .string($0) }
        if !ids.isEmpty { problem["ids"] = .array(ids.map { .number($0) }) }
        return problem
    }

    /// Rounds up to whole seconds, at least 1, so that a client that waits that long is not rejected again.
    static func wholeSeconds(_ duration: Duration) -> Int64 {
        let (seconds, attoseconds) = duration.components
        return max(1, attoseconds > 0 ? seconds + 1 : seconds)
    }
}

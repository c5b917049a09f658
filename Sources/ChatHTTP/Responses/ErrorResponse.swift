import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore

/// An error as HTTP answers it. The one place where errors become status codes.
struct ErrorResponse: Error, Sendable {
    let status: HTTPResponse.Status
    /// For programs.
    let code: String
    /// For people.
    let message: String
    var field: String?
    var retryAfter: Duration?
    /// For the log only.
    var cause: String?
    /// The methods that the path knows, if the request's is not one of them.
    var allow: String?
    /// The request brought no credentials, so that there is no error to report about them (RFC 6750 §3.1).
    var isChallenge = false

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
        // What went wrong inside the server is for the log only.
        message = error.code == .internalError ? Self.internalMessage : error.message
        field = error.field
        retryAfter = error.retryAfter
        cause = error.code == .internalError ? error.description : error.cause
    }

    private init(_ status: HTTPResponse.Status, code: String, message: String) {
        self.status = status
        self.code = code
        self.message = message
    }

    private static let internalMessage = "Internal error; the cause is in the server's log"

    static let notFound = ErrorResponse(.notFound, code: "not_found", message: "There is nothing at this address")

    static func methodNotAllowed(allow: String) -> ErrorResponse {
        var answer = ErrorResponse(
            .methodNotAllowed, code: "method_not_allowed", message: "This address answers only to \(allow)")
        answer.allow = allow
        return answer
    }

    enum Form: Sendable {
        case text, json
        /// RFC 9457.
        case problem
        /// As the servers answer whose clients call.
        case gotify, ntfy
    }

    /// The answer in one of the forms. The text also stands in `X-Error-Description`, where the tutorial's client
    /// and its readers look for it.
    func response(_ form: Form) -> Response {
        let line = HeaderText.sanitized(message, limit: 1000)
        var headers = HTTPFields()
        headers.reserveCapacity(8)
        headers.append(HTTPField(name: .errorDescription, value: line))
        headers.append(HTTPField(name: .cacheControl, value: "no-store"))
        if let allow { headers.append(HTTPField(name: .allow, value: allow)) }
        if let retryAfter {
            headers.append(HTTPField(name: .retryAfter, value: String(Self.wholeSeconds(retryAfter))))
        }
        if status == .unauthorized {
            let fault = #" error="invalid_token", error_description="\#(line.filter { $0 != "\"" })""#
            headers.append(HTTPField(name: .wwwAuthenticate, value: "Bearer" + (isChallenge ? "" : fault)))
        }
        let (text, type) =
            switch form {
            case .text: (message + "\n", Responses.plainText)
            case .json: (json.description, "application/json")
            case .problem: (JSONValue.object(problem).description, "application/problem+json")
            case .gotify: (gotify.description, "application/json")
            case .ntfy: (ntfy.description, "application/json")
            }
        return Responses.text(text, type: type, status: status, headers: headers)
    }

    private var json: JSONValue {
        var error: JSONObject = ["code": .string(code), "message": .string(message)]
        error["field"] = field.map { .string($0) }
        return .object(["error": .object(error)])
    }

    /// Its members as RFC 9457 names them.
    var problem: JSONObject {
        var problem: JSONObject = [
            "type": .string("about:blank"), "title": .string(status.reasonPhrase), "status": .number(status.code),
            "detail": .string(message), "code": .string(code),
        ]
        problem["field"] = field.map { .string($0) }
        return problem
    }

    private var gotify: JSONValue {
        .object([
            "error": .string(status.reasonPhrase), "errorCode": .number(status.code),
            "errorDescription": .string(message),
        ])
    }

    /// Its codes are the status and two digits, of which the first says no more than the status.
    private var ntfy: JSONValue {
        .object([
            "code": .number(status.code * 100 + 1), "http": .number(status.code), "error": .string(message),
        ])
    }

    /// Rounded up, at least 1: a client that waits so long is not refused again.
    static func wholeSeconds(_ duration: Duration) -> Int64 {
        let (seconds, attoseconds) = duration.components
        return max(1, attoseconds > 0 ? seconds + 1 : seconds)
    }
}

import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore

/// An error with its HTTP status and texts. The only place that maps errors to status codes.
struct ErrorResponse: Error, Sendable {
    let status: HTTPResponse.Status
    /// The error code, for programs.
    let code: String
    /// The error text, for people.
    let message: String
    var field: String?
    var retryAfter: Duration?
    /// The cause. It is logged and never sent.
    var cause: String?
    /// The value of the `Allow` header. `nil` unless the path exists but does not support the request's method.
    var allow: String?
    /// ntfy's code. `nil` for the usual code of the status.
    var ntfyCode: Int?
    /// The status under which the metrics count the response. `nil` for its own. The error is then the client's, whatever
    /// the status.
    var countedStatus: Int?
    /// Whether the request had no credentials. The `WWW-Authenticate` header then reports no error (RFC 6750 §3.1).
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
        // The description of an internal error is logged and never sent.
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

    /// Whether the address itself is unknown, not only the thing that it names.
    var isUnknownAddress: Bool { status == .notFound && message == Self.notFound.message }

    /// Servers of apps retry a push after this status. After another, some give up the app.
    ///
    /// - Parameter counted: ``countedStatus``.
    static func insufficientStorage(_ message: String, countedAs counted: Int? = nil) -> ErrorResponse {
        var response = ErrorResponse(
            HTTPResponse.Status(code: 507, reasonPhrase: "Insufficient Storage"), code: "insufficient_storage",
            message: message)
        response.ntfyCode = 50701
        response.countedStatus = counted
        return response
    }

    static func methodNotAllowed(allow: String) -> ErrorResponse {
        var response = ErrorResponse(
            .methodNotAllowed, code: "method_not_allowed", message: "This address accepts only \(allow)")
        response.allow = allow
        return response
    }

    enum Form: Sendable, Equatable {
        case text, json
        /// A page, for browsers that opened an unknown address with this path.
        case page(String)
        /// A problem document (RFC 9457).
        case problem
        /// The error formats of the Gotify and ntfy servers, for their clients.
        case gotify, ntfy
    }

    /// Returns the error as a response in the given form. `X-Error-Description` repeats the text, because the
    /// tutorial's client reads it there.
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
        // ntfy's server sends no such header.
        if status == .unauthorized, form != .ntfy {
            let fault = #" error="invalid_token", error_description="\#(line.filter { $0 != "\"" })""#
            headers.append(HTTPField(name: .wwwAuthenticate, value: "Bearer" + (isChallenge ? "" : fault)))
        }
        let text: String
        var type = "application/json"
        switch form {
        case .page(let path):
            return Responses.html(PlainPage.notFound.html(at: path), status: status, headers: headers)
        case .text: (text, type) = (message + "\n", Responses.plainText)
        case .json: text = json.description
        case .problem: (text, type) = (JSONValue.object(problem).description, "application/problem+json")
        case .gotify: text = gotify.description
        case .ntfy: text = ntfy.description
        }
        return Responses.text(
            text, type: type, status: form == .ntfy ? ntfyStatus : status, headers: headers)
    }

    private var json: JSONValue {
        var error: JSONObject = ["code": .string(code), "message": .string(message)]
        error["field"] = field.map { .string($0) }
        return .object(["error": .object(error)])
    }

    /// The members of an RFC 9457 problem.
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
            "errorDescription": .string(isUnknownAddress ? "page not found" : message),
        ])
    }

    /// An ntfy server answers a call without credentials with 403. Its apps then ask for them.
    private var ntfyStatus: HTTPResponse.Status { status == .unauthorized && isChallenge ? .forbidden : status }

    /// ntfy's error codes are the status and two digits. The first code of a status adds no detail to it, so it fits
    /// every error. Some clients refuse a document with other members.
    private var ntfy: JSONValue {
        let isGuess = status == .tooManyRequests && cause == Limit.wrongTokens.rawValue
        return .object([
            "code": .number(isGuess ? 42909 : ntfyCode ?? ntfyStatus.code * 100 + 1), "http": .number(ntfyStatus.code),
            "error": .string(message),
        ])
    }

    /// Rounds up to whole seconds, at least 1, so that a client that waits that long is not rejected again.
    static func wholeSeconds(_ duration: Duration) -> Int64 {
        let (seconds, attoseconds) = duration.components
        return max(1, attoseconds > 0 ? seconds + 1 : seconds)
    }
}

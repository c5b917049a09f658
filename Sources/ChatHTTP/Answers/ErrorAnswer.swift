import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore

/// An error as HTTP says it. The one place where errors become status codes.
struct ErrorAnswer: Error, Sendable {
    let status: HTTPResponse.Status
    /// For programs.
    let code: String
    /// For people.
    let message: String
    var field: String?
    var retryAfter: Duration?
    /// For the log only.
    var cause: String?
    /// The methods that the path knows, when the request's is none of them.
    var allow: String?
    /// The request brought no credentials, of which something could be wrong (RFC 6750 §3.1).
    var isChallenge = false

    init(_ error: ChatError) {
        status =
            switch error.code {
            case .unknownCommand, .missingField, .invalidField, .malformedRequest: .badRequest
            case .notJoined, .notFound: .notFound
            case .ambiguous: .conflict
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
        // What went wrong inside is nobody's business outside.
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

    private static let internalMessage = "Something went wrong inside the server; the log knows more"

    static let notFound = ErrorAnswer(.notFound, code: "not_found", message: "There is nothing at this address")

    static func methodNotAllowed(allow: String) -> ErrorAnswer {
        var answer = ErrorAnswer(
            .methodNotAllowed, code: "method_not_allowed", message: "This address answers only to \(allow)")
        answer.allow = allow
        return answer
    }

    static func unexpected(_ error: any Error) -> ErrorAnswer {
        var answer = ErrorAnswer(
            .internalServerError, code: ChatError.Code.internalError.rawValue, message: internalMessage)
        answer.cause = "\(error)"
        return answer
    }

    /// The forms in which an error is answered.
    enum Form: Sendable {
        case text, json
        /// RFC 9457.
        case problem
    }

    /// The answer in one of the forms. The text also stands in `X-Error-Description`, where the tutorial's client
    /// and its readers look for it.
    func response(_ form: Form) -> Response {
        let line = HeaderText.sanitized(message, limit: 1000)
        var headers = HTTPFields()
        headers.reserveCapacity(8)
        headers.append(HTTPField(name: .errorDescription, value: line))
        headers.append(Answers.notStored)
        if let allow { headers.append(HTTPField(name: .allow, value: allow)) }
        if let retryAfter {
            headers.append(HTTPField(name: .retryAfter, value: String(Self.wholeSeconds(retryAfter))))
        }
        if status == .unauthorized {
            let fault = #" error="invalid_token", error_description="\#(line.filter { $0 != "\"" })""#
            headers.append(HTTPField(name: .wwwAuthenticate, value: "Bearer" + (isChallenge ? "" : fault)))
        }
        switch form {
        case .text: return Answers.text(message + "\n", status: status, headers: headers)
        case .json: return Answers.json(json, status: status, headers: headers)
        case .problem: return Answers.problem(problem, status: status, headers: headers)
        }
    }

    private var json: JSONText {
        var json = JSONText()
        json.raw(#"{"error":{"code":"#)
        json.string(code)
        json.raw(#","message":"#)
        json.string(message)
        if let field {
            json.raw(#","field":"#)
            json.string(field)
        }
        json.raw("}}")
        return json
    }

    private var problem: JSONText {
        var json = JSONText()
        json.raw(#"{"type":"about:blank","title":"#)
        json.string(status.reasonPhrase)
        json.raw(#","status":\#(status.code),"detail":"#)
        json.string(message)
        json.raw(#","code":"#)
        json.string(code)
        if let field {
            json.raw(#","field":"#)
            json.string(field)
        }
        json.raw("}")
        return json
    }

    /// Rounded up, at least 1: a client that waits so long does not come too early.
    static func wholeSeconds(_ duration: Duration) -> Int64 {
        let (seconds, attoseconds) = duration.components
        return max(1, attoseconds > 0 ? seconds + 1 : seconds)
    }
}

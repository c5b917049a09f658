import ChatDomain
import HTTPTypes
import Hummingbird

/// The form in which an API writes its errors.
protocol ErrorForm: Sendable {
    func response(_ error: ErrorResponse, to request: Request) -> Response
}

/// The chat API's form: text, or JSON for clients that accept it.
struct ChatErrors: ErrorForm {
    func response(_ error: ErrorResponse, to request: Request) -> Response {
        guard Responses.wantsJSON(request.headers) else {
            return Responses.text(
                error.message + "\n", type: Responses.plainText, status: error.status,
                headers: error.headers(challenging: request))
        }
        return Self.json(error, to: request)
    }

    static func json(_ error: ErrorResponse, to request: Request) -> Response {
        var object: JSONObject = ["code": .string(error.code), "message": .string(error.message)]
        object["field"] = error.field.map { .string($0) }
        return Responses.json(
            ["error": .object(object)], status: error.status, headers: error.headers(challenging: request))
    }
}

/// Problem documents (RFC 9457).
struct ProblemErrors: ErrorForm {
    func response(_ error: ErrorResponse, to request: Request) -> Response {
        Responses.text(
            JSONValue.object(error.problem).description, type: "application/problem+json", status: error.status,
            headers: error.headers(challenging: request))
    }
}

/// A page, for browsers that opened an unknown address.
struct PageErrors: ErrorForm {
    func response(_ error: ErrorResponse, to request: Request) -> Response {
        Responses.html(PlainPage.notFound.html(at: request.uri.path), status: error.status, headers: error.headers)
    }
}

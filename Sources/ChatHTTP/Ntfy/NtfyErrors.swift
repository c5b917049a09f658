import ChatDomain
import HTTPTypes
import Hummingbird

/// An ntfy server's form of errors.
struct NtfyErrors: ErrorForm {
    /// An ntfy server rejects a call without credentials with 403. Its apps then ask for them. It never sends
    /// `WWW-Authenticate`. Some clients reject a document with other members.
    func response(_ error: ErrorResponse, to request: Request) -> Response {
        let isChallenge = error.status == .unauthorized && NtfyAPI.isAnonymous(request)
        let status = isChallenge ? .forbidden : error.status
        let document: JSONObject = [
            "code": .number(Self.code(error) ?? Self.firstCode(of: status)), "http": .number(status.code),
            "error": .string(error.message),
        ]
        return Responses.json(document, status: status, headers: error.headers)
    }

    /// ntfy's error codes are the status and two digits. The first code of a status adds no detail to it, so it fits
    /// every error.
    static func firstCode(of status: HTTPResponse.Status) -> Int { status.code * 100 + 1 }

    /// Returns ntfy's code of an error. `nil` for the first code of its status.
    private static func code(_ error: ErrorResponse) -> Int? {
        if let code = error.apiCode { return code }
        return switch (ChatError.Code(rawValue: error.code), error.field) {
        case (.tooManyRequests, _) where error.cause == Limit.wrongTokens.rawValue: 42909
        case (.missingField, let field), (.invalidField, let field):
            switch field {
            case "delay": 40004
            case "priority": 40007
            case "since": 40008
            case "topic": 40010
            case "topics": 40009
            case "text": 40011
            case "upgrade": 40016
            case "template": 40047
            case "sequence_id": 40049
            default: 40000
            }
        // Without a field, the body is malformed.
        case (.malformedRequest, nil): 40024
        default: nil
        }
    }
}

import ChatDomain
import Hummingbird

/// A Gotify server's form of errors.
struct GotifyErrors: ErrorForm {
    func response(_ error: ErrorResponse, to request: Request) -> Response {
        Responses.json(
            [
                "error": .string(error.status.reasonPhrase), "errorCode": .number(error.status.code),
                "errorDescription": .string(error.isUnknownAddress ? "page not found" : error.message),
            ], status: error.status, headers: error.headers(challenging: request))
    }
}

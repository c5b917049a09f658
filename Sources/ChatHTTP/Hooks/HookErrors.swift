import ChatDomain
import ChatHooks
import HTTPTypes
import Hummingbird

/// The errors of webhooks, in the form that the format's senders know.
struct HookErrors: ErrorForm {
    func response(_ error: ErrorResponse, to request: Request) -> Response {
        let name = request.uri.path.split(separator: "/").last.map { String($0) }
        let code = ChatError.Code(rawValue: error.code) ?? .internalError
        let known = ChatError(code, error.message, field: error.field, retryAfter: error.retryAfter)
        guard let format = name.flatMap(HookFormats.named),
            let answer = format.refused(known, status: error.status.code)
        else { return ProblemErrors().response(error, to: request) }
        return Response(answer, headers: error.headers)
    }
}

extension Response {
    init(_ answer: HookAnswer, headers: HTTPFields = Responses.noStore) {
        var headers = headers
        headers[.contentType] = answer.contentType
        self.init(
            status: HTTPResponse.Status(code: answer.status), headers: headers,
            body: ResponseBody(byteBuffer: ByteBuffer(string: answer.body)))
    }
}

import Foundation
import Hummingbird
import NIOCore

/// A request to the control API that is refused; the text names the field and the rule.
struct ControlError: Error, HTTPResponseError {
    var status: HTTPResponse.Status
    var text: String

    init(_ status: HTTPResponse.Status = .badRequest, _ text: String) {
        self.status = status
        self.text = text
    }

    func response(from request: Request, context: some RequestContext) throws -> Response {
        try Response.json(ControlErrorBody(error: text), status: status)
    }
}

/// The body of every refusal.
struct ControlErrorBody: Encodable {
    var error: String
}

/// Makes JSON of every error, those of the router too. This is the only place where errors become statuses.
struct ControlErrorMiddleware<Context: RequestContext>: RouterMiddleware {
    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        do {
            return try await next(request, context)
        } catch let error as ControlError {
            return try error.response(from: request, context: context)
        } catch is NIOTooManyBytesError {
            let text = "the body is longer than \(ControlAPI.bodyLimit) bytes"
            return try ControlError(.contentTooLarge, text).response(from: request, context: context)
        } catch let error as any HTTPResponseError where error.status == .notFound {
            let text = "there is no \(request.method.rawValue) \(request.uri.path); GET / lists the calls"
            return try ControlError(.notFound, text).response(from: request, context: context)
        } catch let error as any HTTPResponseError {
            return try ControlError(error.status, error.status.reasonPhrase)
                .response(from: request, context: context)
        } catch {
            context.logger.error("Control request failed", metadata: ["error": "\(error)"])
            return try ControlError(.internalServerError, "the sandbox failed; its log says why")
                .response(from: request, context: context)
        }
    }
}

extension Response {
    /// JSON with a status; never stored by anybody.
    static func json(_ value: some Encodable, status: HTTPResponse.Status = .ok) throws -> Response {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let body = ByteBuffer(bytes: try encoder.encode(value))
        return Response(
            status: status,
            headers: [
                .contentType: "application/json; charset=utf-8", .cacheControl: "no-store",
                .xContentTypeOptions: "nosniff",
            ],
            body: .init(byteBuffer: body))
    }
}

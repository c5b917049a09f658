import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import NIOHTTP1

/// Around every request: gives it an id, turns errors into answers, sets what every answer carries.
struct AnswerMiddleware: RouterMiddleware {
    typealias Context = ChatContext

    let logger: Logger

    private static let noSniff = HTTPField(name: .xContentTypeOptions, value: "nosniff")

    func handle(
        _ request: Request, context: ChatContext, next: (Request, ChatContext) async throws -> Response
    ) async throws -> Response {
        var context = context
        context.requestID = Self.sane(request.headers.first(.requestID)) ?? context.id
        var response: Response
        do {
            response = try await next(request, context)
        } catch let error as HTTPParserError {
            // The connection's own affair: it answers 400 and closes.
            throw error
        } catch let error as ChatError {
            response = refuse(ErrorAnswer(error), request, context)
        } catch let error as ErrorAnswer {
            response = refuse(error, request, context)
        } catch let error as HTTPError where error.status == .notFound {
            response = refuse(.notFound, request, context)
        } catch {
            response = refuse(.unexpected(error), request, context)
        }
        response.headers.append(HTTPField(name: .requestID, value: context.requestID))
        response.headers.append(Self.noSniff)
        return request.method == .head ? response.createHeadResponse() : response
    }

    private func refuse(_ answer: ErrorAnswer, _ request: Request, _ context: ChatContext) -> Response {
        if answer.status.code >= 500 {
            logger.error(
                "request failed",
                metadata: [
                    LogKeys.requestID: "\(context.requestID)", LogKeys.path: "\(Self.path(request))",
                    LogKeys.status: "\(answer.status.code)", LogKeys.code: "\(answer.code)",
                    LogKeys.cause: "\(answer.cause ?? answer.message)",
                ])
        } else {
            logger.debug(
                "request refused",
                metadata: [
                    LogKeys.requestID: "\(context.requestID)", LogKeys.path: "\(Self.path(request))",
                    LogKeys.status: "\(answer.status.code)", LogKeys.reason: "\(answer.message)",
                ])
        }
        var answer = answer
        answer.isChallenge = request.headers.first(.authorization) == nil
        if Self.isForPrograms(request.uri.path) { return answer.response(.problem) }
        return answer.response(Answers.wantsJSON(request.headers) ? .json : .text)
    }

    /// The provider API, whose errors have a form of their own.
    private static func isForPrograms(_ path: String) -> Bool {
        let parts = path.split(separator: "/")
        return parts.first == "v1" || parts == ["metrics"]
    }

    /// Without the query, in which a client might have put anything.
    private static func path(_ request: Request) -> String {
        HeaderText.sanitized(request.uri.path, limit: 100)
    }

    /// An id that the client gave, if it can stand in a log line and is not too long.
    private static func sane(_ id: String?) -> String? {
        guard let id, (1...HTTPLimits.requestID).contains(id.utf8.count),
            id.utf8.allSatisfy({ byte in
                switch byte {
                case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "A")...UInt8(ascii: "Z"):
                    true
                case UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."), UInt8(ascii: ":"), UInt8(ascii: "/"),
                    UInt8(ascii: "+"), UInt8(ascii: "="), UInt8(ascii: "@"):
                    true
                default: false
                }
            })
        else { return nil }
        return id
    }
}

import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import NIOHTTP1

/// Around every request: gives it an id, answers and logs errors, sets the headers that every answer has.
struct AnswerMiddleware: RouterMiddleware {
    typealias Context = ChatContext

    let settings: @Sendable () -> ChatHTTPSettings
    let logger: Logger

    private static let noSniff = HTTPField(name: .xContentTypeOptions, value: "nosniff")
    private static let requestIDCharacters = Set(
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:/+=@".utf8)

    func handle(
        _ request: Request, context: ChatContext, next: (Request, ChatContext) async throws -> Response
    ) async throws -> Response {
        var context = context
        context.requestID = Self.validRequestID(request.headers) ?? context.id
        var response: Response
        do {
            response = try await next(request, context)
        } catch let error as HTTPParserError {
            // The connection's handler answers 400 and closes.
            throw error
        } catch {
            response = refuse(ErrorAnswer(error), request, context)
        }
        response.headers.append(HTTPField(name: .requestID, value: context.requestID))
        response.headers.append(Self.noSniff)
        return request.method == .head ? response.createHeadResponse() : response
    }

    private func refuse(_ answer: ErrorAnswer, _ request: Request, _ context: ChatContext) -> Response {
        let isForAdmin = Self.isForAdmin(request.uri.path)
        var metadata: Logger.Metadata = [
            LogKeys.requestID: "\(context.requestID)",
            // The route's pattern: the path may hold a whole token, the query a udid.
            LogKeys.route: "\(context.endpointPath ?? "")",
            LogKeys.status: "\(answer.status.code)",
        ]
        if answer.status.code >= 500 {
            metadata[LogKeys.code] = "\(answer.code)"
            metadata[LogKeys.cause] = "\(answer.cause ?? answer.message)"
            logger.error("request failed", metadata: metadata)
        } else {
            metadata[LogKeys.reason] = "\(answer.message)"
            if isForAdmin, answer.status == .unauthorized || answer.status == .forbidden {
                let client = ClientAddress.find(request, context, trusted: settings().trustedProxies)
                metadata[LogKeys.address] = "\(client?.description ?? "unknown")"
                logger.notice("call of the admin API refused", metadata: metadata)
            } else {
                logger.debug("request refused", metadata: metadata)
            }
        }
        var answer = answer
        answer.isChallenge = request.headers.first(.authorization) == nil
        return answer.response(isForAdmin ? .problem : Answers.wantsJSON(request.headers) ? .json : .text)
    }

    /// Whether a path belongs to the admin API, whose errors have a form of their own.
    private static func isForAdmin(_ path: String) -> Bool {
        let parts = path.split(separator: "/")
        return parts.first == "v1" || parts == ["metrics"] || parts == ["readyz"]
    }

    /// The id that the client gave; nil if it is too long or has characters that do not belong into a log line.
    private static func validRequestID(_ headers: HTTPFields) -> String? {
        guard let id = headers.first(.requestID), (1...HTTPLimits.requestID).contains(id.utf8.count),
            id.utf8.allSatisfy(requestIDCharacters.contains)
        else { return nil }
        return id
    }
}

import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import NIOHTTP1
import Synchronization

/// Around every request: gives it an id, answers and logs errors, sets the headers that every answer has.
struct ResponseMiddleware: RouterMiddleware {
    typealias Context = ChatContext

    let settings: @Sendable () -> ChatHTTPSettings
    let unavailable: RepeatedRefusals
    let metrics: HTTPMetrics
    let logger: Logger

    private static let noHost = ChatError(
        .malformedRequest, "Host: a request must have this header once (RFC 9112, 3.2)", field: "Host")
    private static let noSniff = HTTPField(name: .xContentTypeOptions, value: "nosniff")

    func handle(
        _ request: Request, context: ChatContext, next: (Request, ChatContext) async throws -> Response
    ) async throws -> Response {
        var context = context
        context.ids = RequestIDs(request.headers, otherwise: context.id)
        context.received = metrics.clock.now()
        var response: Response
        do {
            guard request.head.authority != nil else { throw Self.noHost }
            response = try await next(request.continued(on: context.channel), context)
        } catch let error as HTTPParserError {
            // The connection's handler answers 400 and closes.
            metrics.answered(context.endpointPath, request.method, 400)
            throw error
        } catch {
            response = refuse(ErrorResponse(error), request, context)
        }
        metrics.answered(context.endpointPath, request.method, response.status.code)
        response.headers.append(HTTPField(name: .requestID, value: context.ids.request))
        response.headers.append(Self.noSniff)
        return request.method == .head ? response.createHeadResponse() : response
    }

    private func refuse(_ answer: ErrorResponse, _ request: Request, _ context: ChatContext) -> Response {
        let form = Self.form(request)
        if answer.status == .contentTooLarge { metrics.limits.hit(.body) }
        var metadata = context.ids.metadata([
            // The route's pattern: the path may hold a whole token, the query a udid.
            LogKeys.route: "\(context.endpointPath ?? "")",
            LogKeys.status: "\(answer.status.code)",
        ])
        if answer.status.code >= 500 {
            metadata[LogKeys.code] = "\(answer.code)"
            metadata[LogKeys.cause] = "\(answer.cause ?? answer.message)"
            // A fault of the relay is told each time, what is only not possible now once for many.
            let count = answer.status == .serviceUnavailable ? unavailable.count(answer.message) : 1
            if let count, count > 1 { metadata[LogKeys.count] = "\(count)" }
            logger.log(level: count == nil ? .debug : .error, "request failed", metadata: metadata)
        } else {
            metadata[LogKeys.reason] = "\(answer.message)"
            if form != .text, form != .json, answer.status == .unauthorized || answer.status == .forbidden {
                let client = ClientAddress.find(request, context, trusted: settings().trustedProxies)
                metadata[LogKeys.address] = "\(client?.description ?? "unknown")"
                logger.notice("call of the admin API refused", metadata: metadata)
            } else {
                logger.debug("request refused", metadata: metadata)
            }
        }
        var answer = answer
        answer.isChallenge = request.headers.first(.authorization) == nil
        return answer.response(form)
    }

    /// The form of errors: the admin API has one of its own, and other servers' clients know theirs.
    private static func form(_ request: Request) -> ErrorResponse.Form {
        let parts = request.uri.path.split(separator: "/")
        switch parts.first {
        case "v1": return .problem
        case "metrics" where parts.count == 1, "readyz" where parts.count == 1: return .problem
        case "gotify": return .gotify
        case "ntfy": return .ntfy
        case nil where request.method == .post: return .ntfy
        default: return Responses.wantsJSON(request.headers) ? .json : .text
        }
    }
}

/// Decides which of many equal failures the log shows: the first at once, then one per interval, with the number of failures
/// since the last line.
final class RepeatedRefusals: Sendable {
    /// Kinds are few, and there is a limit all the same: those above it count as one.
    private static let kinds = 16

    private let told = Mutex<[String: (time: Duration, untold: Int)]>([:])
    private let interval: Duration
    private let clock: MonotonicTime

    init(interval: Duration = HTTPLimits.refusalReports, clock: MonotonicTime) {
        self.interval = interval
        self.clock = clock
    }

    /// - Returns: how many failures to log, this one included; `nil` if the log shows none now.
    func count(_ kind: String) -> Int? {
        let now = clock.now()
        return told.withLock { told in
            let kind = told[kind] == nil && told.count >= Self.kinds ? "" : kind
            let (time, untold) = told[kind] ?? (now - interval, 0)
            let isDue = now - time >= interval
            told[kind] = isDue ? (now, 0) : (time, untold + 1)
            return isDue ? untold + 1 : nil
        }
    }

    /// The failure is over, so that the log shows the next one at once.
    ///
    /// - Returns: whether there was a failure.
    func end(_ kind: String) -> Bool {
        told.withLock { $0.removeValue(forKey: kind) != nil }
    }
}

import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import NIOHTTP1
import Synchronization

/// Wraps every request: assigns its ids, turns errors into responses and logs them, and sets the headers that all
/// responses share.
struct ResponseMiddleware: RouterMiddleware {
    typealias Context = ChatContext

    let environment: ChatEnvironment
    let unavailable: RepeatedRejections
    let limiter: RequestLimiter
    let metrics: HTTPMetrics
    let groups: RouteGroups

    private static let noHost = ChatError(
        .malformedRequest, "Host: a request must have this header once (RFC 9112, 3.2)", field: "Host")
    private static let noSniff = HTTPField(name: .xContentTypeOptions, value: "nosniff")

    func handle(
        _ request: Request, context: ChatContext, next: (Request, ChatContext) async throws -> Response
    ) async throws -> Response {
        let request = request.with(method: context.method)
        var context = context
        context.ids = RequestIDs(request.headers, otherwise: context.id)
        context.received = metrics.clock.now()
        var response: Response
        var countedStatus: Int?
        var group: RouteGroup { groups.group(of: request, at: context.endpointPath) }
        do {
            guard request.head.authority != nil else { throw Self.noHost }
            response = try await next(request.continued(on: context.channel), context)
        } catch let error as HTTPParserError {
            // The connection's handler responds with 400 and closes the connection.
            metrics.record(context.endpointPath, request.method, 400)
            throw error
        } catch {
            let error = ErrorResponse(error)
            countedStatus = error.countedStatus
            response = reject(error, of: group, request, context)
        }
        metrics.record(context.endpointPath, request.method, countedStatus ?? response.status.code)
        if group.admitsOtherSites { response.headers[.accessControlAllowOrigin] = "*" }
        response.headers.append(HTTPField(name: .requestID, value: context.ids.request))
        response.headers.append(Self.noSniff)
        return request.method == .head ? response.createHeadResponse() : response
    }

    private func reject(
        _ error: ErrorResponse, of group: RouteGroup, _ request: Request, _ context: ChatContext
    ) -> Response {
        if error.status == .contentTooLarge { metrics.limits.hit(.body) }
        var metadata = context.ids.metadata([
            // Log the route's pattern, because the path may contain a whole token, and the query a udid.
            LogKeys.route: "\(context.endpointPath ?? "")",
            LogKeys.status: "\(error.status.code)",
        ])
        if error.status.code >= 500, error.countedStatus == nil {
            metadata[LogKeys.code] = "\(error.code)"
            metadata[LogKeys.cause] = "\(error.cause ?? error.message)"
            // Log every internal error. Log temporary unavailability (503, 507) once per interval, with the number of
            // failures.
            let count = error.status == .internalServerError ? 1 : unavailable.count(error.message)
            if let count, count > 1 { metadata[LogKeys.count] = "\(count)" }
            environment.logger.log(level: count == nil ? .debug : .error, "request failed", metadata: metadata)
        } else {
            metadata[LogKeys.reason] = "\(error.message)"
            if group.name != nil, error.status == .unauthorized || error.status == .forbidden {
                let client = ClientAddress.find(request, context, trusted: environment.settings.trustedProxies)
                metadata[LogKeys.address] = "\(client?.description ?? "unknown")"
                // The name of the token, if the request names it but does not prove more.
                metadata[LogKeys.caller] = error.cause.map { "\($0)" }
                environment.logger.log(
                    level: limiter.mayReportRejection(client) ? .notice : .debug, group.rejection, metadata: metadata)
            } else {
                environment.logger.debug("request refused", metadata: metadata)
            }
        }
        let form = error.isUnknownAddress && Responses.wantsPage(request) ? PageErrors() : group.errors
        return form.response(error, to: request)
    }
}

import ChatDomain
import HTTPTypes
import Hummingbird
import Synchronization

/// The calls with which other apps' servers push to ntfy's app for Android (https://unifiedpush.org). They need no
/// token: only the app and its server know the topic.
struct UnifiedPushAPI: Sendable {
    /// The path of the gateway for servers of Matrix.
    static let matrixPath = "/_matrix/push/v1/notify"

    let environment: ChatEnvironment
    let limiter: RequestLimiter
    private let rates = TopicRates()

    init(environment: ChatEnvironment, limiter: RequestLimiter) {
        self.environment = environment
        self.limiter = limiter
    }

    /// The routes. They come before those of ``NtfyAPI``, which have the same paths.
    var routes: [Route] {
        let path = "/ntfy/{topic}"
        let isPush: @Sendable (Request) -> Bool = { [environment] request in
            environment.settings.ntfy.unifiedPush && NtfyAPI.isAnonymous(request)
                && UnifiedPushTopic(Self.lastName(of: request)) != nil
        }
        return [
            NtfyAPI.route(.post, path, .anyone, when: isPush, push),
            NtfyAPI.route(.put, path, .anyone, when: isPush, push),
            NtfyAPI.route(.get, path, .anyone, discover),
            NtfyAPI.route(.get, "/ntfy" + Self.matrixPath, .anyone, discoverMatrix),
            NtfyAPI.route(.post, "/ntfy" + Self.matrixPath, .anyone, pushFromMatrix),
        ]
    }

    private static func lastName(of request: Request) -> Substring {
        request.uri.path.split(separator: "/").last ?? ""
    }

    private func requireOn() throws {
        guard environment.settings.ntfy.unifiedPush else { throw ErrorResponse.notFound }
    }

    // MARK: - Discovery

    /// `GET /ntfy/{topic}?up=1`
    func discover(_ request: Request, _ context: ChatContext) async throws -> Response {
        try requireOn()
        guard Self.asksForUnifiedPush(request) else { throw ErrorResponse.notFound }
        return Responses.json(["unifiedpush": .object(["version": .number(1)])])
    }

    /// Whether a request has ntfy's parameter `unifiedpush`.
    static func asksForUnifiedPush(_ request: Request) -> Bool { NtfyParameters(request).flag(.unifiedPush) }

    /// `GET /ntfy/_matrix/push/v1/notify`
    func discoverMatrix(_ request: Request, _ context: ChatContext) async throws -> Response {
        try requireOn()
        _ = try baseURL()
        return Responses.json(["unifiedpush": .object(["gateway": .string("matrix")])])
    }

    private func baseURL() throws -> String {
        guard let url = environment.settings.ntfy.baseURL else {
            var error = ErrorResponse(ChatError(.internalError, "ntfy.base_url is not set"))
            error.apiCode = 50003
            throw error
        }
        return url
    }

    // MARK: - Pushes

    /// `POST` or `PUT /ntfy/{topic}` without credentials
    func push(_ request: Request, _ context: ChatContext) async throws -> Response {
        guard let topic = UnifiedPushTopic(Self.lastName(of: request)) else { throw ErrorResponse.notFound }
        let address = try limiter.admit(request, context, environment.settings)
        try admit(topic)
        let body = try await RequestBody.read(request, limit: UnifiedPushLimits.body)
        let id = try await store(body, topic, from: address, context)
        let message = Message(UnifiedPushMessage(id: id, body: body, sentAt: environment.now()))
        let (text, isEncoded) = message.pushBody ?? (message.text, true)
        var response: JSONObject = [
            "id": .string(NtfyMessageID.text(id)), "time": .number(message.sentAt.seconds),
            "event": .string("message"), "topic": .string(topic.text), "message": .string(text),
        ]
        if isEncoded { response["encoding"] = .string("base64") }
        return Responses.json(response)
    }

    private func admit(_ topic: UnifiedPushTopic) throws(ChatError) {
        if let wait = rates.admit(topic, at: environment.clocks.monotonic.now()) {
            throw ChatError(.tooManyRequests, "Too many pushes for this topic", retryAfter: wait)
        }
    }

    /// A topic without a subscriber counts like another rejected call without a token. The response is the same for a
    /// room, and a server error, because the servers of apps forget a phone after a client's error.
    private func store(
        _ body: [UInt8], _ topic: UnifiedPushTopic, from address: IPAddress?, _ context: ChatContext
    ) async throws -> MessageID {
        switch try await environment.stores.unifiedPush.post(body, to: topic) {
        case .stored(let id):
            environment.logger.debug(
                "push accepted", metadata: context.ids.metadata([LogKeys.message: "\(id)"]))
            return id
        case .noOwner:
            try limiter.countMissingToken(address)
            // Every app that was removed causes this, and anyone can.
            throw Self.insufficientStorage("No app has subscribed to this topic", countedAs: 404)
        case .full:
            throw Self.insufficientStorage("Too many pushes wait for apps that are offline")
        }
    }

    /// Servers of apps retry a push after this status. After another, some give up the app.
    ///
    /// - Parameter counted: ``ErrorResponse/countedStatus``.
    private static func insufficientStorage(_ message: String, countedAs counted: Int? = nil) -> ErrorResponse {
        var response = ErrorResponse(
            HTTPResponse.Status(code: 507, reasonPhrase: "Insufficient Storage"), code: "insufficient_storage",
            message: message)
        response.apiCode = 50701
        response.countedStatus = counted
        return response
    }

    /// `POST /ntfy/_matrix/push/v1/notify`
    ///
    /// A Matrix server names the endpoint in the body, and the whole body is the push.
    func pushFromMatrix(_ request: Request, _ context: ChatContext) async throws -> Response {
        try requireOn()
        let baseURL = try baseURL()
        let address = try limiter.admit(request, context, environment.settings)
        let body = try await RequestBody.read(request, limit: UnifiedPushLimits.body)
        let notification = (try? JSONValue(parsing: body, isLenient: true))?
            .object?["notification"]?.object
        guard let key = notification?["devices"]?.array?.first?.object?["pushkey"]?.text else {
            var error = ErrorResponse(ChatError(.malformedRequest, "The body must be a notification of Matrix"))
            error.apiCode = 40019
            throw error
        }
        guard let topic = Self.topic(of: key, below: baseURL) else {
            return Responses.json(["rejected": .texts([key])])
        }
        try admit(topic)
        _ = try await store(body, topic, from: address, context)
        return Responses.json(["rejected": .array([])])
    }

    /// Returns the topic of an endpoint. `nil` for one of another server.
    static func topic(of endpoint: String, below baseURL: String) -> UnifiedPushTopic? {
        guard endpoint.hasPrefix(baseURL + "/") else { return nil }
        return UnifiedPushTopic(endpoint.dropFirst(baseURL.count + 1).prefix { $0 != "?" })
    }
}

/// The rate limit of pushes to each topic.
private final class TopicRates: Sendable {
    private let limiter = Mutex(RateLimiter<UnifiedPushTopic>())

    /// Returns the time to wait, or `nil` if a push is allowed.
    func admit(_ topic: UnifiedPushTopic, at now: Duration) -> Duration? {
        limiter.withLock { $0.admit(topic, limit: HTTPLimits.pushesPerTopic, at: now) }
    }
}

import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore

/// ntfy's calls with which apps subscribe to topics (https://docs.ntfy.sh/subscribe/api).
extension NtfyAPI {
    var subscribing: [Route] {
        NtfyFormat.Form.allCases.map { form in
            // HEAD would open a stream without reading it.
            Self.route(.get, "/ntfy/{topic}/\(form.rawValue)", .client(.read), servesHead: false) { request, context in
                try await subscribe(as: form, request, context)
            }
        } + [Self.route(.get, "/ntfy/{topic}/auth", .client(.read), authorize)]
    }

    // MARK: - Topics

    /// Returns the topics in the path, if the caller may read them all.
    private func topics(_ context: ChatContext, from address: IPAddress?) async throws -> NtfyTopics {
        let text = try Self.topic(context)
        guard NtfyTopics.areNames(text[...]) else { throw ErrorResponse.notFound }
        let names = text.split(separator: ",").map { String($0) }
        guard names.count <= NtfyTopics.most, !names.contains("v1") else {
            throw ChatError.invalid("topics", "must be at most \(NtfyTopics.most), without v1, which is reserved")
        }
        var aliased: [String: SecretCode] = [:]
        for name in names {
            aliased[name] = try await environment.stores.clients.room(aliased: RoomAlias(stored: name))
        }
        // The rejection follows all lookups, so that its time does not depend on which topic exists.
        let caller = try context.caller()
        let pushTopics = try await pushTopics(among: names.filter { aliased[$0] == nil }, of: caller, from: address)
        let topics = names.map { name in
            let topic = UnifiedPushTopic(name).flatMap { pushTopics.contains($0) ? $0 : nil }
            let source = topic.map(StreamSource.topic) ?? .room(aliased[name] ?? SecretCode(stored: name))
            return NtfyTopics.Topic(source: source, name: name, isAlias: aliased[name] != nil)
        }
        guard topics.allSatisfy({ $0.source.room.map(caller.reads) ?? true }) else { throw Self.forbidden }
        return NtfyTopics(text: text, topics)
    }

    /// `GET /ntfy/{topics}/auth`
    func authorize(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try await topics(context, from: try limiter.admit(request, context, environment.settings))
        return Responses.json(["success": .bool(true)])
    }

    // MARK: - Subscriptions

    /// `GET /ntfy/{topics}/json`, `sse`, `raw` and `ws`
    private func subscribe(
        as form: NtfyFormat.Form, _ request: Request, _ context: ChatContext
    ) async throws -> Response {
        let address = try limiter.admit(request, context, environment.settings)
        let (topics, caller) = (try await topics(context, from: address), try context.caller())
        let parameters = NtfyParameters(request)
        let isPoll = parameters.flag(.poll)
        let since = try NtfySince(parameters[.since], isPoll: isPoll, now: environment.now())
        let format = NtfyFormat(
            form: form, topics: topics, filter: try NtfyFilter(parameters, since: since.time),
            isPhone: Self.isPhone(request), now: environment.now)
        if caller != .administrator { try limiter.admit(caller.reader, limit: environment.settings.memberRate) }
        if form == .webSocket { try Self.requireUpgrade(request, isPoll: isPoll) }
        // Before the messages are read: those that come in between are in the response, or are announced.
        if isPoll { await recordPoll(of: topics) }
        let subscription = try await NtfySubscription(since, of: topics, format.filter, caller, environment.stores)
        if isPoll {
            let waiting =
                parameters.flag(.scheduled) && since.includesEarlier ? try await messagesForLater(in: topics) : []
            return try await poll(subscription, then: waiting, format, caller)
        }
        return try stream(subscription, format, caller, address, request, context)
    }

    /// Whether the client is ntfy's app for iPhones: `ntfy/1.8.0 (build 42; iOS 19.0)`.
    private static func isPhone(_ request: Request) -> Bool {
        request.headers.first(.userAgent).map { $0.hasPrefix("ntfy/") && $0.contains("iOS") } ?? false
    }

    private static func requireUpgrade(_ request: Request, isPoll: Bool) throws(ChatError) {
        guard request.asksForWebSocket else {
            throw .invalid("upgrade", "must be websocket")
        }
        guard !isPoll else { throw .invalid("poll", "is only for json, sse and raw") }
    }

    /// Records that an app polls, so that an upstream server announces messages from now on.
    private func recordPoll(of topics: NtfyTopics) async {
        guard environment.settings.ntfy.hasUpstream else { return }
        for topic in topics.all where topic.isAlias {
            guard let room = topic.source.room else { continue }
            do throws(ChatError) {
                try await environment.stores.pollRequests.polled(room)
            } catch {
                environment.logger.warning("a poll was not recorded", metadata: [LogKeys.cause: "\(error)"])
            }
        }
    }

    private func stream(
        _ subscription: NtfySubscription, _ format: NtfyFormat, _ caller: Caller, _ address: IPAddress?,
        _ request: Request, _ context: ChatContext
    ) throws -> Response {
        guard caller != .administrator, let secret = Self.credential(request) else {
            throw ChatError(.forbidden, "A stream needs a token of the relay (pushchat token) or an app's credential")
        }
        do throws(ChatError) {
            return try streams.open(
                subscription.starts, for: caller.reader, .program(secret: secret), as: format, address, request, context
            )
        } catch {
            var response = ErrorResponse(error)
            response.apiCode = error.code == .tooManyRequests ? 42903 : NtfyErrors.firstCode(of: response.status)
            throw response
        }
    }

    /// Returns the messages that will be posted, with the times at which they are due, the earliest first.
    private func messagesForLater(in topics: NtfyTopics) async throws(ChatError) -> [(Message, StreamSource)] {
        var found: [(Message, StreamSource)] = []
        for topic in topics.all {
            guard let room = topic.source.room else { continue }
            var last: MessageID?
            repeat {
                let page = try await environment.stores.changes.scheduled(
                    in: room, author: nil, after: last, limit: NtfySubscription.most - found.count)
                for message in page.items where !message.isHeld { found.append((message.asPosted, topic.source)) }
                last = page.next
            } while last != nil && found.count < NtfySubscription.most
        }
        return found.sorted { ($0.0.sentAt, $0.0.id) < ($1.0.sentAt, $1.0.id) }
    }

    /// Returns the stored messages, without `open` and `keepalive`, which ntfy's app on iPhones would show.
    ///
    /// - Parameter waiting: Messages that are not posted yet.
    private func poll(
        _ subscription: NtfySubscription, then waiting: [(Message, StreamSource)], _ format: NtfyFormat,
        _ caller: Caller
    ) async throws -> Response {
        let feed = environment.stores.feed
        var history = NtfyHistory(subscription.starts, upTo: subscription.end, environment.stores)
        // An error of the first read is a response. After that it breaks the connection.
        try await history.fill()
        // A client that filters has not fetched the other messages.
        let readsRooms = subscription.starts.contains { $0.source.room != nil }
        let reader = format.filter.isEmpty && readsRooms ? caller.member?.member : nil
        return Response(
            status: .ok,
            headers: [.contentType: format.contentType, .cacheControl: "no-store", .accelBuffering: "no"],
            body: ResponseBody { [history] writer in
                var (history, text, last) = (history, "", MessageID(0))
                while let (entry, source) = try await history.next() {
                    if let message = entry.message { last = max(last, message.id) }
                    if format.includes(entry, in: source) { text += format.text(of: entry, in: source) }
                    guard text.utf8.count >= HTTPLimits.streamWrite else { continue }
                    try await writer.write(ByteBuffer(string: text))
                    if let reader, last > 0 { feed.handedOut(last, to: reader) }
                    text = ""
                }
                for (message, source) in waiting where format.includes(.message(message), in: source) {
                    text += format.message(message, in: source)
                }
                if !text.isEmpty {
                    try await writer.write(ByteBuffer(string: text))
                    if let reader, last > 0 { feed.handedOut(last, to: reader) }
                }
                try await writer.finish(nil)
            })
    }
}

extension ScheduledMessage {
    /// The message as its room will have it, but for its id.
    fileprivate var asPosted: Message {
        Message(
            id: id, sender: author, nickname: nickname,
            content: content.with(content.extras.with(key: key, at: due, isApart: false)), sentAt: due)
    }
}

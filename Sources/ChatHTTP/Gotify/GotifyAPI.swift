import ChatDomain
import HTTPTypes
import Hummingbird

/// Gotify's `POST /message`, for programs that send to a Gotify server. It is available under `/gotify`, with a token
/// of the relay that names the room (https://gotify.net/api-docs).
struct GotifyAPI: Sendable {
    let posting: PostingAPI

    /// The prefix of the paths.
    static let prefix = "/gotify"
    /// The first names of the paths below ``prefix``. With `http.gotify_at_root`, they exist at the root, too.
    static let rootNames: Set = [
        "version", "gotifyinfo", "health", "current", "client", "application", "message", "stream", "static",
    ]

    var routes: [Route] {
        [
            Route(.post, "/gotify/message", .scope(.post), credential: Self.credential, message),
            Route(.get, "/gotify/version", .anyone, version),
            Route(.get, "/gotify/health", .anyone, health),
        ]
    }

    /// Returns the token from `X-Gotify-Key`, `?token=` or `Authorization: Bearer`, as Gotify does.
    @Sendable static func credential(_ request: Request) -> String? {
        request.headers.first(.gotifyKey) ?? request.uri.queryParameters["token"].map { String($0) }
            ?? request.headers.credential
    }

    /// `POST /gotify/message`, in JSON or as a form.
    func message(_ request: Request, _ context: ChatContext) async throws -> Response {
        guard let token = try context.caller().token else {
            throw ChatError.unauthorized(
                "Send X-Gotify-Key with a token of the relay for one room (pushchat token create)")
        }
        guard token.grant.room != nil else {
            throw ChatError(.forbidden, "This token has no room: create one for a room (pushchat token create)")
        }
        let message = try await Message(request)
        let text = PostingAPI.Draft.fitting(message.text, limit: MessageText.highestLimit)
        let title = message.title.map { title in
            PostingAPI.Draft.fitting(title, limit: MessageExtras.longestTitle, keepsLines: false)
        }
        let priority = message.priority ?? Self.usual
        let draft = PostingAPI.Draft(
            text: text, title: title.flatMap { FieldText.trimmed($0).isEmpty ? nil : $0 },
            link: message.link.flatMap { NotificationContent.isLink($0) ? $0 : nil },
            priority: priority <= Self.quiet ? 5 : nil, sound: priority <= Self.quiet ? "" : nil)
        let (receipt, _) = try await posting.post(draft, request, context)
        return Responses.json([
            "id": .number(receipt.message), "appid": .number(token.id), "message": .string(text),
            "title": .string(title ?? token.name.text), "priority": .number(priority),
            "extras": message.extras ?? .null, "date": .time(posting.environment.now()),
        ])
    }

    /// Priorities are 0 to 10. Up to this one, Gotify's app makes no sound.
    private static let quiet: Int64 = 3
    private static let usual: Int64 = 5

    /// The content of a request, before the relay's own rules apply.
    private struct Message {
        let text: String
        let title: String?
        let priority: Int64?
        let extras: JSONValue?

        init(_ request: Request) async throws {
            if request.headers.mediaType == "application/json" {
                let body = try await AdminBody.read(request)
                guard let text = try body.text("message") else { throw ChatError.missing("message") }
                (self.text, title) = (text, try body.text("title"))
                priority = try Self.value(body, "priority", "a whole number") { $0.integer }
                extras = try Self.value(body, "extras", "an object") { $0.object }.map { .object($0) }
            } else {
                let form = try await FormFields.read(request)
                (text, title) = (try form.required(.message), try form.text(.title))
                priority = try form.text(.priority).flatMap { Int64($0) }
                extras = nil
            }
        }

        private static func value<Value>(
            _ body: AdminBody, _ name: String, _ what: String, _ read: (JSONValue) -> Value?
        ) throws(ChatError) -> Value? {
            guard let value = body.object[name], value != .null else { return nil }
            guard let result = read(value) else { throw .invalid(name, "must be \(what), is \(value.kind)") }
            return result
        }

        /// `{"client::notification":{"click":{"url":"…"}}}`
        var link: String? {
            extras?.object?["client::notification"]?.object?["click"]?.object?["url"]?.text
        }
    }

    /// `GET /gotify/version`. Clients call it to check whether a server exists.
    func version(_ request: Request, _ context: ChatContext) -> Response {
        Responses.json([
            "version": .string(posting.environment.build.version), "commit": .string(""), "buildDate": .string(""),
        ])
    }

    /// `GET /gotify/health`
    func health(_ request: Request, _ context: ChatContext) async -> Response {
        do throws(ChatError) {
            try await posting.environment.stores.rooms.ping()
            return Responses.json(["health": .string("green"), "database": .string("green")])
        } catch {
            return Responses.json(
                ["health": .string("orange"), "database": .string("red")], status: .internalServerError)
        }
    }
}

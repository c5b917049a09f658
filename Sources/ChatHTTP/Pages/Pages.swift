import ChatDomain
import Hummingbird
import NIOCore
import WebAssets

/// The chat page, the operator's page and the tutorial's test pages.
struct Pages: Sendable {
    let environment: ChatEnvironment
    let health: Health

    var routes: [Route] {
        [
            Route(.get, "/", .anyone, chat),
            Route(.get, "/webpush/key", .anyone, pushKey),
            Route(.get, "/test/database.php", .development, testDatabase),
        ]
            + TestPages.all.map { path, page in Route(.get, path, .development) { _, _ in Responses.html(page) } }
            + WebFiles.all.map { file in Route(.get, file.path, .anyone) { request, _ in file.response(to: request) } }
    }

    func chat(_ request: Request, _ context: ChatContext) -> Response {
        WebFiles.chat(environment.settings).response(to: request)
    }

    /// Returns the key with which pages subscribe to pushes (`applicationServerKey`).
    func pushKey(_ request: Request, _ context: ChatContext) -> Response {
        guard let browsers = environment.relay.browsers else {
            return ErrorResponse(ChatError(.notFound, "This relay sends no pushes to browsers")).response(.json)
        }
        return Responses.json(["key": .string(browsers.publicKey)])
    }

    /// Serves the tutorial's test of the database.
    func testDatabase(_ request: Request, _ context: ChatContext) async -> Response {
        let problem = await health.databaseProblem()
        return Responses.html(TestPages.database(problem), status: problem == nil ? .ok : .serviceUnavailable)
    }
}

/// The files of the chat page and of the operator's page.
enum WebFiles {
    /// The files that do not depend on the configuration.
    static let all: [WebFile] =
        ofChat + [
            .page("/admin", WebFile.embedded("admin.html")),
            .style("/admin.css"),
            .script("/admin.js"),
            .page("/v1/docs", WebFile.embedded("docs.html")),
            .style("/docs.css"),
            .script("/docs.js"),
            .script("/admin-tokens.js"),
            .script("/admin-rooms.js"),
            .script("/admin-usage.js"),
            .script("/admin-day.js"),
            .script("/sw.js", worker),
            WebFile("/icon-512.png", "image/png"),
        ]

    /// The files that the chat page needs offline, in addition to the page itself.
    private static let ofChat: [WebFile] =
        WebFile.base + [
            .style("/chat.css"),
            .script("/rooms.js"),
            .script("/notify.js"),
            .script("/apps.js"),
            .script("/chat.js"),
            .script("/qr.js"),
            WebFile("/icon.svg", "image/svg+xml"),
            WebFile("/icon-192.png", "image/png"),
            WebFile("/manifest.webmanifest", "application/manifest+json"),
        ]

    /// Returns the chat page with the maximum length of a message and the relay's addresses. Invitations use the public
    /// URL, because `localhost` works on this machine only.
    static func chat(_ settings: ChatHTTPSettings) -> WebFile {
        var page = WebFile.filled(WebFile.embedded("chat.html"), "text_limit", with: String(settings.textLimit))
        for (name, url) in [
            ("public_url", settings.publicURL), ("ntfy_url", settings.ntfy.baseURL), ("gotify_url", settings.gotifyURL),
        ] {
            page = WebFile.filled(page, name, with: WebFile.escaped(url ?? ""))
        }
        return .page("/", page)
    }

    /// The service worker. It caches the files under a version that changes with them.
    private static let worker: [UInt8] = {
        let tags = ofChat.map(\.tag).joined().utf8
        let version = String(WebFile.digest(Array(tags) + WebFile.embedded("chat.html")), radix: 16)
        return WebFile.filled(WebFile.embedded("sw.js"), "version", with: version)
    }()
}

import ChatDomain
import Hummingbird
import NIOCore
import Synchronization
import WebAssets

/// The chat page, the operator's page and the tutorial's test pages.
struct Pages: Sendable {
    let environment: ChatEnvironment
    let health: Health
    /// The groups for clients of other servers.
    let servers: [RouteGroup]
    private let chatPage = ConfiguredPage()

    init(environment: ChatEnvironment, health: Health, servers: [RouteGroup]) {
        self.environment = environment
        self.health = health
        self.servers = servers
    }

    var routes: [Route] {
        [
            Route(.get, "/", .anyone, chat),
            Route(.get, "/webpush/key", .anyone, pushKey),
            Route(.get, "/test/database.php", .development, testDatabase),
        ]
            + TestPages.all.map { path, page in
                Route(.get, path, .development) { request, _ in Responses.html(page.html(at: request.uri.path)) }
            }
            + WebFiles.all.map { file in
                Route(.get, file.path, .anyone, in: file.path.hasPrefix("/v1/") ? .admin : .chat) { request, _ in
                    file.response(to: request)
                }
            }
    }

    func chat(_ request: Request, _ context: ChatContext) -> Response {
        chatPage.file(for: environment.settings, servers).response(to: request)
    }

    /// Returns the key with which pages subscribe to pushes (`applicationServerKey`).
    func pushKey(_ request: Request, _ context: ChatContext) -> Response {
        guard let browsers = environment.relay.browsers else {
            return ChatErrors.json(
                ErrorResponse(ChatError(.notFound, "This relay sends no pushes to browsers")), to: request)
        }
        return Responses.json(["key": .string(browsers.publicKey)])
    }

    /// Serves the tutorial's test of the database.
    func testDatabase(_ request: Request, _ context: ChatContext) async -> Response {
        let problem = await health.databaseProblem()
        return Responses.html(
            TestPages.database(problem).html(at: request.uri.path), status: problem == nil ? .ok : .serviceUnavailable)
    }
}

/// The chat page with the values of the configuration in force. It is compressed again only after these change.
private final class ConfiguredPage: Sendable {
    private let newest = Mutex<(values: [String], file: WebFile)?>(nil)

    /// Returns the page with the maximum length of a message and the relay's addresses. Invitations use the public
    /// URL, because `localhost` works on this machine only.
    func file(for settings: ChatHTTPSettings, _ servers: [RouteGroup]) -> WebFile {
        let values =
            [
                ("text_limit", String(settings.textLimit)), ("public_url", settings.publicURL ?? ""),
            ] + servers.addresses(settings).map { ("\($0.name)_url", $0.address ?? "") }
        return newest.withLock { newest in
            if let newest, newest.values == values.map(\.1) { return newest.file }
            var page = WebFile.embedded("chat.html")
            for (name, value) in values { page = WebFile.filled(page, name, with: WebFile.escaped(value)) }
            let file = WebFile.page("/", page)
            newest = (values.map(\.1), file)
            return file
        }
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
            .script("/admin-en.js"),
            .script("/admin-de.js"),
            .page("/v1/docs", WebFile.embedded("docs.html")),
            .style("/docs.css"),
            .script("/docs.js"),
            .script("/admin-tokens.js"),
            .script("/admin-webhooks.js"),
            .script("/admin-rooms.js"),
            .script("/admin-usage.js"),
            .script("/admin-day.js"),
            .script("/admin-charts.js"),
            .script("/admin-lists.js"),
            .script("/admin-queue.js"),
            .script("/admin-verdict.js"),
            .script("/sw.js", worker),
            WebFile("/icon-512.png", "image/png"),
        ]

    /// The files that the chat page needs offline, in addition to the page itself.
    private static let ofChat: [WebFile] =
        WebFile.base + [
            .style("/chat.css"),
            .script("/texts-en.js"),
            .script("/texts-de.js"),
            .script("/rooms.js"),
            .script("/notify.js"),
            .script("/apps.js"),
            .script("/sheets.js"),
            .script("/markdown.js"),
            .script("/chat.js"),
            .script("/qr.js"),
            WebFile("/icon.svg", "image/svg+xml"),
            WebFile("/icon-192.png", "image/png"),
            WebFile("/manifest.webmanifest", "application/manifest+json"),
        ]

    /// The service worker. It caches the files under a version that changes with them.
    private static let worker: [UInt8] = {
        let tags = ofChat.map(\.tag).joined().utf8
        let version = String(WebFile.digest(Array(tags) + WebFile.embedded("chat.html")), radix: 16)
        return WebFile.filled(WebFile.embedded("sw.js"), "version", with: version)
    }()
}

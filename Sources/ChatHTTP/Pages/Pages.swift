import ChatDomain
import Hummingbird
import NIOCore
import WebAssets

/// The chat page, the operator's page and the tutorial's test pages.
struct Pages: Sendable {
    let settings: @Sendable () -> ChatHTTPSettings
    let health: Health
    /// Nil where there are no pushes to browsers.
    let browsers: @Sendable () -> (any SubscriptionReader)?

    func chat(_ request: Request, _ context: ChatContext) -> Response {
        WebFiles.chat(textLimit: settings().textLimit).answer(request)
    }

    /// The key that pages subscribe to pushes with (`applicationServerKey`).
    func pushKey(_ request: Request, _ context: ChatContext) -> Response {
        guard let browsers = browsers() else {
            return ErrorAnswer(ChatError(.notFound, "This relay sends no pushes to browsers")).response(.json)
        }
        return Answers.json(["key": .string(browsers.publicKey)])
    }

    /// A handler of one of the tutorial's pages, which are served in development only.
    func test(_ page: ByteBuffer) -> Routes.Handler {
        { _, _ in
            try requireDevelopment()
            return Answers.html(page)
        }
    }

    /// The tutorial's test of the database.
    func testDatabase(_ request: Request, _ context: ChatContext) async throws -> Response {
        try requireDevelopment()
        let problem = await health.databaseProblem(context)
        return Answers.html(TestPages.database(problem), status: problem == nil ? .ok : .serviceUnavailable)
    }

    private func requireDevelopment() throws(ErrorAnswer) {
        guard settings().isDevelopment else { throw .notFound }
    }
}

/// The files of the chat page and of the operator's page.
enum WebFiles {
    /// The files that do not depend on the configuration.
    static let all: [WebFile] =
        ofChat + [
            .page("/admin", PackageResources.admin_html),
            .style("/admin.css", PackageResources.admin_css),
            .script("/admin.js", PackageResources.admin_js),
            .page("/v1/docs", PackageResources.docs_html),
            .style("/docs.css", PackageResources.docs_css),
            .script("/docs.js", PackageResources.docs_js),
            .script("/admin-tokens.js", PackageResources.admin_tokens_js),
            .script("/admin-rooms.js", PackageResources.admin_rooms_js),
            .script("/admin-usage.js", PackageResources.admin_usage_js),
            .script("/sw.js", worker),
            WebFile("/icon-512.png", "image/png", PackageResources.icon_512_png),
        ]

    /// The files that the chat page needs when there is no connection, besides the page.
    private static let ofChat: [WebFile] =
        WebFile.base + [
            .style("/chat.css", PackageResources.chat_css),
            .script("/rooms.js", PackageResources.rooms_js),
            .script("/notify.js", PackageResources.notify_js),
            .script("/chat.js", PackageResources.chat_js),
            .script("/qr.js", PackageResources.qr_js),
            WebFile("/icon.svg", "image/svg+xml", PackageResources.icon_svg),
            WebFile("/icon-192.png", "image/png", PackageResources.icon_192_png),
            WebFile("/manifest.webmanifest", "application/manifest+json", PackageResources.manifest_webmanifest),
        ]

    /// The page, which shows how long a message may be.
    static func chat(textLimit: Int) -> WebFile {
        .page("/", WebFile.filled(PackageResources.chat_html, "text_limit", with: String(textLimit)))
    }

    /// The service worker keeps the files under a name that changes with them.
    private static let worker: [UInt8] = {
        let tags = ofChat.map(\.tag).joined().utf8
        let version = String(WebFile.digest(Array(tags) + PackageResources.chat_html), radix: 16)
        return WebFile.filled(PackageResources.sw_js, "version", with: version)
    }()
}

import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore

/// A file that a browser fetches, embedded in the executable.
struct WebFile: Sendable {
    let path: String
    let type: String
    let body: ByteBuffer
    /// Changes with the content.
    let tag: String
    /// Scripts, styles, pictures and calls of this server only; no frame around it.
    let isPage: Bool

    init(_ path: String, _ type: String, _ bytes: [UInt8], isPage: Bool = false) {
        self.path = path
        self.type = type
        self.body = ByteBuffer(bytes: bytes)
        self.isPage = isPage
        tag = "\"" + String(Self.digest(bytes), radix: 16) + "\""
    }

    private static let contentSecurityPolicy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; "
        + "worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

    /// The file, or 304 where the browser has it already.
    func answer(_ request: Request, _ context: ChatContext) -> Response {
        var headers: HTTPFields = [.contentType: type, .cacheControl: "no-cache", .eTag: tag]
        if isPage {
            headers[.contentSecurityPolicy] = Self.contentSecurityPolicy
            headers[.referrerPolicy] = "no-referrer"
        }
        let known = request.headers[.ifNoneMatch].map { $0 == "*" || $0.contains(tag) } ?? false
        guard !known else { return Response(status: .notModified, headers: headers) }
        return Response(status: .ok, headers: headers, body: ResponseBody(byteBuffer: body))
    }

    /// FNV-1a: tells versions apart, nothing more.
    static func digest(_ bytes: some Sequence<UInt8>) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }
}

/// The files of the pages for people.
enum WebFiles {
    private static let script = "text/javascript; charset=utf-8"
    private static let style = "text/css; charset=utf-8"

    /// What does not depend on the configuration.
    static let all: [WebFile] = [
        WebFile("/base.css", style, PackageResources.base_css),
        WebFile("/chat.css", style, PackageResources.chat_css),
        WebFile("/chat.js", script, PackageResources.chat_js),
        WebFile("/qr.js", script, PackageResources.qr_js),
        WebFile("/icon.svg", "image/svg+xml", PackageResources.icon_svg),
        WebFile("/icon-192.png", "image/png", PackageResources.icon_192_png),
        WebFile("/icon-512.png", "image/png", PackageResources.icon_512_png),
        WebFile("/manifest.webmanifest", "application/manifest+json", PackageResources.manifest_webmanifest),
        WebFile("/worker.js", script, worker),
    ]

    /// The chat, which has to know how long a message may be.
    static func chat(textLimit: Int) -> WebFile {
        WebFile(
            "/", "text/html; charset=utf-8",
            filled(PackageResources.chat_html, "text_limit", with: String(textLimit)), isPage: true)
    }

    /// The service worker keeps the files under a name that changes with them.
    private static let worker: [UInt8] = {
        let files = [
            PackageResources.chat_html, PackageResources.base_css, PackageResources.chat_css, PackageResources.chat_js,
            PackageResources.qr_js,
        ]
        return filled(PackageResources.worker_js, "version", with: String(WebFile.digest(files.joined()), radix: 16))
    }()

    private static func filled(_ text: [UInt8], _ name: String, with value: String) -> [UInt8] {
        Array(String(decoding: text, as: UTF8.self).replacing("{{\(name)}}", with: value).utf8)
    }
}

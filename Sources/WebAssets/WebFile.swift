import HTTPTypes
package import Hummingbird
import NIOCore

/// A file that a browser fetches, embedded in the executable.
package struct WebFile: Sendable {
    package let path: String
    private let type: String
    private let body: ByteBuffer
    /// Changes with the content.
    package let tag: String
    private let isPage: Bool

    /// - Parameters:
    ///   - type: its media type; text is UTF-8.
    ///   - isPage: whether it is HTML, which says what it may load.
    package init(_ path: String, _ type: String, _ bytes: [UInt8], isPage: Bool = false) {
        self.path = path
        self.type = type
        self.body = ByteBuffer(bytes: bytes)
        self.isPage = isPage
        tag = "\"" + String(Self.digest(bytes), radix: 16) + "\""
    }

    package static func page(_ path: String, _ bytes: [UInt8]) -> WebFile {
        WebFile(path, "text/html; charset=utf-8", bytes, isPage: true)
    }

    package static func script(_ path: String, _ bytes: [UInt8]) -> WebFile {
        WebFile(path, "text/javascript; charset=utf-8", bytes)
    }

    package static func style(_ path: String, _ bytes: [UInt8]) -> WebFile {
        WebFile(path, "text/css; charset=utf-8", bytes)
    }

    /// What all pages share.
    package static let base = [
        style("/base.css", PackageResources.base_css), script("/base.js", PackageResources.base_js),
    ]

    /// Scripts, styles, pictures and calls of this server only, nothing inline; no frame around it.
    private static let contentSecurityPolicy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        + "manifest-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

    /// The file, or 304 where the browser has it already.
    package func answer(_ request: Request) -> Response {
        var headers: HTTPFields = [.contentType: type, .cacheControl: "no-cache", .eTag: tag]
        if isPage {
            headers[.contentSecurityPolicy] = Self.contentSecurityPolicy
            headers[HTTPField.Name("Referrer-Policy")!] = "no-referrer"
        }
        let isKnown = request.headers[.ifNoneMatch].map { $0 == "*" || $0.contains(tag) } ?? false
        guard !isKnown else { return Response(status: .notModified, headers: headers) }
        return Response(status: .ok, headers: headers, body: ResponseBody(byteBuffer: body))
    }

    /// Puts a value where a text has its name in double braces.
    package static func filled(_ text: [UInt8], _ name: String, with value: String) -> [UInt8] {
        Array(String(decoding: text, as: UTF8.self).replacing("{{\(name)}}", with: value).utf8)
    }

    /// FNV-1a: tells versions apart, nothing more.
    package static func digest(_ bytes: some Sequence<UInt8>) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }
}

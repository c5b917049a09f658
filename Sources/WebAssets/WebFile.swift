import EmbeddedFiles
import HTTPTypes
package import Hummingbird
import NIOCore

/// A file for browsers, embedded in the executable. Browsers that accept gzip get it compressed.
package struct WebFile: Sendable {
    package let path: String
    private let type: String
    private let body: ByteBuffer
    /// The content in gzip. `nil` if it is hardly smaller.
    private let compressed: ByteBuffer?
    /// The entity tag of the plain file, which changes with the content.
    package let tag: String
    private let isPage: Bool

    /// Describes a file at a path.
    ///
    /// - Parameters:
    ///   - type: The media type. Text is UTF-8.
    ///   - bytes: The content. `nil` means the embedded file whose name is the path without its first slash.
    ///   - isPage: Whether the file is HTML and gets a content security policy.
    package init(_ path: String, _ type: String, _ bytes: [UInt8]? = nil, isPage: Bool = false) {
        let bytes = bytes ?? Self.embedded(String(path.dropFirst()))
        self.path = path
        self.type = type
        self.body = ByteBuffer(bytes: bytes)
        self.isPage = isPage
        compressed = Gzip.compressed(bytes)
        tag = "\"" + String(Self.digest(bytes), radix: 16) + "\""
    }

    package static func page(_ path: String, _ bytes: [UInt8]) -> WebFile {
        WebFile(path, "text/html; charset=utf-8", bytes, isPage: true)
    }

    package static func script(_ path: String, _ bytes: [UInt8]? = nil) -> WebFile {
        WebFile(path, "text/javascript; charset=utf-8", bytes)
    }

    package static func style(_ path: String) -> WebFile { WebFile(path, "text/css; charset=utf-8") }

    /// The files that all pages share.
    package static let base = [style("/base.css"), script("/base.js"), script("/texts.js")]

    /// Returns a file that the build embedded from a folder `Web`. Stops the process if the file is missing, because
    /// the executable was then built incorrectly.
    package static func embedded(_ name: String) -> [UInt8] {
        let file = embedded_file(name)
        guard let bytes = file.bytes else { preconditionFailure("\(name) is not embedded") }
        return Array(UnsafeBufferPointer(start: bytes, count: file.count))
    }

    /// Allows only scripts, styles, images and calls of this server. Forbids inline code and framing.
    private static let contentSecurityPolicy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        + "manifest-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

    /// Returns the file, or 304 if the browser already has it. The compressed file has another entity tag
    /// (RFC 9110, section 8.8.3.3). It does not end in `-gzip`, which Caddy removes from requests.
    package func response(to request: Request) -> Response {
        // The page's relative addresses are correct at its own path only, not at `/admin/`, for example.
        if isPage, request.uri.path != path { return Self.redirect(to: path, from: request.uri.path) }
        let compressed = Gzip.isPreferred(by: request.headers[.acceptEncoding]) ? compressed : nil
        let tag = compressed == nil ? tag : tag.dropLast() + ".gz\""
        var headers: HTTPFields = [.contentType: type, .cacheControl: "no-cache", .eTag: tag]
        if self.compressed != nil { headers[.vary] = "Accept-Encoding" }
        if isPage {
            headers[.contentSecurityPolicy] = Self.contentSecurityPolicy
            headers[HTTPField.Name("Referrer-Policy")!] = "no-referrer"
        }
        let isKnown = request.headers[.ifNoneMatch].map { $0 == "*" || $0.contains(tag) } ?? false
        guard !isKnown else { return Response(status: .notModified, headers: headers) }
        if compressed != nil { headers[.contentEncoding] = "gzip" }
        return Response(status: .ok, headers: headers, body: ResponseBody(byteBuffer: compressed ?? body))
    }

    private static func redirect(to path: String, from wrong: String) -> Response {
        Response(
            status: .permanentRedirect, headers: [.location: address(of: path, from: wrong), .cacheControl: "no-cache"])
    }

    /// Returns the relative address of a path of this server, for the `Location` of the response to a request. It is
    /// relative because a proxy may serve this server below a path that programs on this machine do not use.
    package static func address(of path: String, from requested: String) -> String {
        root(from: requested) + path.dropFirst()
    }

    /// The maximum number of steps in ``root(from:)``. No page is as deep.
    private static let maxSteps = 16

    /// Returns the relative address of the server's root, as seen from a path.
    package static func root(from path: String) -> String {
        let steps = path.dropFirst().utf8.count { $0 == UInt8(ascii: "/") }
        return steps == 0 ? "./" : String(repeating: "../", count: min(steps, maxSteps))
    }

    /// Replaces each `{{name}}` in a text with a value.
    package static func filled(_ text: [UInt8], _ name: String, with value: String) -> [UInt8] {
        Array(String(decoding: text, as: UTF8.self).replacing("{{\(name)}}", with: value).utf8)
    }

    /// Escapes text for use between tags and in quoted attributes.
    package static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    /// Returns an FNV-1a hash. It distinguishes versions and has no cryptographic strength.
    package static func digest(_ bytes: some Sequence<UInt8>) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }
}

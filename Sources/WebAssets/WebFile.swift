import EmbeddedFiles
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
    ///   - bytes: the embedded file that is named like the path, if nil.
    ///   - isPage: whether it is HTML, which says what it may load.
    package init(_ path: String, _ type: String, _ bytes: [UInt8]? = nil, isPage: Bool = false) {
        let bytes = bytes ?? Self.embedded(String(path.dropFirst()))
        self.path = path
        self.type = type
        self.body = ByteBuffer(bytes: bytes)
        self.isPage = isPage
        tag = "\"" + String(Self.digest(bytes), radix: 16) + "\""
    }

    package static func page(_ path: String, _ bytes: [UInt8]) -> WebFile {
        WebFile(path, "text/html; charset=utf-8", bytes, isPage: true)
    }

    package static func script(_ path: String, _ bytes: [UInt8]? = nil) -> WebFile {
        WebFile(path, "text/javascript; charset=utf-8", bytes)
    }

    package static func style(_ path: String) -> WebFile { WebFile(path, "text/css; charset=utf-8") }

    /// What all pages share.
    package static let base = [style("/base.css"), script("/base.js")]

    /// A file of the folders `Web`, by its name. Without it the executable was built wrongly.
    package static func embedded(_ name: String) -> [UInt8] {
        let file = embedded_file(name)
        guard let bytes = file.bytes else { preconditionFailure("\(name) is not embedded") }
        return Array(UnsafeBufferPointer(start: bytes, count: file.count))
    }

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

    /// Text that can stand between tags and in quoted attributes.
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

    /// FNV-1a: tells versions apart, nothing more.
    package static func digest(_ bytes: some Sequence<UInt8>) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }
}

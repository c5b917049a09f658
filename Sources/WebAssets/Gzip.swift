import HTTPTypes
import NIOCore
import NIOEmbedded
import NIOHTTP1
import NIOHTTPCompression

/// The content coding in which browsers get files.
enum Gzip {
    /// Returns the bytes in gzip. `nil` if this saves less than a tenth, as with pictures.
    ///
    /// Runs SwiftNIO's compressing handler in a separate channel. The executable contains that handler and its zlib
    /// already.
    static func compressed(_ bytes: [UInt8]) -> ByteBuffer? {
        let channel = EmbeddedChannel(handler: NIOHTTPRequestCompressor(encoding: .gzip))
        // This also breaks the reference cycle between the channel and its pipeline.
        defer { _ = try? channel.finish(acceptAlreadyClosed: true) }
        let head = HTTPRequestHead(version: .http1_1, method: .POST, uri: "/")
        for part: HTTPClientRequestPart in [.head(head), .body(.byteBuffer(ByteBuffer(bytes: bytes))), .end(nil)] {
            channel.write(part, promise: nil)
        }
        channel.flush()
        var result = ByteBuffer()
        while let part = try? channel.readOutbound(as: HTTPClientRequestPart.self) {
            if case .body(.byteBuffer(var buffer)) = part { result.writeBuffer(&buffer) }
        }
        return result.readableBytes > 0 && result.readableBytes < bytes.count * 9 / 10 ? result : nil
    }

    /// Whether a client prefers gzip to the plain file (RFC 9110, section 12.5.3).
    ///
    /// - Parameter header: The request's `Accept-Encoding`. Without it, a client may support no coding.
    static func isPreferred(by header: String?) -> Bool {
        var weights: [Substring: Double] = [:]
        let plain = (header ?? "").lowercased().filter { $0 != " " && $0 != "\t" }
        for element in plain.split(separator: ",") {
            let parts = element.split(separator: ";")
            guard let coding = parts.first else { continue }
            let weight = parts.dropFirst().first { $0.hasPrefix("q=") }
            weights[coding] = weight.map { Double($0.dropFirst(2)) ?? 0 } ?? 1
        }
        let gzip = weights["gzip"] ?? weights["x-gzip"] ?? weights["*"] ?? 0
        return gzip > 0 && gzip >= weights["identity"] ?? 0
    }
}

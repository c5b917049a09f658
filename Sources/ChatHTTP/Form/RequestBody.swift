import ChatDomain
import HTTPTypes
import Hummingbird
import HummingbirdCore
import NIOCore
import NIOEmbedded
import NIOHTTP1
import NIOHTTPCompression
import NIOHTTPTypes

/// Reads the whole body of a request.
enum RequestBody {
    /// Returns the body.
    ///
    /// - Parameter limit: The maximum size, in bytes.
    static func read(_ request: Request, limit: Int) async throws -> [UInt8] {
        try await read(request, limit: limit, kept: limit).bytes
    }

    /// Reads a body of up to ``HTTPLimits/discardedBody`` bytes, and returns its start.
    ///
    /// - Parameter limit: The maximum size of the start, in bytes.
    static func readStart(_ request: Request, limit: Int) async throws -> (bytes: [UInt8], isWhole: Bool) {
        let (bytes, size) = try await read(request, limit: HTTPLimits.discardedBody, kept: limit)
        return (bytes, size == bytes.count)
    }

    private static func read(
        _ request: Request, limit: Int, kept: Int
    ) async throws -> (bytes: [UInt8], size: Int) {
        let declared = request.headers.first(.contentLength).flatMap { Int($0) }
        if let declared, declared > limit { throw tooLarge(limit) }
        var (body, size): ([UInt8], Int) = ([], 0)
        body.reserveCapacity(min(kept, max(0, declared ?? 0)))
        for try await chunk in request.body {
            size += chunk.readableBytes
            guard size <= limit else { throw tooLarge(limit) }
            body.append(contentsOf: chunk.readableBytesView.prefix(kept - body.count))
        }
        // A lost connection must not look like the end of the body.
        if let declared, size < declared {
            throw ChatError.malformed("The body is shorter than its Content-Length")
        }
        return (body, size)
    }

    private static func tooLarge(_ limit: Int) -> ChatError {
        ChatError(.tooLarge, "The body has more than \(limit) bytes")
    }
}

extension Request {
    /// Returns the request with a body that sends `100 Continue`, if the client waits for that (`Expect:
    /// 100-continue`). The body sends it when a handler begins to read, after the checks of the credential and the
    /// length.
    func continued(on channel: any Channel) -> Request {
        guard headers.first(.expect)?.lowercased() == "100-continue" else { return self }
        var request = self
        request.body = HummingbirdCore.RequestBody(asyncSequence: ExpectedBody(body: body, channel: channel))
        return request
    }
}

/// A body that its client sends after `100 Continue` (RFC 9110, section 10.1.1).
private struct ExpectedBody: AsyncSequence, Sendable {
    typealias Element = ByteBuffer

    let body: HummingbirdCore.RequestBody
    let channel: any Channel

    struct AsyncIterator: AsyncIteratorProtocol {
        var chunks: HummingbirdCore.RequestBody.AsyncIterator
        /// The channel for `100 Continue`. `nil` once it has been sent.
        var channel: (any Channel)?

        mutating func next() async throws -> ByteBuffer? {
            if let channel {
                self.channel = nil
                channel.writeAndFlush(HTTPResponsePart.head(HTTPResponse(status: .continue)), promise: nil)
            }
            return try await chunks.next()
        }
    }

    func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(chunks: body.makeAsyncIterator(), channel: channel)
    }
}

/// The `Content-Encoding` of a request. ASIHTTPRequest, the tutorial app's library, can compress the request body with
/// gzip.
enum ContentCoding: String, Sendable, Hashable {
    case gzip
    /// The zlib format (RFC 1950), which is what RFC 9110 §8.4.1.2 calls `deflate`.
    case deflate

    /// `nil` if the body is not compressed.
    init?(parsing header: String?) throws(ChatError) {
        guard let header else { return nil }
        switch header.lowercased() {
        case "", "identity": return nil
        case "gzip", "x-gzip": self = .gzip
        case "deflate": self = .deflate
        default:
            throw .unsupported(
                "The Content-Encoding \(HeaderText.sanitized(header, limit: 40)) is not supported; "
                    + "send gzip, deflate or none")
        }
    }

    /// Decompresses the body, up to `limit` bytes. Memory use stays near the limit, whatever the client sends.
    ///
    /// Runs SwiftNIO's decompressing handler in a separate channel. In the connection's channel its errors would close
    /// the connection without a response.
    func decompressed(_ body: [UInt8], limit: Int) throws(ChatError) -> [UInt8] {
        guard !body.isEmpty else { return [] }
        do {
            let channel = EmbeddedChannel(handler: NIOHTTPRequestDecompressor(limit: .size(limit)))
            // This also breaks the reference cycle between the channel and its pipeline.
            defer { _ = try? channel.finish(acceptAlreadyClosed: true) }
            let headers: HTTPHeaders = ["content-encoding": rawValue]
            let head = HTTPRequestHead(version: .http1_1, method: .POST, uri: "/", headers: headers)
            for part: HTTPServerRequestPart in [.head(head), .body(ByteBuffer(bytes: body)), .end(nil)] {
                try channel.writeInbound(part)
            }
            var result: [UInt8] = []
            while let part = try channel.readInbound(as: HTTPServerRequestPart.self) {
                if case .body(let buffer) = part { result.append(contentsOf: buffer.readableBytesView) }
            }
            return result
        } catch NIOHTTPDecompression.DecompressionError.limit {
            throw ChatError(.tooLarge, "The body has more than \(limit) bytes when decompressed")
        } catch let error as NIOHTTPDecompression.ExtraDecompressionError where error == .invalidTrailingData {
            // RFC 1952 §2.2 allows several members in a file. No client sends a form that way.
            throw .malformed(
                "The body continues after the end of its \(rawValue) data; send it compressed in one piece")
        } catch {
            throw .malformed("The body is not valid \(rawValue), as its Content-Encoding says", cause: "\(error)")
        }
    }
}

extension ChatError {
    static func malformed(_ message: String, cause: String? = nil) -> ChatError {
        ChatError(.malformedRequest, message, cause: cause)
    }

    static func unsupported(_ message: String) -> ChatError {
        ChatError(.unsupportedMediaType, message)
    }
}

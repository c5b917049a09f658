import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore

/// The body of a request, whole.
enum BodyBytes {
    /// - Parameter limit: bytes.
    static func read(_ request: Request, limit: Int) async throws -> [UInt8] {
        let declared = request.headers.first(.contentLength).flatMap { Int($0) }
        if let declared, declared > limit { throw tooLarge(limit) }
        var body: [UInt8] = []
        body.reserveCapacity(max(0, declared ?? 0))
        for try await chunk in request.body {
            guard body.count + chunk.readableBytes <= limit else { throw tooLarge(limit) }
            body.append(contentsOf: chunk.readableBytesView)
        }
        // A connection that went away in the middle must never pass for the end of the body.
        if let declared, body.count < declared {
            throw ChatError(.malformedRequest, "The body is shorter than its Content-Length")
        }
        return body
    }

    private static func tooLarge(_ limit: Int) -> ChatError {
        ChatError(.tooLarge, "The body has more than \(limit) bytes")
    }
}

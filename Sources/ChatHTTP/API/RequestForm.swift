import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore

/// Reads the form of a request, within the limits.
enum RequestForm {
    static func read(_ request: Request) async throws -> FormFields {
        let headers = request.headers
        // What is refused for its head alone need not be read.
        let coding = try ContentCoding(parsing: headers.first(.contentEncoding))
        let declared = headers.first(.contentLength).flatMap { Int($0) }
        if let declared, declared > HTTPLimits.body { throw tooLarge }

        var body: [UInt8] = []
        body.reserveCapacity(max(0, declared ?? 0))
        for try await chunk in request.body {
            guard body.count + chunk.readableBytes <= HTTPLimits.body else { throw tooLarge }
            body.append(contentsOf: chunk.readableBytesView)
        }
        // A connection that went away in the middle must never pass for the end of the body.
        if let declared, body.count < declared {
            throw ChatError(.malformedRequest, "The body is shorter than its Content-Length")
        }
        guard !body.isEmpty else { return FormFields(body: []) }
        let type = try FormType(parsing: headers.first(.contentType))
        if let coding { body = try coding.decompressed(body, limit: HTTPLimits.body) }
        return try FormFields(body, as: type)
    }

    private static let tooLarge = ChatError(.tooLarge, "The body has more than \(HTTPLimits.body) bytes")
}

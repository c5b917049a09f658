import ChatDomain
import HTTPTypes
import Hummingbird

/// Reads the form of a request, within the limits.
enum RequestForm {
    static func read(_ request: Request) async throws -> FormFields {
        let headers = request.headers
        // What is refused for its head alone need not be read.
        let coding = try ContentCoding(parsing: headers.first(.contentEncoding))
        var body = try await BodyBytes.read(request, limit: HTTPLimits.body)
        guard !body.isEmpty else { return FormFields(body: []) }
        let type = try FormType(parsing: headers.first(.contentType))
        if let coding { body = try coding.decompressed(body, limit: HTTPLimits.body) }
        return try FormFields(body, as: type)
    }
}

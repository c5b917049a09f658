import ChatDomain
package import ChatHooks
package import HTTPTypes
import Hummingbird

/// The addresses of webhooks.
package enum HookAddress {
    /// Returns the path of a token's webhook.
    package static func path(of token: String, _ format: String) -> String { "/hooks/\(token)/\(format)" }
}

extension HookRequest {
    /// Reads a delivery to a webhook.
    init(_ request: Request) async throws {
        let headers = request.headers
        let coding = try ContentCoding(parsing: headers.first(.contentEncoding))
        var body = try await RequestBody.read(request, limit: Self.bodyLimit)
        if let coding { body = try coding.decompressed(body, limit: Self.bodyLimit) }
        self.init(headers, query: request.uri.query ?? "", body: body)
    }

    /// Splits a delivery into its parts. A query or a form that breaks the limits of forms counts as empty, so that the
    /// format says so in its message.
    package init(_ headers: HTTPFields, query: String, body: [UInt8]) {
        var values: [String: String] = [:]
        for field in headers {
            let name = field.name.canonicalName
            values[name] = values[name].map { "\($0), \(field.value)" } ?? field.value
        }
        let query = try? URLEncodedForm.parse(Array(query.utf8), charset: .utf8)
        self.init(headers: values, query: query?.texts ?? [:], form: Self.form(headers, body)?.texts ?? [:], body: body)
    }

    private static func form(_ headers: HTTPFields, _ body: [UInt8]) -> FormFields? {
        let type = headers.mediaType
        let isForm =
            ["application/x-www-form-urlencoded", "multipart/form-data"].contains(type)
            // Mattermost's senders may leave out the type.
            || type.isEmpty && body.starts(with: "payload=".utf8)
        guard isForm, let type = try? FormType(parsing: headers.first(.contentType)) else { return nil }
        switch type {
        case .urlEncoded(let charset): return try? URLEncodedForm.parse(body, charset: charset)
        case .multipart(let boundary, let charset):
            return try? MultipartForm.parse(body, boundary: Array(boundary.utf8), charset: charset)
        }
    }
}

extension FormFields {
    /// The values of the fields that are text.
    fileprivate var texts: [String: String] {
        var texts: [String: String] = [:]
        for field in fields { texts[field.key] = (try? text(field)) ?? nil }
        return texts
    }
}

import Hummingbird
import NIOCore

extension Answers {
    /// The document that describes the provider API.
    static let openAPI = Answers.document(ByteBuffer(bytes: PackageResources.openapi_json))

    private static func document(_ text: ByteBuffer) -> Response {
        Response(
            status: .ok, headers: [.contentType: "application/json", .cacheControl: "no-cache"],
            body: ResponseBody(byteBuffer: text))
    }
}

import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore
import WebAssets

/// Builds the server's responses, with the headers that each kind needs.
enum Responses {
    /// Headers for responses that browsers and proxies must not store.
    static let noStore: HTTPFields = [.cacheControl: "no-store"]
    static let plainText = "text/plain; charset=utf-8"

    /// Allows only our own stylesheet, icon and forms that post to this server. Forbids framing.
    private static let contentSecurityPolicy =
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

    /// Headers for the response to a request that has made a record, with the record's address.
    static func location(_ path: String, for request: Request) -> HTTPFields {
        var headers = noStore
        headers[.location] = WebFile.address(of: path, from: request.uri.path)
        return headers
    }

    private static let okText = ByteBuffer(string: "OK\n")
    private static let okTextHeaders: HTTPFields = [
        .contentType: plainText, .contentLength: "3", .cacheControl: "no-store",
    ]

    /// The success response of commands without a result: `OK` and a line feed, as in the tutorial's server, or
    /// `{"ok":true}`.
    static func ok(asJSON: Bool) -> Response {
        guard asJSON else {
            return Response(status: .ok, headers: okTextHeaders, body: ResponseBody(byteBuffer: okText))
        }
        return text(#"{"ok":true}"#, type: "application/json")
    }

    static func json(
        _ object: JSONObject, status: HTTPResponse.Status = .ok, headers: HTTPFields = noStore
    ) -> Response {
        text(JSONValue.object(object).description, type: "application/json", status: status, headers: headers)
    }

    static func json(_ objects: [JSONObject]) -> Response {
        text(JSONValue.array(objects.map { .object($0) }).description, type: "application/json")
    }

    /// The response to `OPTIONS` where pages of other sites may call.
    static func preflight(allow: String) -> Response {
        Response(
            status: .ok,
            headers: [
                .allow: allow, .accessControlAllowMethods: "GET, PUT, POST, PATCH, DELETE",
                // The star does not include Authorization (Fetch §4.10).
                .accessControlAllowHeaders: "*, Authorization", .contentLength: "0",
            ])
    }

    static let noContent = Response(status: .noContent, headers: noStore)

    /// Returns one page of a list with the cursor of the next page. The members of `head` come first, if the list
    /// belongs to an object.
    static func page(
        _ name: String, _ items: [JSONObject], next: JSONValue, of head: JSONObject = JSONObject()
    ) -> Response {
        var object = head
        object[name] = .array(items.map { .object($0) })
        object["next"] = next
        return json(object)
    }

    static func html(
        _ page: ByteBuffer, status: HTTPResponse.Status = .ok, headers: HTTPFields = [.cacheControl: "no-cache"]
    ) -> Response {
        var headers = headers
        headers[.contentSecurityPolicy] = contentSecurityPolicy
        headers[.referrerPolicy] = "no-referrer"
        return response(page, type: "text/html; charset=utf-8", status: status, headers: headers)
    }

    static func text(
        _ text: String, type: String, status: HTTPResponse.Status = .ok, headers: HTTPFields = noStore
    ) -> Response {
        response(ByteBuffer(string: text), type: type, status: status, headers: headers)
    }

    static func response(
        _ body: ByteBuffer, type: String, status: HTTPResponse.Status = .ok, headers: HTTPFields
    ) -> Response {
        var headers = headers
        headers.append(HTTPField(name: .contentType, value: type))
        return Response(status: status, headers: headers, body: ResponseBody(byteBuffer: body))
    }

    /// Whether the client is a browser that opens a page. Programs name no such type, or accept everything (`*/*`).
    static func wantsPage(_ request: Request) -> Bool {
        guard [.get, .head].contains(request.method), let accept = request.headers.first(.accept) else { return false }
        return HeaderText.contains(accept, "text/html")
    }

    /// Whether the client accepts JSON.
    static func wantsJSON(_ headers: HTTPFields) -> Bool {
        guard let accept = headers.first(.accept) else { return false }
        return HeaderText.contains(accept, "application/json")
    }
}

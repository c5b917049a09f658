import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore

/// The answers of this server, with the headers that belong to each kind.
enum Answers {
    static let notStored = HTTPField(name: .cacheControl, value: "no-store")

    /// Nothing but our own stylesheet, forms that post to us, and no frame around it.
    static let contentSecurityPolicy =
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

    private static let okText = ByteBuffer(string: "OK\n")
    private static let okJSON = ByteBuffer(string: #"{"ok":true}"#)
    private static let okTextHeaders: HTTPFields = [
        .contentType: "text/plain; charset=utf-8", .contentLength: "3", .cacheControl: "no-store",
    ]

    /// What every command but `messages` answers: `OK` and a line feed, as the original did.
    static func ok(asJSON: Bool) -> Response {
        guard asJSON else {
            return Response(status: .ok, headers: okTextHeaders, body: ResponseBody(byteBuffer: okText))
        }
        return response(okJSON, type: "application/json", status: .ok, headers: [.cacheControl: "no-store"])
    }

    static func text(_ text: String, status: HTTPResponse.Status, headers: HTTPFields) -> Response {
        response(ByteBuffer(string: text), type: "text/plain; charset=utf-8", status: status, headers: headers)
    }

    static func json(
        _ json: JSONText, status: HTTPResponse.Status = .ok, headers: HTTPFields = [.cacheControl: "no-store"]
    )
        -> Response
    {
        response(json.buffer, type: "application/json", status: status, headers: headers)
    }

    static func problem(_ json: JSONText, status: HTTPResponse.Status, headers: HTTPFields) -> Response {
        response(json.buffer, type: "application/problem+json", status: status, headers: headers)
    }

    static func json(_ value: JSONValue, status: HTTPResponse.Status = .ok, headers: HTTPFields = [:]) -> Response {
        var headers = headers
        headers.append(notStored)
        return response(
            ByteBuffer(string: value.description), type: "application/json", status: status, headers: headers)
    }

    /// Figures for Prometheus, in its text format.
    static func metrics(_ text: String) -> Response {
        response(
            ByteBuffer(string: text), type: "text/plain; version=0.0.4; charset=utf-8", status: .ok,
            headers: [.cacheControl: "no-store"])
    }

    static func html(_ page: ByteBuffer, status: HTTPResponse.Status = .ok) -> Response {
        response(
            page, type: "text/html; charset=utf-8", status: status,
            headers: [
                .contentSecurityPolicy: contentSecurityPolicy, .referrerPolicy: "no-referrer",
                .cacheControl: "no-cache",
            ])
    }

    private static func response(
        _ body: ByteBuffer, type: String, status: HTTPResponse.Status, headers: HTTPFields
    ) -> Response {
        var headers = headers
        headers.append(HTTPField(name: .contentType, value: type))
        return Response(status: status, headers: headers, body: ResponseBody(byteBuffer: body))
    }

    /// Whether the client asks for JSON.
    static func wantsJSON(_ headers: HTTPFields) -> Bool {
        guard let accept = headers.first(.accept) else { return false }
        return HeaderText.contains(accept, "application/json")
    }
}

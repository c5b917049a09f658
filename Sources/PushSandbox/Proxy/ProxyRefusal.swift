/// The proxy's response to a request that opens no tunnel.
struct ProxyRefusal: Error, Sendable, Hashable {
    let status: Int
    private let phrase: String
    /// The cause, as a sentence for the client's developer.
    let message: String

    private init(_ status: Int, _ phrase: String, _ message: String) {
        self.status = status
        self.phrase = phrase
        self.message = message
    }

    static func malformed(_ rule: String) -> ProxyRefusal { ProxyRefusal(400, "Bad Request", rule) }

    static func forbidden(_ message: String) -> ProxyRefusal { ProxyRefusal(403, "Forbidden", message) }

    static let method = ProxyRefusal(
        405, "Method Not Allowed",
        "The method must be CONNECT. The proxy opens tunnels for HTTPS and passes nothing else on.")

    static let timeout = ProxyRefusal(408, "Request Timeout", "The head of the request did not arrive in time.")

    static let tooLarge = ProxyRefusal(
        431, "Request Header Fields Too Large",
        "The head of the request must have at most \(ConnectHead.maxSize) bytes.")

    static let unreachable = ProxyRefusal(
        502, "Bad Gateway", "The sandbox's own listener did not accept the connection.")

    /// The bytes of the response.
    var response: String {
        var lines = [
            "HTTP/1.1 \(status) \(phrase)", "Content-Type: text/plain; charset=utf-8",
            "Content-Length: \(message.utf8.count + 1)", "Connection: close",
        ]
        if status == 405 { lines.append("Allow: CONNECT") }
        return lines.joined(separator: "\r\n") + "\r\n\r\n" + message + "\n"
    }
}

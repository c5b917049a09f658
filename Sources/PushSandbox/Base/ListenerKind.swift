enum ListenerKind: String, Sendable, CaseIterable, Encodable {
    case binary
    case feedback
    case http2
    /// Manages broadcast channels, over HTTP/2.
    case channels
    /// Leads connections for push services to the sandbox, over HTTP/1.1 without TLS.
    case proxy

    /// The only protocol that the HTTP/2 listener offers by ALPN.
    static let http2Protocol = "h2"

    var speaksHTTP2: Bool { self == .http2 || self == .channels }
}

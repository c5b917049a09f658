enum ListenerKind: String, Sendable, CaseIterable, Encodable {
    case binary
    case feedback
    case http2
    /// Manages broadcast channels, over HTTP/2.
    case channels

    /// The only protocol that the HTTP/2 listener offers by ALPN.
    static let http2Protocol = "h2"

    var speaksHTTP2: Bool { self == .http2 || self == .channels }
}

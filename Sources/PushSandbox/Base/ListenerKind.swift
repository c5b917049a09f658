enum ListenerKind: String, Sendable, CaseIterable, Encodable {
    case binary
    case feedback
    case http2

    /// The only protocol that the HTTP/2 listener offers by ALPN.
    static let http2Protocol = "h2"
}

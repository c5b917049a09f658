/// The way in which a connection ends instead of a response.
enum Disconnection: Sendable, Hashable {
    case close
    case reset
    /// With GOAWAY that names the stream before this one, so that this request counts as unprocessed. Earlier streams
    /// have two seconds to end. A connection of HTTP/1.1 closes.
    case goAway
}

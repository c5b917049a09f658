/// The limits of requests to the control API.
enum ControlLimits {
    /// The maximum size of a request body in bytes.
    static let body = 64 << 10
    /// The maximum size of a topic in bytes.
    static let topic = 255
}

import HTTPTypes

/// The push service's reason for rejecting a message: a status, and the body that Mozilla's service would send.
struct WebPushRefusal: Error, Sendable, Hashable {
    let status: Int
    /// Mozilla's number of the error (autopush-rs, `docs/src/errors.md`).
    let errno: Int
    let message: String
    /// The number of seconds after which the sender may retry. `nil` if the response does not name it.
    var retryAfter: Int?

    init(_ status: Int, _ errno: Int, _ message: String) {
        self.status = status
        self.errno = errno
        self.message = message
    }

    /// Creates the response of a fault.
    init(fault status: Int, retryAfter: Int?) {
        let errno =
            switch status {
            case 401, 403: 109
            case 404: 102
            case 410: 103
            case 413: 104
            // Mozilla's number for "retry, with increasing delays".
            case 429, 503: 201
            default: 999
            }
        self.init(status, errno, "a fault of the sandbox")
        self.retryAfter = retryAfter
    }
}

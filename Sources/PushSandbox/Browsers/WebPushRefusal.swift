import HTTPTypes

/// The push service's reason for rejecting a message: a status, and the body that Mozilla's service would send.
struct WebPushRefusal: Error, Sendable, Hashable {
    let status: Int
    /// Mozilla's number of the error (autopush-rs, `docs/src/errors.md`).
    let errno: Int
    let message: String
    /// The number of seconds after which the sender may retry. `nil` if the response does not name it.
    var retryAfter: Int?
    let form: Form

    /// The form of the response.
    enum Form: Sendable, Hashable {
        case mozilla
        /// Apple's body, with this reason.
        case apple(String)
        /// Without a body. Headers of Windows' service have this description.
        case windows(String)
    }

    init(_ status: Int, _ errno: Int, _ message: String, as form: Form = .mozilla) {
        self.form = form
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
            case 406, 429, 503: 201
            default: 999
            }
        self.init(status, errno, "a fault of the sandbox")
        self.retryAfter = retryAfter
    }
}

/// The faults of the push service for browsers.
enum BrowserFault: FaultAction, Hashable {
    /// Responds with the status after the delay. `retryAfter` is in seconds.
    case status(Int, retryAfter: Int?, delay: Int)
    /// Processes this number of messages per minute, and responds to the others with the status.
    case limitRate(Int, status: Int, retryAfter: Int?)
    /// Closes the connection without a response. The message is not processed.
    case close
    /// Processes the message after this time.
    case delay(Int)
    /// Records the message as dropped, and never responds.
    case drop

    static let gateway = GatewayProtocol.webpush
    /// The status of messages above a rate, unless the fault names another.
    private static let tooManyRequests = 429

    var passesPerMinute: Int? { if case .limitRate(let limit, _, _) = self { limit } else { nil } }

    static let forms = [
        FaultForm("status", .status, .retryAfter, .delay) { fields in
            let delay = try fields.responseDelay()
            guard let status = try fields.status() else {
                throw ControlError("status: must be given with the action status, from 300 to 599")
            }
            return Self.status(status, retryAfter: try fields.retryAfter(), delay: delay)
        },
        FaultForm("close", Self.close), .delay(Self.delay), FaultForm("drop", Self.drop),
        FaultForm("rate_limit", .limit, .status, .retryAfter) { fields in
            guard let limit = try fields.integer(.limit, in: 1...Fault.maxCount) else {
                throw ControlError("limit: must be given with the action rate_limit, in messages per minute")
            }
            let status = try fields.status() ?? tooManyRequests
            fields.set(.status, status)
            return Self.limitRate(limit, status: status, retryAfter: try fields.retryAfter())
        },
    ]
}

import APNSWire

/// A fault as `GET /faults` shows it.
struct FaultBody: Encodable {
    var id: Int
    var `protocol`: String
    var token: String?
    var after: Int
    var times: Int
    /// Only where it is not 1.
    var every: Int?
    /// Of `after`, those that have passed.
    var passed: Int
    /// Of `times`, those that were hit.
    var hit: Int
    var action: String
    var status: Int?
    var identifier: UInt32?
    var reason: String?
    var timestamp: Int64?
    var lastStream: Int?
    var code: Int?
    var limit: Int?
    var delayMilliseconds: Int?

    enum CodingKeys: String, CodingKey {
        case id, `protocol`, token, after, times, every, passed, hit, action, status, identifier, reason, timestamp,
            code
        case limit
        case lastStream = "last_stream"
        case delayMilliseconds = "delay_ms"
    }

    init(_ fault: Fault) {
        id = fault.id
        `protocol` = fault.gateway.rawValue
        token = fault.token?.hex
        after = fault.after
        times = fault.times
        every = fault.every == 1 ? nil : fault.every
        passed = fault.passed
        hit = fault.hit
        switch fault.action {
        case .status(let status, let delay, let identifier):
            action = FaultAction.status.rawValue
            self.status = Int(status.rawValue)
            self.identifier = identifier
            delayMilliseconds = delay
        case .close:
            action = FaultAction.close.rawValue
        case .reset:
            action = FaultAction.reset.rawValue
        case .stopReading(let milliseconds):
            action = FaultAction.stopReading.rawValue
            delayMilliseconds = milliseconds
        case .delay(let milliseconds):
            action = FaultAction.delay.rawValue
            delayMilliseconds = milliseconds
        case .drop:
            action = FaultAction.drop.rawValue
        case .provider(let provider):
            action = ""
            show(provider)
        }
    }

    private mutating func show(_ fault: ProviderFault) {
        switch fault {
        case .answer(let refusal, let delay):
            action = FaultAction.status.rawValue
            status = refusal.status
            reason = refusal.reason == ProviderFault.noReason ? nil : refusal.reason
            timestamp = refusal.timestamp
            delayMilliseconds = delay
        case .closeAccepted:
            action = FaultAction.closeAccepted.rawValue
        case .goAway(let reason, let lastStream, let code):
            action = FaultAction.goAway.rawValue
            self.reason = reason
            self.lastStream = lastStream
            self.code = code
        case .limitStreams(let limit, let milliseconds):
            action = FaultAction.streamLimit.rawValue
            self.limit = limit
            delayMilliseconds = milliseconds
        case .resetStream(let code):
            action = FaultAction.resetStream.rawValue
            self.code = code
        case .expireToken:
            action = FaultAction.expireToken.rawValue
        }
    }
}

struct FaultListBody: Encodable {
    var faults: [FaultBody]
}

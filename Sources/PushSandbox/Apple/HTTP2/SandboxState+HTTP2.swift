import Foundation
import NIOCore
import PushWire

/// The provider API.
extension SandboxState {
    /// Decides on a complete request, records it, and returns the next action of its connection.
    /// - Parameters:
    ///   - maxStreams: The maximum number of streams that the connection has had open at the same time.
    ///   - applies: Whether faults apply. `false` if a fault has postponed this request before.
    mutating func decide(
        _ request: SandboxRequest, stream: Int, maxStreams: Int = 0, on connection: inout SandboxConnection,
        at now: Date, faults applies: Bool = true
    ) -> SandboxDecision {
        counts.http2.maxStreams = max(counts.http2.maxStreams, maxStreams)
        let gateway: GatewayProtocol =
            connection.listener == .channels ? .channels : request.isBroadcast ? .broadcast : .http2
        let id = gateway == .http2 ? request.id : request.requestID
        var notification = CheckedRequest(
            request: request, gateway: gateway, stream: stream, id: SandboxRules.responseID(id) ?? connection.newID(),
            receivedAt: now)
        if connection.isStopping {
            return refuse(notification, ProviderRefusal(.shutdown), on: connection)
        }
        if applies,
            let fault = faults.trigger(
                ProviderFault.self, over: gateway, token: request.token,
                where: { $0.event == nil || $0.event == request.activityEvent })
        {
            return apply(fault, to: &notification, on: &connection)
        }
        return process(&notification, on: &connection)
    }

    /// A request that is being checked, with the results of the checks.
    struct CheckedRequest {
        let request: SandboxRequest
        /// The protocol: pushes to devices, broadcasts, or channel management.
        let gateway: GatewayProtocol
        let stream: Int
        let id: String
        let receivedAt: Date
        var topic: String?
        /// The push type, derived from the topic if the header is missing.
        var type: PushType?
        var authentication: String?
        /// The detailed reason for rejecting a provider token, for the log.
        var tokenProblem: String?
        /// The fault that changes the effect of an accepted push or broadcast on Live Activities.
        var fault: ActivityFault?
    }

    private mutating func apply(
        _ fault: ProviderFault, to notification: inout CheckedRequest, on connection: inout SandboxConnection
    ) -> SandboxDecision {
        switch fault {
        case .refuse(var refusal, let delay):
            if refusal.status == 410, refusal.timestamp == nil {
                refusal = ProviderRefusal(
                    status: 410, reason: refusal.reason,
                    timestamp: SandboxRules.milliseconds(notification.receivedAt))
            }
            return refuse(notification, refusal, on: connection, effect: delay > 0 ? .late(milliseconds: delay) : nil)
        case .status(let status, let delay):
            // The inbox shows the reason that a client derives from a response without a body.
            var decision = refuse(
                notification, ProviderRefusal(status: status, body: []), on: connection,
                effect: delay > 0 ? .late(milliseconds: delay) : nil)
            decision.response?.body = nil
            return decision
        case .close:
            return record(notification, .closed, on: connection, effect: .close)
        case .closeAccepted:
            var decision = process(&notification, on: &connection, effect: .close)
            decision.response = nil
            return decision
        case .activity(let fault):
            notification.fault = fault
            return process(&notification, on: &connection)
        case .reset:
            return record(notification, .reset, on: connection, effect: .reset)
        case .stopReading(let milliseconds):
            return process(&notification, on: &connection, effect: .pause(milliseconds: milliseconds))
        case .delay(let milliseconds):
            return SandboxDecision(effect: .postpone(milliseconds: milliseconds))
        case .drop:
            return record(notification, .dropped, on: connection)
        case .goAway(let reason, let lastStream, let code):
            let effect = SandboxDecision.Effect.goAway(reason: reason, lastStream: lastStream, code: code)
            guard let lastStream, lastStream >= notification.stream else {
                return record(notification, .unprocessed, on: connection, effect: effect)
            }
            return process(&notification, on: &connection, effect: effect)
        case .limitStreams(let limit, let milliseconds):
            return process(&notification, on: &connection, effect: .limitStreams(limit, milliseconds: milliseconds))
        case .resetStream(let code):
            return record(notification, .unprocessed, on: connection, effect: .resetStream(code: code))
        case .expireToken:
            guard connection.certificate == nil else {
                return refuse(notification, ProviderRefusal(.expiredProviderToken), on: connection)
            }
            connection.authentication.expire(notification.request.authorization)
            return process(&notification, on: &connection)
        }
    }

    /// Applies the rules.
    private mutating func process(
        _ notification: inout CheckedRequest, on connection: inout SandboxConnection,
        effect: SandboxDecision.Effect? = nil
    ) -> SandboxDecision {
        var response = SandboxResponse(id: notification.id, gateway: notification.gateway)
        var broadcast: BroadcastRules.Broadcast?
        do throws(ProviderRefusal) {
            switch notification.gateway {
            case .broadcast: broadcast = try checkBroadcast(&notification, on: &connection)
            case .channels: try manageChannels(&notification, on: &connection, &response)
            default: try check(&notification, on: &connection)
            }
        } catch {
            return refuse(notification, error, on: connection, effect: effect)
        }
        var decision = record(notification, .accepted, on: connection, effect: effect)
        if let broadcast { decision.warnings = deliver(broadcast, notification) }
        if notification.type == .liveactivity, notification.gateway == .http2 {
            decision.warnings = updateActivity(notification, on: &connection)
        }
        decision.response = response
        decision.isAuthenticated = true
        decision.outcome = .accepted
        return decision
    }

    private mutating func check(
        _ notification: inout CheckedRequest, on connection: inout SandboxConnection
    ) throws(ProviderRefusal) {
        let rules = SandboxRules(
            request: notification.request, certificate: connection.certificate, configuration: configuration,
            now: notification.receivedAt)
        try rules.checkForm()
        try authenticate(&notification, on: &connection)
        let (type, topic) = try rules.checkTopic()
        (notification.topic, notification.type) = (topic, type)
        try rules.checkDelivery(type)
        try rules.checkPayload(type)
        let token = notification.request.token
        let activity = type == .liveactivity ? activities[token] : nil
        if let activity { try rules.checkActivity(activity, topic: topic) }
        // A device with the activity's token is one from which the app was removed.
        if activity == nil || devices[token] != nil { try rules.checkDevice(devices[token], topic: topic, type) }
        if let limit = configuration.deviceRate, deviceRate.count(token, at: notification.receivedAt) > limit {
            throw ProviderRefusal(.tooManyRequests)
        }
    }

    /// Checks the client's identity.
    mutating func authenticate(
        _ notification: inout CheckedRequest, on connection: inout SandboxConnection
    ) throws(ProviderRefusal) {
        let rules = SandboxRules(
            request: notification.request, certificate: connection.certificate, configuration: configuration,
            now: notification.receivedAt)
        if let certificate = connection.certificate {
            try rules.checkCertificate(certificate)
            notification.authentication = "certificate"
        } else {
            do throws(SandboxAuthentication.Refusal) {
                let key = try connection.authentication.check(
                    notification.request.authorization, at: notification.receivedAt)
                notification.authentication = "token " + key
            } catch {
                notification.tokenProblem = error.details
                throw ProviderRefusal(error.reason)
            }
        }
    }

    private mutating func refuse(
        _ notification: CheckedRequest, _ refusal: ProviderRefusal, on connection: SandboxConnection,
        effect: SandboxDecision.Effect? = nil
    ) -> SandboxDecision {
        var decision = record(notification, .rejected(refusal), on: connection, effect: effect)
        decision.response = SandboxResponse(
            id: notification.id, gateway: notification.gateway, status: refusal.status, body: refusal.body)
        decision.isAuthenticated = notification.authentication != nil
        decision.outcome =
            (400..<500).contains(refusal.status) && ![410, 429].contains(refusal.status) ? .refused : .neutral
        decision.rejectedToken = notification.tokenProblem.map { (refusal.reason, $0) }
        return decision
    }

    /// Records the request.
    /// - Returns: A decision without a response.
    private mutating func record(
        _ notification: CheckedRequest, _ answer: InboxEntry.Response, on connection: SandboxConnection,
        effect: SandboxDecision.Effect? = nil
    ) -> SandboxDecision {
        guard notification.gateway != .channels else {
            counts.count(answer, over: .channels)
            return SandboxDecision(effect: effect)
        }
        let request = notification.request
        let isPush = notification.gateway == .http2
        let details = ProviderDetails(
            gateway: notification.gateway, stream: notification.stream, id: notification.id, headers: request.headers,
            authentication: notification.authentication)
        // Copy the body: a slice would keep the whole read buffer alive.
        record(
            answer, details, connection: connection.number,
            topic: notification.topic ?? (isPush ? request.topic ?? connection.certificate?.topic : nil),
            token: isPush ? request.token : [], payload: Array(request.body.readableBytesView),
            at: notification.receivedAt)
        return SandboxDecision(effect: effect)
    }

    /// Counts a stream that was refused because it exceeded the limit.
    mutating func streamRefused() {
        counts.http2.streamsOverLimit += 1
    }
}

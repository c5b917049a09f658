import APNSWire
import Foundation

/// Verdicts over HTTP/2.
extension SandboxState {
    /// Judges a whole request, records it and says how its connection goes on.
    ///
    /// Faults come before the sandbox's own rules.
    /// - Parameter applies: false when a fault has had it already.
    mutating func judge(
        _ request: ProviderRequest, stream: Int, on connection: inout ProviderConnection, at now: Date,
        faults applies: Bool = true
    ) -> ProviderVerdict {
        var notification = ProviderNotification(
            request: request, stream: stream, id: ProviderRules.answerID(request) ?? connection.newID(),
            receivedAt: now)
        if connection.isStopping {
            return answer(.init(.shutdown), &notification, on: connection)
        }
        if applies, let action = faults.strike(token: request.token, over: .http2) {
            return suffer(action, &notification, on: &connection)
        }
        return process(&notification, on: &connection)
    }

    /// Applies the rules.
    private mutating func process(
        _ notification: inout ProviderNotification, on connection: inout ProviderConnection
    ) -> ProviderVerdict {
        do throws(ProviderRefusal) {
            try check(&notification, on: &connection)
        } catch {
            return answer(error, &notification, on: connection)
        }
        record(notification, .accepted, on: connection)
        return ProviderVerdict(
            answer: ProviderAnswer(id: notification.id), isAuthenticated: true, outcome: .accepted)
    }

    private mutating func check(
        _ notification: inout ProviderNotification, on connection: inout ProviderConnection
    ) throws(ProviderRefusal) {
        let rules = ProviderRules(
            request: notification.request, connection: connection, now: notification.receivedAt)
        try rules.checkForm()
        if let certificate = connection.certificate {
            try rules.checkCertificate(certificate)
            notification.authentication = "certificate"
        } else {
            do throws(ProviderAuthentication.Refusal) {
                let key = try connection.authentication.check(
                    notification.request.authorization, policy: connection.policy, at: notification.receivedAt)
                notification.authentication = "token " + key
            } catch {
                notification.why = error.why
                throw ProviderRefusal(error.reason)
            }
        }
        let (type, topic) = try rules.checkTopic()
        notification.topic = topic
        try rules.checkDelivery(type)
        try rules.checkPayload(type)
        let token = notification.request.token
        try rules.checkDevice(devices[token], topic: topic, type)
        if let limit = policy.deviceRate, deviceRate.count(token, at: notification.receivedAt) > limit {
            throw ProviderRefusal(.tooManyRequests)
        }
    }

    private mutating func suffer(
        _ action: Fault.Action, _ notification: inout ProviderNotification,
        on connection: inout ProviderConnection
    ) -> ProviderVerdict {
        switch action {
        case .close:
            record(notification, .closed, on: connection)
            return ProviderVerdict(effect: .close)
        case .reset:
            record(notification, .reset, on: connection)
            return ProviderVerdict(effect: .reset)
        case .drop:
            record(notification, .dropped, on: connection)
            return ProviderVerdict()
        case .delay(let milliseconds):
            return ProviderVerdict(effect: .postpone(milliseconds: milliseconds))
        case .stopReading(let milliseconds):
            var verdict = process(&notification, on: &connection)
            verdict.effect = .pause(milliseconds: milliseconds)
            return verdict
        case .provider(let fault):
            return suffer(fault, &notification, on: &connection)
        case .status:
            // A fault of the binary protocol strikes only there.
            return process(&notification, on: &connection)
        }
    }

    private mutating func suffer(
        _ fault: ProviderFault, _ notification: inout ProviderNotification, on connection: inout ProviderConnection
    ) -> ProviderVerdict {
        switch fault {
        case .answer(var refusal, let delay):
            if refusal.status == 410, refusal.timestamp == nil, refusal.reason != ProviderFault.noReason {
                refusal = ProviderRefusal(
                    status: 410, reason: refusal.reason,
                    timestamp: ProviderRules.milliseconds(notification.receivedAt))
            }
            var verdict = answer(refusal, &notification, on: connection)
            if delay > 0 { verdict.effect = .late(milliseconds: delay) }
            return verdict
        case .closeAccepted:
            var verdict = process(&notification, on: &connection)
            verdict.answer = nil
            verdict.effect = .close
            return verdict
        case .goAway(let reason, let lastStream, let code):
            let isProcessed = lastStream.map { $0 >= notification.stream } ?? false
            var verdict = ProviderVerdict()
            if isProcessed {
                verdict = process(&notification, on: &connection)
            } else {
                record(notification, .unprocessed, on: connection)
            }
            verdict.effect = .goAway(reason: reason, lastStream: lastStream, code: code)
            return verdict
        case .limitStreams(let limit, let milliseconds):
            var verdict = process(&notification, on: &connection)
            verdict.effect = .limitStreams(limit, milliseconds: milliseconds)
            return verdict
        case .resetStream(let code):
            record(notification, .unprocessed, on: connection)
            return ProviderVerdict(effect: .resetStream(code: code))
        case .expireToken:
            guard connection.certificate == nil else {
                return answer(ProviderRefusal(.expiredProviderToken), &notification, on: connection)
            }
            connection.authentication.expire(notification.request.authorization)
            return process(&notification, on: &connection)
        }
    }

    private mutating func answer(
        _ refusal: ProviderRefusal, _ notification: inout ProviderNotification, on connection: ProviderConnection
    ) -> ProviderVerdict {
        // What a fault answers without a body is shown as a client would call it.
        let shown =
            refusal.reason == ProviderFault.noReason
            ? ProviderRefusal(status: refusal.status, body: []) : refusal
        record(notification, .rejected(shown), on: connection)
        let lowers = (400..<500).contains(refusal.status) && ![410, 429].contains(refusal.status)
        return ProviderVerdict(
            answer: ProviderAnswer(id: notification.id, refusal: refusal),
            isAuthenticated: notification.authentication != nil, outcome: lowers ? .refused : .neutral,
            why: notification.why)
    }

    private mutating func record(
        _ notification: ProviderNotification, _ answer: InboxEntry.Answer, on connection: ProviderConnection
    ) {
        stats.count(answer, over: .http2)
        inbox.append { id in notification.entry(id: id, answer: answer, on: connection) }
    }
}

/// A request on its way through the rules, and what they found out about it.
private struct ProviderNotification {
    let request: ProviderRequest
    let stream: Int
    let id: String
    let receivedAt: Date
    var topic: String?
    var authentication: String?
    /// Why a provider token was refused, for the log.
    var why: String?

    func entry(id entryID: Int, answer: InboxEntry.Answer, on connection: ProviderConnection) -> InboxEntry {
        InboxEntry(
            id: entryID, connection: connection.number, topic: topic ?? request.topic ?? connection.certificate?.topic,
            token: request.token,
            // Copied: as a slice it would keep the whole read buffer alive.
            payload: Array(request.body.readableBytesView), command: nil, identifier: nil, expiration: nil,
            priority: nil, receivedAt: receivedAt, answer: answer,
            request: .init(
                stream: stream, apnsID: id, pushType: request.pushType, headers: request.headers,
                authentication: authentication))
    }
}

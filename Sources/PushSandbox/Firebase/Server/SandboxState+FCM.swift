import Foundation

/// A request to send a message with FCM.
struct FCMRequest: Sendable {
    /// The project in the path.
    let project: String
    let authorization: String?
    let body: [UInt8]
    let message: Result<FCMMessage, FCMRefusal>

    init(project: String, authorization: String?, body: [UInt8]) {
        self.project = project
        self.authorization = authorization
        self.body = body
        message = Result { () throws(FCMRefusal) in try FCMMessage(body) }
    }

    /// The text of the recipient. `nil` if the message could not be read.
    var target: String? {
        try? message.get().target.text
    }
}

/// An error response of FCM or of the token endpoint.
enum FCMFailure: Sendable {
    case message(FCMRefusal)
    case grant(AccessTokens.Refusal)
    /// A page in HTML, as in an outage.
    case page(status: Int, retryAfter: String?)
}

/// The properties of a message with FCM.
struct FCMDetails: InboxDetails {
    /// The recipient. `nil` if the message could not be read.
    let target: String?
    /// The name that the response gave to the message. `nil` if it was rejected.
    let name: String?
    let project: String
    /// Priority, lifetime and collapse key.
    let headers: [String: String]

    var gateway: GatewayProtocol { .fcm }
    var json: JSONMembers { ["target": target, "name": name, "project": project, "headers": headers] }

    /// Reads a message. An app that gets data shows `title` and `body`, as `docs/fcm.md` describes it.
    func effect(of payload: [UInt8], receiver: InboxEntry.PhoneDelivery.Receiver?) -> Screen.Effect? {
        guard let message = try? FCMMessage(payload), !message.isOnlyChecked else { return nil }
        let (data, id) = (message.data, message.data["message_id"])
        guard message.kind == .data else {
            guard receiver != .onMessageReceived else { return nil }
            return Screen.Content(
                title: message.title, body: message.body, key: message.tag, message: id,
                ring: message.hasSound ? .always : .never
            ).map { .show($0) }
        }
        let key = data["tag"] ?? id.map { "message-\($0)" }
        if data["type"] == "clear" { return .remove(key: key, message: id) }
        return Screen.Content(
            title: data["title"], body: data["body"], key: key, message: id,
            ring: data["sound"] != nil && data["update"] != "true" ? .always : .never
        ).map { .show($0) }
    }
}

extension InboxEntry.Response {
    static func failed(_ refusal: FCMRefusal) -> Self { .error(refusal.shortName, message: refusal.message) }
}

extension InboxEntry.PhoneDelivery {
    fileprivate init(_ installation: Int, _ change: FCMPhone.Change) {
        self.init(installation: installation, progress: change.progress, receiver: change.receiver)
    }
}

extension SandboxState {
    /// Decides on a message, and records it.
    ///
    /// - Parameter applies: Whether faults apply. `false` if a fault has postponed this message before.
    /// - Returns: With `accept`, the message's name.
    mutating func decide(
        _ request: FCMRequest, at now: Date, faults applies: Bool = true, randomBytes: (Int) -> [UInt8]
    ) -> ServiceDecision<String, FCMFailure> {
        let token = request.target.map(SandboxInstallation.token) ?? []
        if applies, let fault = faults.trigger(FirebaseFault.self, token: token) {
            switch fault {
            case .refuse(var refusal, let retry, let delay):
                refusal.retryAfter = retry?.text(at: now)
                record(request, token, .failed(refusal), at: now)
                return .refuse(.message(refusal), delay: delay)
            case .fail(let status, let retry, let delay):
                record(request, token, .failed(FCMRefusal(status, "\(status)", nil, "a fault of the sandbox")), at: now)
                return .refuse(.page(status: status, retryAfter: retry?.text(at: now)), delay: delay)
            case .expireToken: accessTokens?.expireAll()
            case .delay(let milliseconds): return .postpone(milliseconds: milliseconds)
            case .drop:
                record(request, token, .dropped, at: now)
                return .ignore
            case .end(let end):
                record(request, token, .closed, at: now)
                return .end(end)
            }
        }
        do throws(FCMRefusal) {
            try check(request, at: now)
        } catch {
            record(request, token, .failed(error), at: now)
            return .refuse(.message(error))
        }
        let microseconds = Int64(now.timeIntervalSince1970 * 1_000_000)
        let name = "projects/\(request.project)/messages/0:\(microseconds)%\(randomBytes(8).hex)"
        record(request, token, .accepted, name: name, at: now)
        if let message = try? request.message.get(), !message.isOnlyChecked {
            let id = inbox.lastID
            let changes = installations.deliver(message, project: request.project, id: id, at: now)
            inbox.notePhones(changes.filter { $0.change.message == id }.map { .init($0.installation, $0.change) })
            for (installation, change) in changes where change.message != id { note(change, of: installation) }
        }
        return .accept(name)
    }

    private mutating func note(_ change: FCMPhone.Change, of installation: Int) {
        inbox.recordPhone(.init(installation, change), of: change.message)
    }

    /// Installs the app. Removes it first from a phone that has it already.
    mutating func install(
        _ target: String, project: String, at now: Date
    ) throws(LimitReached) -> SandboxInstallation {
        // The phone's earlier app loses the messages that wait for it.
        if let earlier = installations[target] { _ = removeInstallation(id: earlier.id, at: now) }
        return try installations.install(target, project: project, at: now)
    }

    /// Removes the app from a phone.
    /// - Returns: The installation. `nil` if there is none with this number.
    mutating func removeInstallation(id: Int, at now: Date) -> SandboxInstallation? {
        guard let (installation, changes) = installations.remove(id: id, at: now) else { return nil }
        for change in changes { note(change, of: id) }
        return installation
    }

    /// Changes the state of a phone.
    /// - Returns: The installation. `nil` if there is no app with this number.
    mutating func setInstallation(
        id: Int, connection: FCMPhone.Connection?, app: FCMPhone.AppState?, at now: Date
    ) -> SandboxInstallation? {
        guard let (installation, changes) = installations.set(id: id, connection: connection, app: app, at: now) else {
            return nil
        }
        for change in changes { note(change, of: id) }
        return installation
    }

    private func check(_ request: FCMRequest, at now: Date) throws(FCMRefusal) {
        guard let tokens = accessTokens else { throw .unauthenticated }
        try tokens.check(authorization: request.authorization, at: now)
        guard request.project == tokens.project else { throw .otherProject(request.project) }
        let message = try request.message.get()
        switch message.target {
        case .topic, .condition: return
        case .installation(let target), .token(let target):
            guard let installation = installations[target] else {
                if configuration.strict { throw FCMRefusal(.unregistered) }
                return
            }
            guard installation.project == request.project else { throw FCMRefusal(.senderMismatch) }
            guard installation.removedAt == nil else { throw FCMRefusal(.unregistered) }
        }
    }

    private mutating func record(
        _ request: FCMRequest, _ token: [UInt8], _ answer: InboxEntry.Response, name: String? = nil, at now: Date
    ) {
        let message = try? request.message.get()
        var options: [String: String] = [:]
        if let message {
            options["priority"] = message.isHighPriority ? "high" : "normal"
            options["ttl"] = "\(message.lifetime)s"
            options["collapse_key"] = message.collapseKey
            if message.isOnlyChecked { options["validate_only"] = "true" }
        }
        record(
            answer, FCMDetails(target: request.target, name: name, project: request.project, headers: options),
            token: token, payload: request.body, at: now)
    }

    /// Decides on a request for an access token.
    mutating func decide(
        _ form: [String: String], at now: Date, faults applies: Bool = true, randomBytes: (Int) -> [UInt8]
    ) -> ServiceDecision<AccessTokens.Grant, FCMFailure> {
        if applies, let fault = faults.trigger(GrantFault.self) {
            switch fault {
            case .refuse(let refusal, let delay): return .refuse(.grant(refusal), delay: delay)
            case .fail(let status, let retry, let delay):
                return .refuse(.page(status: status, retryAfter: retry?.text(at: now)), delay: delay)
            case .delay(let milliseconds): return .postpone(milliseconds: milliseconds)
            case .drop: return .ignore
            case .close: return .end(.close)
            }
        }
        do throws(AccessTokens.Refusal) {
            guard let grant = try accessTokens?.grant(form, at: now, randomBytes: randomBytes) else {
                return .end(.close)
            }
            return .accept(grant)
        } catch {
            return .refuse(.grant(error))
        }
    }
}

/// A change of a webhook by its owner.
package struct WebhookEdit: Sendable, Hashable {
    package var settings: WebhookSettings
    /// ``Webhook/State/active`` resumes a paused or ended webhook. `nil` keeps the state.
    package var state: Webhook.State?

    package init(settings: WebhookSettings, state: Webhook.State? = nil) {
        self.settings = settings
        self.state = state
    }
}

/// Events to send again.
package enum WebhookRedelivery: Sendable, Hashable {
    /// The maximum number of events of one call.
    package static let most = 1000

    case events([Int64])
    /// The oldest ones in a state.
    case all(WebhookEvent.State)

    /// Chooses all events in a state. Those that were delivered are chosen by their ids.
    package static func all(in text: String, field: String) throws(ChatError) -> WebhookRedelivery {
        guard let state = WebhookEvent.State(rawValue: text), state == .failed || state == .held else {
            throw .invalid(field, "must be failed or held")
        }
        return .all(state)
    }
}

/// An event that a relay has leased, with all that its request needs.
package struct WebhookAttempt: Sendable, Hashable {
    /// Identifies the lease of the webhook.
    package let lease: Int64
    package let event: WebhookEvent
    package let settings: WebhookSettings
    /// The secrets that sign, the newest first.
    package let secrets: [WebhookSecret]
    /// The webhook's failures before this attempt.
    package let failures: Int
    /// The message as it is now. `nil` if the event is not about one, or if it was deleted.
    package let record: MessageRecord?

    package init(
        lease: Int64, event: WebhookEvent, settings: WebhookSettings, secrets: [WebhookSecret], failures: Int,
        record: MessageRecord?
    ) {
        self.lease = lease
        self.event = event
        self.settings = settings
        self.secrets = secrets
        self.failures = failures
        self.record = record
    }
}

/// The numbers of webhooks and their events.
package struct WebhookTotals: Sendable, Hashable {
    /// The number up to which events are counted.
    package static let counted = 100_000

    /// Active ones whose last requests have not failed.
    package var active = 0
    /// Active ones whose last requests have failed, at least ``WebhookLifeCycle/orderedAttempts``.
    package var failing = 0
    package var paused = 0
    package var ended = 0
    package var waiting = 0
    package var held = 0

    package init() {}
}

/// Stores webhooks and their events. An event is in the transaction of the change that it reports, whichever program
/// makes that change. A relay without webhooks has no work.
package protocol WebhookStore: Sendable {
    /// - Throws: ``ChatError/Code/conflict`` if there are ``WebhookSettings/most`` webhooks. ``ChatError/Code/notFound``
    ///   if there is no such token.
    func create(
        _ settings: WebhookSettings, secret: WebhookSecret, by moderator: Moderator
    ) async throws(ChatError) -> Webhook
    /// Returns all webhooks in the order of their creation.
    func webhooks() async throws(ChatError) -> [Webhook]
    func webhook(_ id: Int64) async throws(ChatError) -> Webhook?
    /// - Returns: The changed webhook. `nil` if there is none.
    /// - Throws: ``ChatError/Code/notFound`` if there is no such token.
    func change(_ id: Int64, to edit: WebhookEdit, by moderator: Moderator) async throws(ChatError) -> Webhook?
    /// Deletes a webhook with its events.
    ///
    /// - Returns: False if there is none.
    func delete(_ id: Int64, by moderator: Moderator) async throws(ChatError) -> Bool
    /// Replaces the secret. The previous one signs as well for ``Webhook/rotation``.
    func rotate(
        _ id: Int64, to secret: WebhookSecret, by moderator: Moderator
    ) async throws(ChatError) -> Webhook?
    /// Adds an event without content, which goes before all others, and makes the webhook due.
    ///
    /// - Returns: The event's id. `nil` if there is no such webhook.
    /// - Throws: ``ChatError/Code/conflict`` if the webhook is not active.
    func test(_ id: Int64) async throws(ChatError) -> Int64?
    /// Returns events, newest first.
    func deliveries(
        of id: Int64, in state: WebhookEvent.State?, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<WebhookEvent>
    /// Makes events wait again.
    ///
    /// - Returns: The number of events.
    /// - Throws: ``ChatError/Code/conflict`` if the webhook has ended.
    func redeliver(_ events: WebhookRedelivery, of id: Int64) async throws(ChatError) -> Int

    /// Leases the next event of each webhook that has one. A webhook has one event at a time under way, over all
    /// relays, and an event is overtaken only after ``WebhookLifeCycle/orderedAttempts``.
    func lease() async throws(ChatError) -> [WebhookAttempt]
    /// Records an attempt. If another relay has leased the event since, only a delivery counts.
    func settle(
        _ attempt: WebhookAttempt, _ settlement: WebhookSettlement, _ response: WebhookEvent.Response
    ) async throws(ChatError)
    /// Ends the lease of an event that was not sent.
    func release(_ attempt: WebhookAttempt) async throws(ChatError)
    /// Returns how many messages of bots a room has got since a time, counted among its newest messages.
    func botMessages(in room: SecretCode, since: Timestamp) async throws(ChatError) -> Int
    /// Replaces waiting events above the largest number with one event of the type `webhook.gap`, fails those of webhooks
    /// that have ended, and ends triggers that no webhook needs.
    func dropExcess() async throws(ChatError)
    func totals() async throws(ChatError) -> WebhookTotals
}

/// A request of a webhook. The transport signs it.
package struct WebhookRequest: Sendable, Hashable {
    package let url: String
    /// The same for every attempt. Receivers recognise a second delivery by it.
    package let id: String
    /// The time of this attempt.
    package let time: Timestamp
    package let body: [UInt8]
    /// The keys of the signatures.
    package let secrets: [WebhookSecret]

    package init(url: String, id: String, time: Timestamp, body: [UInt8], secrets: [WebhookSecret]) {
        self.url = url
        self.id = id
        self.time = time
        self.body = body
        self.secrets = secrets
    }
}

/// The response of a receiver.
package struct WebhookResponse: Sendable, Hashable {
    /// The maximum size of a body. A transport cuts the rest.
    package static let bodyLimit = 65_536

    package let outcome: WebhookOutcome
    /// Whether the body is JSON, by its media type.
    package let isJSON: Bool
    /// The body, or its first bytes.
    package let body: [UInt8]

    package init(_ outcome: WebhookOutcome, isJSON: Bool = false, body: [UInt8] = []) {
        self.outcome = outcome
        self.isJSON = isJSON
        self.body = body
    }
}

/// Sends requests of webhooks.
package protocol WebhookTransport: Sendable {
    /// Sends a request within a time limit, and only to an address that the operator's rules admit. Follows no
    /// redirection.
    func send(_ request: WebhookRequest) async -> WebhookResponse
}

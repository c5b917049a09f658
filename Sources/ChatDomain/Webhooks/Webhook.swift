import Foundation

/// A kind of event that a webhook can ask for. The raw value is the `type` of the request's body.
package enum WebhookEventKind: String, Sendable, Hashable, CaseIterable {
    case posted = "message.posted"
    case edited = "message.edited"
    case cleared = "message.cleared"
    case resolved = "message.resolved"
    case deleted = "message.deleted"
    case joined = "member.joined"
    case left = "member.left"
    /// Pushes of a message or notification failed for good.
    case pushFailed = "push.failed"
    /// A push service reported that an app was removed from a device.
    case deviceGone = "device.gone"

    /// The type of the event that `:test` sends.
    package static let test = "webhook.test"
    /// The type of the event that replaces events that were dropped.
    package static let gap = "webhook.gap"

    /// The events of a webhook that names none.
    package static let usual: Set<WebhookEventKind> = [.posted, .edited, .cleared, .resolved, .deleted, .joined, .left]

    /// Whether the event is about a message, and so about its author.
    package var isAboutMessage: Bool { rawValue.hasPrefix("message.") }
    /// Whether one event stands for many pushes or devices.
    package var isFolded: Bool { self == .pushFailed || self == .deviceGone }
    package var isAboutMember: Bool { rawValue.hasPrefix("member.") }

    package init(parsing text: String, field: String = "events") throws(ChatError) {
        guard let kind = WebhookEventKind(rawValue: text) else {
            throw .invalid(field, "must be one of " + Self.allCases.map(\.rawValue).joined(separator: ", "))
        }
        self = kind
    }
}

/// The key that signs the requests of a webhook (Standard Webhooks 1.0.0).
package struct WebhookSecret: Sendable, Hashable {
    /// The prefix of every secret, so that secret scanners recognise it.
    package static let prefix = "whsec_"

    package let bytes: [UInt8]

    /// Creates a random secret of 32 bytes.
    package static func random() -> WebhookSecret {
        WebhookSecret(stored: (0..<32).map { _ in UInt8.random(in: .min ... .max) })
    }

    /// Wraps a secret that was created before it was stored.
    package init(stored bytes: [UInt8]) {
        self.bytes = bytes
    }

    /// The form in which receivers' libraries take it.
    package var text: String { Self.prefix + Data(bytes).base64EncodedString() }
}

/// The part of a webhook that its owner chooses.
package struct WebhookSettings: Sendable, Hashable {
    /// The maximum number of webhooks. Each may have one request under way.
    package static let most = 100

    /// The address to which events are sent. It may contain a secret, so it is never logged.
    package var url: String
    /// The only room whose events are sent. `nil` for all rooms.
    package var room: SecretCode?
    /// The access token whose messages alone are reported. `nil` for all messages.
    package var token: Int64?
    package var events: Set<WebhookEventKind>
    /// The name of the bot. A response to an event of a bot may be a message. `nil` for a webhook without answers.
    package var bot: Nickname?
    /// Whether a bot gets only messages that contain `@` and its name.
    package var onlyMentions: Bool

    /// Checks which fields may go together. The rules for receivers' addresses check the URL.
    package init(
        url: String, room: SecretCode? = nil, token: Int64? = nil, events: Set<WebhookEventKind>? = nil,
        bot: Nickname? = nil, onlyMentions: Bool = false
    ) throws(ChatError) {
        let usual = token == nil ? WebhookEventKind.usual : WebhookEventKind.usual.filter(\.isAboutMessage)
        let events = events ?? (bot == nil ? usual : [.posted])
        guard !events.isEmpty else { throw .invalid("events", "must not be empty") }
        if token != nil, !events.allSatisfy(\.isAboutMessage) {
            throw .invalid("events", "must be about messages, because the webhook is for a token")
        }
        if room != nil, events.contains(.deviceGone) {
            throw .invalid("events", "has device.gone, which concerns the whole relay: leave out room")
        }
        if bot != nil, !events.contains(.posted) { throw .invalid("events", "must have message.posted for a bot") }
        if onlyMentions, bot == nil { throw .invalid("only_mentions", "needs bot") }
        self.init(stored: url, room: room, token: token, events: events, bot: bot, onlyMentions: onlyMentions)
    }

    /// Wraps values that were checked before they were stored.
    package init(
        stored url: String, room: SecretCode?, token: Int64?, events: Set<WebhookEventKind>, bot: Nickname?,
        onlyMentions: Bool
    ) {
        self.url = url
        self.room = room
        self.token = token
        self.events = events
        self.bot = bot
        self.onlyMentions = onlyMentions
    }

    /// Scheme, host and port of the URL, for logs and records.
    package var origin: String {
        let parts = url.split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false)
        return parts.prefix(2).joined(separator: "/") + "/" + (parts.dropFirst(2).first ?? "").prefix { $0 != "?" }
    }

    /// Whether a bot gets this text. It does not get its own messages in any case.
    package func hears(_ text: String) -> Bool {
        guard onlyMentions, let bot else { return true }
        let (text, name) = (text.lowercased(), "@" + bot.text.lowercased())
        var rest = text[...]
        while let found = rest.range(of: name) {
            rest = rest[found.upperBound...]
            // `@anna` does not mention the bot `ann`.
            guard let next = rest.first, next.isLetter || next.isNumber else { return true }
        }
        return false
    }
}

/// A webhook, which sends events to a program.
package struct Webhook: Sendable, Hashable {
    package enum State: String, Sendable, Hashable, CaseIterable {
        case active
        /// Events are kept, but not sent, until an operator resumes the webhook.
        case paused
        /// The receiver has answered 410. Events are no longer kept.
        case ended
    }

    package let id: Int64
    package let settings: WebhookSettings
    package let state: State
    /// The reason of a pause or the end.
    package let reason: String?
    /// The number of requests that have failed since the last success.
    package let failures: Int
    /// Until when the previous secret also signs. `nil` if there is none.
    package let rotatesUntil: Timestamp?
    /// The number of events that are not sent yet, counted up to ``countedEvents`` and one more.
    package let waiting: Int
    package let lastSuccess: Timestamp?
    package let createdAt: Timestamp

    /// The number of waiting events up to which they are counted.
    package static let countedEvents = 10_000
    /// The time for which the previous secret also signs after a rotation.
    package static let rotation = Duration.seconds(86_400)

    package init(
        id: Int64, settings: WebhookSettings, state: State = .active, reason: String? = nil, failures: Int = 0,
        rotatesUntil: Timestamp? = nil, waiting: Int = 0, lastSuccess: Timestamp? = nil, createdAt: Timestamp
    ) {
        self.id = id
        self.settings = settings
        self.state = state
        self.reason = reason
        self.failures = failures
        self.rotatesUntil = rotatesUntil
        self.waiting = waiting
        self.lastSuccess = lastSuccess
        self.createdAt = createdAt
    }
}

extension Webhook {
    /// The webhook as JSON, with a secret that was just created.
    package func json(with secret: WebhookSecret) -> JSONObject {
        var json = json
        json["secret"] = .string(secret.text)
        return json
    }

    /// The webhook as JSON, without its secrets.
    package var json: JSONObject {
        [
            "id": .number(id), "url": .string(settings.url), "room": .optional(settings.room?.text),
            "token": settings.token.map { .number($0) } ?? .null,
            "events": .texts(WebhookEventKind.allCases.filter(settings.events.contains).map(\.rawValue)),
            "bot": .optional(settings.bot?.text), "only_mentions": .bool(settings.onlyMentions),
            "state": .string(state.rawValue), "reason": .optional(reason), "failures": .number(failures),
            "waiting": .number(waiting), "last_success_at": .optional(lastSuccess),
            "old_secret_until": .optional(rotatesUntil), "created_at": .time(createdAt),
        ]
    }
}

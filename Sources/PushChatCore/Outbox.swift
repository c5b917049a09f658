public import Foundation

/// A message that the relay has not accepted yet.
public struct OutboxMessage: Sendable, Hashable, Codable, Identifiable {
    /// The idempotency key: the relay accepts a message with this key once, however often it is sent.
    public let id: String
    public let text: String
    /// The time at which the user wrote the message.
    public let writtenAt: Date

    public init(id: String = UUID().uuidString, text: String, writtenAt: Date = Date()) {
        self.id = id
        self.text = text
        self.writtenAt = writtenAt
    }
}

/// The messages that wait for the relay, in the order in which they were written. A pure value.
package struct Outbox: Sendable, Hashable, Codable {
    /// The reaction to a failed attempt.
    package enum Reaction: Sendable, Hashable {
        /// Try the first message again after this time.
        case retry(after: Duration)
        /// The relay has rejected this message for good. Continue with the next one.
        case dropped(OutboxMessage, RelayRejection)
        /// No message can be sent.
        case end(PushChatError)
    }

    package private(set) var messages: [OutboxMessage]
    private var backoff = Outbox.freshDelay

    private static let freshDelay = RetryDelay(first: .milliseconds(300), longest: .seconds(5))

    package init(_ messages: [OutboxMessage] = []) {
        self.messages = messages
    }

    package init(from decoder: any Decoder) throws {
        self.init(try decoder.singleValueContainer().decode([OutboxMessage].self))
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(messages)
    }

    package mutating func append(_ message: OutboxMessage) { messages.append(message) }

    /// Withdraws a message. Has no effect if the relay has accepted it.
    package mutating func remove(_ id: OutboxMessage.ID) { messages.removeAll { $0.id == id } }

    /// Records that the relay has accepted a message.
    package mutating func accepted(_ id: OutboxMessage.ID) {
        remove(id)
        backoff.reset()
    }

    /// Decides what to do after an attempt to send the message has failed.
    package mutating func failed(_ message: OutboxMessage, _ error: PushChatError, random: Double) -> Reaction {
        switch error {
        case .rejected(let rejection) where !rejection.isTemporary && !error.isFromElsewhere:
            guard rejection.concernsContent else { return .end(error) }
            accepted(message.id)
            return .dropped(message, rejection)
        case .rejected(let rejection):
            return .retry(after: max(backoff.delay(random: random), rejection.retryAfter ?? .zero))
        case .unreachable, .connectionLost, .unexpectedResponse: return .retry(after: backoff.delay(random: random))
        case .left, .storage, .cancelled: return .end(error)
        }
    }
}

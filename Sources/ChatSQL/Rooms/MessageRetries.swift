package import ChatDomain
import Crypto
import Foundation

/// The idempotency keys of posts with a key and of changes: the table `message_retries`.
package enum MessageRetries {
    /// The message of an earlier request with the same idempotency key. `nil` if there was none.
    ///
    /// - Throws: ``ChatError/Code/idempotencyConflict`` if the earlier request was another one.
    static func message(
        of author: MemberID, _ key: String?, _ digest: [UInt8], _ transaction: some SQLTransaction
    ) throws -> MessageID? {
        guard let key else { return nil }
        let row = try transaction.row(
            """
            SELECT r.message_id, r.digest FROM message_retries r
            WHERE r.author = $1 AND r.idempotency_key = $2 AND \(isKnown("r"))
            """, [.text(author.text), .text(key)])
        guard let row else { return nil }
        guard try row.bytes(1) == digest else { throw ChatError.idempotencyConflict }
        return try row.int(0)
    }

    /// A condition: the message of a row still exists, or was deleted recently.
    private static func isKnown(_ row: String) -> String {
        """
        (EXISTS (SELECT 1 FROM message_states s WHERE s.message_id = \(row).message_id)
            OR EXISTS (SELECT 1 FROM scheduled_messages c WHERE c.scheduled_id = \(row).message_id)
            OR \(row).message_id < 0)
        """
    }

    /// The `message_id` of requests for a scheduled message that was cancelled. A late retry does not schedule it again.
    static func cancelled(_ scheduled: MessageID) -> MessageID { -scheduled }

    /// Assigns the requests for a scheduled message to the message that it has become, or to ``cancelled(_:)``.
    static func move(from scheduled: MessageID, to message: MessageID, _ transaction: some SQLTransaction) throws {
        try transaction.pipeline(
            "UPDATE message_retries SET message_id = $2 WHERE message_id = $1", [.int(scheduled), .int(message)])
    }

    /// Remembers a request. Forgets the oldest one of the message beyond the limit.
    ///
    /// - Parameters:
    ///   - number: The number of the change, or of the message.
    ///   - isNew: Whether the transaction has found no request with this key.
    static func remember(
        of author: MemberID, _ key: String?, _ digest: [UInt8], message: MessageID, number: MessageID,
        at now: Timestamp,
        isNew: Bool = true, _ transaction: some SQLTransaction
    ) throws {
        guard let key else { return }
        let count = try transaction.run(
            """
            INSERT INTO message_retries (author, idempotency_key, message_id, number, digest, time_used)
            VALUES ($1, $2, $3, $4, $5, at($6)) ON CONFLICT (author, idempotency_key) DO UPDATE
                SET message_id = excluded.message_id, number = excluded.number, digest = excluded.digest,
                    time_used = excluded.time_used
                WHERE NOT \(isKnown("message_retries"))
            """, [.text(author.text), .text(key), .int(message), .int(number), .bytes(digest), .time(now)])
        // A request for another room has used the key since this transaction looked for it.
        guard count == 1 || !isNew else { throw transaction.collision(with: "an idempotency key") }
        try transaction.pipeline(
            """
            DELETE FROM message_retries WHERE message_id = $1 AND number <= (
                SELECT number FROM message_retries WHERE message_id = $1 ORDER BY number DESC LIMIT 1 OFFSET $2)
            """, [.int(message), .int(MessageChangeLimits.retries)])
    }

    /// Whether a post without a key repeats the post of a message whose text was changed since.
    package static func hasFirstContent(
        _ request: PostRequest, of message: MessageID, room: SecretCode, _ transaction: some SQLTransaction
    ) throws -> Bool {
        let digest = digest(ofPost: request.content, key: nil, room: room)
        do {
            return try self.message(of: request.member, request.idempotencyKey, digest, transaction) == message
        } catch let error as ChatError where error.code == .idempotencyConflict {
            return false
        }
    }

    // MARK: - Digests

    static func digest(
        ofPost content: MessageContent, key: MessageKey?, room: SecretCode, renotify: Bool = false,
        notBefore: Timestamp? = nil
    ) -> [UInt8] {
        digest([
            .string("post"), .optional(key?.text), .string(room.text), json(content), .bool(renotify),
            notBefore.map { .number($0.milliseconds) } ?? .null,
        ])
    }

    static func digest(of request: MessageChangeRequest) -> [UInt8] {
        let message: JSONValue =
            switch request.message {
            case .id(let id): .number(id)
            case .key(let key): .string(key.text)
            }
        let action: [JSONValue] =
            switch request.action {
            case .edit(let content, let revision, let renotify, let notBefore):
                [
                    .string("edit"), json(content), revision.map { .number($0) } ?? .null, .bool(renotify),
                    notBefore.map { .number($0.milliseconds) } ?? .null,
                ]
            case .clear: [.string("clear")]
            case .resolve(let content, let renotify):
                [.string("resolve"), content.map(json) ?? .null, .bool(renotify)]
            case .delete: [.string("delete")]
            }
        return digest([message, .optional(request.author.room?.text)] + action)
    }

    private static func json(_ content: MessageContent) -> JSONValue {
        .array([
            .string(content.text.text), .optional(content.title), .optional(content.link),
            content.priority.map { .number($0) } ?? .null, .optional(content.sound), .bool(content.isUrgent),
            .optional(content.extras.ofCaller.stored),
        ])
    }

    private static func digest(_ values: [JSONValue]) -> [UInt8] {
        Array(SHA256.hash(data: Data(JSONValue.array(values).description.utf8)))
    }
}

extension JSONValue {
    fileprivate static func optional(_ text: String?) -> JSONValue { text.map { .string($0) } ?? .null }
}

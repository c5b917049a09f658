/// A message that ntfy's app on iPhones has to fetch. An upstream server tells the app, which then polls the room.
package struct PollRequest: Sendable, Hashable {
    /// The id of the room: ``ClientRoom/id``.
    package let room: Int64
    package let alias: RoomAlias
    package let message: MessageID
    /// The number of earlier requests for this message that have failed.
    package let attempts: Int

    package init(room: Int64, alias: RoomAlias, message: MessageID, attempts: Int) {
        self.room = room
        self.alias = alias
        self.message = message
        self.attempts = attempts
    }

    /// The time after an app's last poll for which requests announce the room's messages.
    package static let pollLifetime = Duration.seconds(30 * 86_400)
    /// The age at which a message is no longer announced.
    package static let lifetime = Duration.seconds(12 * 3600)
    /// The time in which a relay has to settle a request. After it, another relay may send the request.
    package static let lease = Duration.seconds(60)
}

/// The result of a request to the upstream server.
package enum PollRequestResult: Sendable, Hashable {
    /// The server has accepted or refused the message for good.
    case done
    /// The request failed. The next one is due at this time.
    case failed(next: Timestamp)
    /// Nothing was sent.
    case released
}

/// Stores which rooms ntfy's app has polled, and how far an upstream server knows their messages. The next message of
/// each of these rooms is a queue of requests, which needs no rows per message.
package protocol PollRequestStore: Sendable {
    /// Records that an app has polled a room by its alias. Requests announce messages from now on. Writes at most
    /// once an hour. Does nothing if the room has no alias.
    func polled(_ room: SecretCode) async throws(ChatError)
    /// Leases the next message of rooms that were polled, oldest messages first, for ``PollRequest/lease``.
    func lease(limit: Int) async throws(ChatError) -> [PollRequest]
    func settle(_ request: PollRequest, _ result: PollRequestResult) async throws(ChatError)
}

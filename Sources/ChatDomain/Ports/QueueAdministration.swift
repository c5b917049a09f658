/// A condition on pushes in the queue. `nil` values match any push.
package struct QueueFilter: Sendable, Hashable {
    package var app: AppName?
    package var states: Set<PushState>?
    package var token: DeviceToken?
    package var notification: NotificationID?

    package init(
        app: AppName? = nil, states: Set<PushState>? = nil, token: DeviceToken? = nil,
        notification: NotificationID? = nil
    ) {
        self.app = app
        self.states = states
        self.token = token
        self.notification = notification
    }
}

/// The pushes that a command changes.
package enum QueueSelection: Sendable, Hashable {
    case ids([Int64])
    case matching(QueueFilter)

    /// The notification, if the selection is one whole notification and nothing else.
    package var notification: NotificationID? {
        guard case .matching(let filter) = self, filter == QueueFilter(notification: filter.notification) else {
            return nil
        }
        return filter.notification
    }
}

/// A push with all of its stored values.
package struct PushRecord: Sendable, Hashable {
    package let delivery: Delivery
    /// The payload as text. Invalid UTF-8 is replaced.
    package let payload: String
    package let pushType: String?
    package let expiration: Int64?
    package let priority: UInt8?
    package let collapseID: String?

    /// Whether the push belongs to a deleted message, or to another program's row without content. Such a push is never
    /// retried.
    package var hasNoContent: Bool { payload.isEmpty && delivery.notification == nil }

    package init(
        delivery: Delivery, payload: String, pushType: String?, expiration: Int64?, priority: UInt8?,
        collapseID: String?
    ) {
        self.delivery = delivery
        self.payload = payload
        self.pushType = pushType
        self.expiration = expiration
        self.priority = priority
        self.collapseID = collapseID
    }
}

/// The queue for an operator's commands. They work with or without running relays, which notice the changes.
///
/// A command searches pushes without a lock and changes them in steps, so that a relay never waits long. `progress` is
/// called with the number of pushes changed so far. Pushes that are queued after the start of the call are not
/// affected.
package protocol QueueAdministration: Sendable {
    /// Returns pushes with ids above `cursor`, in the order of the queue. A page may have fewer than `limit` pushes,
    /// even none, and still have a next page.
    func pushes(_ filter: QueueFilter, after cursor: Int64?, limit: Int) async throws -> Page<Delivery>
    /// Returns one push. `nil` if there is no push with this id.
    func push(_ id: Int64) async throws -> PushRecord?
    /// Makes failed, expired and cancelled pushes pending again, due at once and with zero attempts. Pending pushes
    /// that wait for a retry also become due at once.
    ///
    /// An expired push loses its expiration. Other pushes keep theirs. Pushes of a cancelled notification stay
    /// cancelled, even if they are selected by id. To send such a notification after all, send it again as a new one.
    /// Pushes to an unregistered device also stay cancelled. Pushes of a deleted message (``DeletedMessage``) keep
    /// their state in any case.
    ///
    /// - Returns: The number of changed pushes.
    func retry(_ selection: QueueSelection, progress: (Int) -> Void) async throws -> Int
    /// Cancels pending pushes. If the selection is a whole notification, this includes pushes that are not queued yet.
    ///
    /// - Returns: The number of cancelled pushes.
    func cancel(_ selection: QueueSelection, progress: (Int) -> Void) async throws -> Int
    /// Deletes settled pushes (sent, failed, expired, cancelled). With `age`, deletes only pushes that were settled
    /// longer ago.
    ///
    /// Leaves the pushes of a notification that is still being queued, because they prevent a second push to the same
    /// device.
    ///
    /// - Returns: The number of deleted pushes.
    func purge(_ selection: QueueSelection, olderThan age: Duration?, progress: (Int) -> Void) async throws -> Int
}

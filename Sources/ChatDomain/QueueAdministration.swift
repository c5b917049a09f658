/// Which entries of the queue; nil for any.
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

/// Which entries of the queue are to be changed.
package enum QueueSelection: Sendable, Hashable {
    case ids([Int64])
    case matching(QueueFilter)

    /// The notification, where a whole one is meant and nothing else.
    package var notification: NotificationID? {
        guard case .matching(let filter) = self, filter == QueueFilter(notification: filter.notification) else {
            return nil
        }
        return filter.notification
    }
}

/// An entry of the queue with all that is known of it.
package struct PushRecord: Sendable, Hashable {
    package let delivery: Delivery
    /// As text; what is no UTF-8 is replaced.
    package let payload: String
    package let pushType: String?
    package let expiration: Int64?
    package let priority: UInt8?
    package let collapseID: String?

    /// Whether the entry is a push of a deleted message, or another program's row without content: nothing retries it.
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

/// The queue as an operator's commands use it: beside running relays, which notice what is changed, or without one.
///
/// What is to be changed is looked for without a lock, and changed in steps, so that a relay never waits long; `progress` is
/// told how many entries so far. What is queued meanwhile is not meant.
package protocol QueueAdministration: Sendable {
    /// In the order of the queue, those after `cursor`. A page may have fewer than `limit`, even none, and still a next one.
    func pushes(_ filter: QueueFilter, after cursor: Int64?, limit: Int) async throws -> Page<Delivery>
    /// Nil where there is none.
    func push(_ id: Int64) async throws -> PushRecord?
    /// Makes failed, expired and cancelled entries pending again, at once and with attempts from zero; also lets pending ones
    /// that wait for a repeat go now.
    ///
    /// An expired one has no time any more after which it is not worth sending; the others keep theirs. Those of a notification
    /// that was cancelled stay cancelled, also where they are named: whoever wants it after all sends it again. So do those of
    /// a device that has unregistered. Entries of a deleted message (``DeletedMessage``) keep their state, whatever it is.
    /// - Returns: how many.
    func retry(_ selection: QueueSelection, progress: (Int) -> Void) async throws -> Int
    /// Takes back pending entries. Where a whole notification is meant, also those that are not queued yet.
    /// - Returns: how many.
    func cancel(_ selection: QueueSelection, progress: (Int) -> Void) async throws -> Int
    /// Deletes entries that are settled (sent, failed, expired, cancelled), those settled longer ago than `age`.
    ///
    /// Not those of a notification that is still being queued: they keep it from going to a device twice.
    /// - Returns: how many.
    func purge(_ selection: QueueSelection, olderThan age: Duration?, progress: (Int) -> Void) async throws -> Int
}

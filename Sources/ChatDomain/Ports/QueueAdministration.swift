/// A condition on pushes in the queue. `nil` values match any push.
package struct QueueFilter: Sendable, Hashable {
    package var app: AppName?
    package var states: Set<PushState>?
    package var token: DeviceToken?
    package var notification: NotificationID?
    /// The reason of the last outcome, exactly as recorded.
    package var reason: String?
    package var queuedBefore: Timestamp?
    package var queuedAfter: Timestamp?
    package var ids: [Int64]?

    package init(
        app: AppName? = nil, states: Set<PushState>? = nil, token: DeviceToken? = nil,
        notification: NotificationID? = nil, reason: String? = nil, queuedBefore: Timestamp? = nil,
        queuedAfter: Timestamp? = nil, ids: [Int64]? = nil
    ) {
        self.app = app
        self.states = states
        self.token = token
        self.notification = notification
        self.reason = reason
        self.queuedBefore = queuedBefore
        self.queuedAfter = queuedAfter
        self.ids = ids
    }

    /// The filter in words, for the record of a change.
    package var description: String {
        let parts = [
            app.map { "app \($0)" },
            states.map { "state " + $0.map(\.rawValue).sorted().joined(separator: " or ") },
            token.map { "device \($0.shortened)" },
            notification.map { "notification \($0)" },
            reason.map { "reason \($0)" },
            queuedBefore.map { "queued before \($0.rfc3339)" },
            queuedAfter.map { "queued after \($0.rfc3339)" },
            ids.map { $0.count == 1 ? "push \($0[0])" : "\($0.count) push ids" },
        ].compactMap(\.self)
        return parts.isEmpty ? "all pushes" : parts.joined(separator: ", ")
    }
}

/// The pushes that a command changes.
package enum QueueSelection: Sendable, Hashable {
    case ids([Int64])
    case matching(QueueFilter)

    package var filter: QueueFilter {
        switch self {
        case .ids(let ids): QueueFilter(ids: ids)
        case .matching(let filter): filter
        }
    }

    /// The notification, if the selection is one whole notification and nothing else.
    package var notification: NotificationID? {
        guard case .matching(let filter) = self, filter == QueueFilter(notification: filter.notification) else {
            return nil
        }
        return filter.notification
    }
}

/// A change that an operator makes to pushes.
package enum QueueChange: Sendable, Hashable {
    /// Makes failed, expired and cancelled pushes pending again, due at once and with zero attempts. Pending pushes
    /// that wait for a retry also become due at once.
    ///
    /// An expired push loses its expiration. Other pushes keep theirs. Pushes of a cancelled notification stay
    /// cancelled, even if they are selected by id. To send such a notification after all, send it again as a new one.
    /// Pushes to an unregistered device also stay cancelled. Pushes of a deleted message (``DeletedMessage``) keep
    /// their state in any case.
    case retry
    /// Cancels pending pushes. If the selection is a whole notification, this includes pushes that are not queued yet.
    case cancel
    /// Deletes settled pushes (sent, failed, expired, cancelled). With `olderThan`, deletes only pushes that were
    /// settled longer ago.
    ///
    /// Leaves the pushes of a notification that is still being queued, because they prevent a second push to the same
    /// device.
    case purge(olderThan: Duration?)

    /// The action in the record.
    package var action: ModerationRecord.Action {
        switch self {
        case .retry: .retry
        case .cancel: .cancel
        case .purge: .purge
        }
    }
}

/// One part of a change: a few transactions at most.
package struct QueuePart: Sendable, Hashable {
    /// The number of pushes that were changed. In a dry run, the number that would be changed.
    package let count: Int
    /// The cursor of the next part. `nil` if no part follows.
    package let next: Int64?

    package init(count: Int, next: Int64?) {
        self.count = count
        self.next = next
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

/// The queue for an operator: for the admin API inside a relay, and for commands. Commands work with or without running
/// relays, which notice the changes.
///
/// A change searches pushes without a lock and changes them in steps, so that a relay never waits long.
package protocol QueueAdministration: Sendable {
    /// Returns pushes with ids above `cursor`, in the order of the queue. A page may have fewer than `limit` pushes,
    /// even none, and still have a next page.
    func pushes(_ filter: QueueFilter, after cursor: Int64?, limit: Int) async throws -> Page<Delivery>
    /// Returns one push. `nil` if there is no push with this id.
    func push(_ id: Int64) async throws -> PushRecord?
    /// Returns the highest push id. 0 if there is none.
    func newestID() async throws -> Int64
    /// Changes the next part of the selected pushes. Use ``perform(_:_:after:parts:by:progress:)`` to also record it.
    ///
    /// - Parameters:
    ///   - cursor: The cursor from the previous part. `nil` for the first part.
    ///   - last: The highest push id to change.
    ///   - isDryRun: Whether to only count the pushes.
    func change(
        _ change: QueueChange, _ selection: QueueSelection, after cursor: Int64?, upTo last: Int64, isDryRun: Bool
    ) async throws -> QueuePart
    /// Records an operator's action.
    ///
    /// - Returns: The id of the record.
    func record(_ action: ModerationRecord.Action, _ subject: String, by moderator: Moderator) async throws -> Int64
    /// Replaces the subject of a record.
    ///
    /// - Parameter subject: The new subject. `nil` deletes the record, because nothing was changed.
    func amend(record id: Int64, _ subject: String?) async throws

    /// Holds back an app's pushes: from now on no relay of this database leases any. Pushes that a gateway already has
    /// are not affected. Lasts until ``resume(_:by:)``, also across restarts.
    ///
    /// Pausing a paused app replaces the reason.
    func pause(_ app: AppName, reason: String?, by moderator: Moderator) async throws -> QueuePause
    /// Ends an app's pause. Does nothing if the app is not paused.
    ///
    /// - Returns: The pause that ended.
    func resume(_ app: AppName, by moderator: Moderator) async throws -> QueuePause?
    /// Returns all pauses, in the order of the apps' names.
    func pauses() async throws -> [QueuePause]
}

extension QueueAdministration {
    /// Changes pushes part by part, and records the change with its number of pushes. Pushes that are queued after the
    /// start of the call are not affected.
    ///
    /// - Parameters:
    ///   - parts: The maximum number of parts.
    ///   - progress: Called with the number of pushes changed so far.
    package func perform(
        _ change: QueueChange, _ selection: QueueSelection, after cursor: Int64? = nil, parts: Int = .max,
        by moderator: Moderator, progress: (Int) -> Void = { _ in }
    ) async throws -> QueuePart {
        let last = try await newestID()
        let subject = selection.filter.description
        // Written first, so that an interrupted change also has its record.
        let record = try await record(change.action, subject, by: moderator)
        let result = try await self.parts(
            change, selection, after: cursor, upTo: last, most: parts, isDryRun: false, progress: progress)
        let number = "\(result.count) \(result.count == 1 ? "push" : "pushes")"
        try await amend(record: record, result.count == 0 ? nil : "\(subject): \(number)")
        return result
    }

    /// Counts the pushes that a change would affect now.
    package func dryRun(
        _ change: QueueChange, _ selection: QueueSelection, after cursor: Int64? = nil, parts: Int = .max
    ) async throws -> QueuePart {
        try await self.parts(
            change, selection, after: cursor, upTo: try await newestID(), most: parts, isDryRun: true,
            progress: { _ in })
    }

    private func parts(
        _ change: QueueChange, _ selection: QueueSelection, after cursor: Int64?, upTo last: Int64, most: Int,
        isDryRun: Bool, progress: (Int) -> Void
    ) async throws -> QueuePart {
        var (count, cursor, made) = (0, cursor, 0)
        while true {
            let part = try await self.change(change, selection, after: cursor, upTo: last, isDryRun: isDryRun)
            count += part.count
            made += 1
            if part.count > 0 { progress(count) }
            guard let next = part.next, made < most else { return QueuePart(count: count, next: part.next) }
            cursor = next
        }
    }

    /// Performs ``QueueChange/retry``.
    ///
    /// - Returns: The number of changed pushes.
    package func retry(
        _ selection: QueueSelection, by moderator: Moderator = .commandLine, progress: (Int) -> Void
    ) async throws -> Int {
        try await perform(.retry, selection, by: moderator, progress: progress).count
    }

    /// Performs ``QueueChange/cancel``.
    ///
    /// - Returns: The number of cancelled pushes.
    package func cancel(
        _ selection: QueueSelection, by moderator: Moderator = .commandLine, progress: (Int) -> Void
    ) async throws -> Int {
        try await perform(.cancel, selection, by: moderator, progress: progress).count
    }

    /// Performs ``QueueChange/purge(olderThan:)``.
    ///
    /// - Returns: The number of deleted pushes.
    package func purge(
        _ selection: QueueSelection, olderThan age: Duration?, by moderator: Moderator = .commandLine,
        progress: (Int) -> Void
    ) async throws -> Int {
        try await perform(.purge(olderThan: age), selection, by: moderator, progress: progress).count
    }
}

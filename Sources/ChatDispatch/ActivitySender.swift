package import ChatDomain
package import Logging
import ServiceLifecycle

/// Queues the pushes of Live Activities: the start for devices with a push-to-start token, and the newest content for
/// devices with an update token.
///
/// The store keeps which content each device has got. So a crash loses nothing. It may repeat an update, which the device
/// ignores, because it has the same timestamp. A start has an idempotency key and is not repeated.
package final class ActivitySender: Service {
    /// The interval of checks for activities that are due.
    private static let interval = Duration.milliseconds(500)
    /// The pause after an error of the database.
    private static let databasePause = Duration.seconds(5)
    /// The reasons of Apple's that concern a token for good.
    private static let finalReasons: Set = ["Unregistered", "ExpiredToken", "BadDeviceToken", "DeviceTokenNotForTopic"]
    /// The maximum number of failed pushes to read of each notification.
    private static let failurePage = 1000

    private let activities: any ActivityStore
    private let notifications: any NotificationStore
    private let format: @Sendable (AppName) -> any PushFormat
    private let logger: Logger

    package init(
        activities: any ActivityStore, notifications: any NotificationStore,
        format: @escaping @Sendable (AppName) -> any PushFormat, logger: Logger
    ) {
        self.activities = activities
        self.notifications = notifications
        self.format = format
        self.logger = logger
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                let pause = await self.round()
                if pause > .zero { try? await Task.sleep(for: pause) }
            }
        }
    }

    /// Queues the pushes of one activity that is due.
    ///
    /// - Returns: The time until the next round.
    func round() async -> Duration {
        do throws(ChatError) {
            guard let activity = try await activities.lease() else { return Self.interval }
            try await send(activity)
            try await activities.settle(activity)
            return .zero
        } catch {
            // The lease ends, and the activity is due again.
            logger.warning("pushes of a Live Activity could not be queued", metadata: ["error": "\(error)"])
            return Self.databasePause
        }
    }

    private func send(_ activity: ActivityRecord) async throws(ChatError) {
        var startedBy = activity.startedBy
        if !activity.isStarted {
            // An activity that has ended already need not start.
            startedBy = activity.endedAt == nil ? try await start(activity) : []
            try await activities.started(activity, by: startedBy)
        }
        if activity.endedAt != nil { try await cancel(startedBy) }
        guard activity.revision > 1 else { return }
        guard let update = compose(activity.newest, of: activity, timestamp: activity.timestamp) else { return }
        while true {
            let targets = try await activities.targets(of: activity, limit: ActivityLimits.batch)
            if targets.isEmpty { return }
            let earlier = Set(targets.compactMap(\.notification))
            // Only the newest content is worth sending.
            try await cancel(earlier)
            let gone = try await refusedTokens(earlier)
            try await activities.forget(targets.map(\.token).filter(gone.contains), of: activity.app)
            let tokens = targets.map(\.token).filter { !gone.contains($0) }
            if tokens.isEmpty { continue }
            let receipt = try await notifications.send(request(update, of: activity, to: tokens, key: nil))
            try await activities.sent(activity, to: tokens, in: receipt.id)
            note(activity, receipt)
        }
    }

    /// Queues the start.
    ///
    /// - Returns: The notifications that carry it.
    private func start(_ activity: ActivityRecord) async throws(ChatError) -> [NotificationID] {
        guard let start = compose(activity.start, of: activity, timestamp: activity.createdAt.seconds) else {
            return []
        }
        var sent: [NotificationID] = []
        var last: DeviceToken?
        for batch in 0..<(ActivityLimits.devices / ActivityLimits.batch) {
            let tokens = try await activities.startTokens(of: activity, after: last, limit: ActivityLimits.batch)
            guard let end = tokens.last else { break }
            last = end
            do throws(ChatError) {
                let key = "activity \(activity.id) start \(batch)"
                let receipt = try await notifications.send(request(start, of: activity, to: tokens, key: key))
                sent.append(receipt.id)
                note(activity, receipt)
            } catch {
                // Before a crash, this start was queued for other devices: a token has come or gone since.
                guard error.code == .idempotencyConflict else { throw error }
            }
        }
        return sent
    }

    /// Returns the push. `nil` if the app's gateway can no longer send it.
    private func compose(
        _ content: ActivityContent, of activity: ActivityRecord, timestamp: Int64
    ) -> ComposedNotification? {
        do throws(ChatError) {
            return try format(activity.app).compose(content, tag: activity.tag, timestamp: timestamp)
        } catch {
            logger.warning(
                "a Live Activity cannot be sent by its app's gateway",
                metadata: ["activity": "\(activity.id)", "error": "\(error)"])
            return nil
        }
    }

    private func request(
        _ push: ComposedNotification, of activity: ActivityRecord, to tokens: [DeviceToken], key: String?
    ) -> NotificationRequest {
        NotificationRequest(
            audience: .tokens(tokens), app: activity.app, payload: push.payload, pushType: push.pushType,
            expiration: (activity.updatedAt + ActivityLimits.lifetime).seconds, priority: push.priority,
            collapseID: "activity-\(activity.id)", idempotencyKey: key, token: activity.token)
    }

    /// Cancels pushes that wait. Notifications without such pushes stay as they are, and retention may have deleted
    /// them.
    private func cancel(_ ids: some Sequence<NotificationID>) async throws(ChatError) {
        for id in ids {
            do throws(ChatError) {
                guard try await notifications.notification(id).state != .done else { continue }
                _ = try await notifications.cancel(id)
            } catch {
                guard error.code == .notFound else { throw error }
            }
        }
    }

    /// Returns the tokens that the push service has refused for good.
    private func refusedTokens(_ ids: Set<NotificationID>) async throws(ChatError) -> Set<DeviceToken> {
        var refused: Set<DeviceToken> = []
        for id in ids {
            let page = try await notifications.deliveries(of: id, in: .failed, after: nil, limit: Self.failurePage)
            for delivery in page.items where delivery.reason.map(Self.finalReasons.contains) ?? false {
                if let token = try? DeviceToken(parsing: delivery.token) { refused.insert(token) }
            }
        }
        return refused
    }

    private func note(_ activity: ActivityRecord, _ receipt: NotificationReceipt) {
        logger.info(
            "pushes of a Live Activity queued",
            metadata: [
                "activity": "\(activity.id)", "notification": "\(receipt.id)", "devices": "\(receipt.devices)",
                "revision": "\(activity.revision)",
            ])
    }
}

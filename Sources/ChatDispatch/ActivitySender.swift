package import ChatDomain
package import Logging
import ServiceLifecycle
import Synchronization

/// Queues the pushes of Live Activities: the start for devices with a push-to-start token, and the newest content for
/// devices with an update token.
///
/// The store keeps which content each device has got. So a crash loses nothing. It may repeat an update, which the device
/// ignores, because it has the same timestamp. A start has an idempotency key and is not repeated.
package final class ActivitySender: Service {
    /// The interval of checks for activities that are due without a signal, for example those of another relay that has
    /// stopped.
    private static let interval = Duration.seconds(10)
    /// The reasons of Apple's that concern a token for good.
    private static let finalReasons: Set = ["Unregistered", "ExpiredToken", "BadDeviceToken", "DeviceTokenNotForTopic"]
    /// The maximum number of failed pushes to read of each notification.
    private static let failurePage = 1000

    private let activities: any ActivityStore
    private let notifications: any NotificationStore
    private let broadcasts: any BroadcastService
    private let format: @Sendable (AppName) -> any PushFormat
    private let now: TimeSource
    private let logger: Logger
    /// The apps whose broadcasts pause, because the push service accepts nothing, and those without the capability.
    private let apps = Mutex(Apps())

    private struct Apps {
        var paused: [AppName: Timestamp] = [:]
        /// The last failed request for a channel: its activity, and the time until which requests for other activities
        /// fail without being sent.
        var failedCreation: [AppName: (activity: ActivityID, until: Timestamp)] = [:]
        var withoutCapability: Set<AppName> = []
    }

    package init(
        activities: any ActivityStore, notifications: any NotificationStore, broadcasts: any BroadcastService,
        format: @escaping @Sendable (AppName) -> any PushFormat, now: @escaping TimeSource = Timestamp.now,
        logger: Logger
    ) {
        self.activities = activities
        self.notifications = notifications
        self.broadcasts = broadcasts
        self.now = now
        self.format = format
        self.logger = logger
    }

    package func run() async throws {
        let loop = WorkLoop(now: now)
        activities.announceWork(to: loop.signal)
        await cancelWhenGracefulShutdown {
            await loop.run(
                every: Self.interval, failure: "Live Activities could not be read and will be retried", self.logger,
                step: self.sendNext, nextDue: self.activities.nextDue)
        }
    }

    /// Queues the pushes of one activity that is due. Throws an error if the others would also fail.
    ///
    /// - Returns: Whether one was due.
    func sendNext() async throws(ChatError) -> Bool {
        guard let lease = try await activities.lease() else { return false }
        do throws(ChatError) {
            switch lease {
            case .activity(let activity):
                try await activities.settle(activity, next: try await send(activity))
            case .unreadable(let id, let error):
                logger.error(
                    "a Live Activity cannot be read and is skipped",
                    metadata: ["activity": "\(id)", "error": "\(error)"])
            }
        } catch  where error.code != .unavailable {
            // The lease ends, and the activity is due again.
            logger.warning("pushes of a Live Activity could not be queued", metadata: ["error": "\(error)"])
        }
        return true
    }

    /// - Returns: The time at which the activity is due again. `nil` if nothing remains to be done.
    private func send(_ activity: ActivityRecord) async throws(ChatError) -> Timestamp? {
        var channel = activity.channel
        if channel?.isDecided == false { try await advance(&channel, of: activity) }
        if channel?.isDecided ?? true {
            try await push(activity, channel)
            // The end of an activity needs two requests: the broadcast, and the deletion.
            while try await advance(&channel, of: activity) {}
        }
        return channel?.notBefore
    }

    /// Performs the next request about the activity's channel.
    ///
    /// - Returns: Whether there was one, and it did not fail.
    @discardableResult
    private func advance(
        _ channel: inout ActivityChannel?, of activity: ActivityRecord
    ) async throws(ChatError) -> Bool {
        guard var next = channel else { return false }
        let time = now()
        let (pause, failed) = apps.withLock { ($0.paused[activity.app], $0.failedCreation[activity.app]) }
        let step = next.next(revision: activity.revision, isEnded: activity.endedAt != nil, pause: pause, at: time)
        // A crash during the request must not make the relay forget that it has asked for a channel.
        if next != channel { try await activities.record(next, of: activity) }
        if channel?.state == .requested, next.failures == 0, step == .create {
            logger.warning(
                "an earlier request for a channel had no recorded response: Apple may have an unused channel",
                metadata: ["activity": "\(activity.id)", "app": "\(activity.app)"])
        }
        channel = next
        guard let step else { return false }
        let answer: BroadcastAnswer
        let began = ContinuousClock.now
        switch step {
        case .create where failed.map { $0.activity != activity.id && $0.until > time } ?? false:
            answer = .unavailable("the service has just failed to answer another request")
        case .create: answer = await broadcasts.createChannel(of: activity.app)
        case .broadcast:
            if let update = compose(activity.newest, of: activity, timestamp: activity.timestamp) {
                answer = await broadcasts.broadcast(update, to: next.id ?? "", of: activity.app)
            } else {
                answer = .refused("the app's gateway cannot send it")
            }
        case .delete: answer = await broadcasts.deleteChannel(next.id ?? "", of: activity.app)
        }
        // Requests follow one another. A service that does not answer gets at most half of the time, so that it does not
        // hold up the activities of other apps.
        let end = now() + began.duration(to: .now)
        next.answered(answer, to: step, revision: activity.revision, at: now(), notBefore: end)
        if case .unavailable = answer {
            apps.withLock { apps in
                if step == .create {
                    if failed.map({ $0.until < end }) ?? true { apps.failedCreation[activity.app] = (activity.id, end) }
                } else if let pause = next.notBefore {
                    apps.paused[activity.app] = pause
                }
            }
        }
        note(answer, to: step, next, of: activity)
        try await activities.record(next, of: activity)
        channel = next
        return next.notBefore == nil
    }

    /// Logs the answer to a request about a channel.
    private func note(
        _ answer: BroadcastAnswer, to step: ActivityChannel.Step, _ channel: ActivityChannel,
        of activity: ActivityRecord
    ) {
        var metadata: Logger.Metadata = [
            "activity": "\(activity.id)", "app": "\(activity.app)", "revision": "\(activity.revision)",
        ]
        switch (step, answer) {
        case (.create, .accepted): logger.info("channel of a Live Activity created", metadata: metadata)
        case (.broadcast, .accepted): logger.info("broadcast of a Live Activity sent", metadata: metadata)
        case (.delete, .accepted), (.delete, .gone):
            logger.info("channel of a Live Activity deleted", metadata: metadata)
        case (_, .missingCapability(let reason)):
            metadata["error"] = "\(reason)"
            guard apps.withLock({ $0.withoutCapability.insert(activity.app).inserted }) else { return }
            logger.warning(
                """
                the app may not broadcast, so each device gets its own pushes: tick Broadcast Capability under Push \
                Notifications of the app's identifier on Apple's developer site
                """, metadata: metadata)
        case (.create, .gone(let reason)), (_, .refused(let reason)), (.broadcast, .gone(let reason)):
            metadata["error"] = "\(reason)"
            logger.warning(
                channel.state == .refused
                    ? "a Live Activity has no channel, each device gets its own pushes"
                    : "a request about a Live Activity's channel was refused", metadata: metadata)
        case (_, .unavailable(let reason, _)):
            metadata["error"] = "\(reason)"
            logger.warning(
                channel.notBefore == nil
                    ? "a request about a Live Activity's channel was given up"
                    : "a request about a Live Activity's channel failed, retrying", metadata: metadata)
        }
    }

    private func push(_ activity: ActivityRecord, _ channel: ActivityChannel?) async throws(ChatError) {
        var startedBy = activity.startedBy
        if !activity.isStarted {
            // An activity that has ended already need not start.
            startedBy = activity.endedAt == nil ? try await start(activity, channel) : []
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
    private func start(
        _ activity: ActivityRecord, _ channel: ActivityChannel?
    ) async throws(ChatError) -> [NotificationID] {
        guard channel?.state == .open, let id = channel?.id else {
            return try await start(activity, .all, channel: nil)
        }
        // Older systems do not start an activity that listens to a channel.
        return try await start(activity, .channel, channel: id) + start(activity, .noChannel, channel: nil)
    }

    private func start(
        _ activity: ActivityRecord, _ part: ActivityAudiencePart, channel: String?
    ) async throws(ChatError) -> [NotificationID] {
        var content = activity.start
        content.channel = channel
        guard let start = compose(content, of: activity, timestamp: activity.createdAt.seconds) else {
            return []
        }
        var sent: [NotificationID] = []
        var last: DeviceToken?
        for batch in 0..<(ActivityLimits.devices / ActivityLimits.batch) {
            let tokens = try await activities.startTokens(
                of: activity, part, after: last, limit: ActivityLimits.batch)
            guard let end = tokens.last else { break }
            last = end
            do throws(ChatError) {
                let suffix = part == .channel ? " channel" : ""
                let key = "activity \(activity.id) start \(batch)\(suffix)"
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

/// Stores Live Activities, and the tokens of devices for them.
///
/// The pushes of an activity are notifications, which ``NotificationStore`` queues. An activity whose pushes remain to be
/// queued is *due*. A relay leases it, queues the pushes, and settles it.
package protocol ActivityStore: Sendable {
    /// Stores a call. The activity is due afterwards.
    ///
    /// A start with the tag of an activity that has not ended is the same call if its content and audience are the same,
    /// and a conflict otherwise.
    ///
    /// - Returns: The activity, and whether the call repeats the start.
    /// - Throws: ``ChatError/Code/notFound`` if no activity with this tag is active, or if another token has started it.
    ///   ``ChatError/Code/invalidField`` if the start conflicts.
    func accept(_ request: ActivityRequest) async throws(ChatError) -> (activity: ActivityRecord, isRepeat: Bool)
    /// Stores a token that the app of a member reports. It replaces the member's earlier token for the same use.
    ///
    /// An update token is due if the activity has changed since its start.
    ///
    /// - Throws: ``ChatError/Code/notJoined``; ``ChatError/Code/notFound`` if no activity with this tag is active for the
    ///   member's device.
    func report(_ report: ActivityTokenReport, by member: MemberID) async throws(ChatError)
    /// Stores a token of a device that its app reports through the operator's own system.
    ///
    /// - Throws: The same errors as ``report(_:by:)``, except that the device need not exist.
    func report(_ report: ActivityTokenReport, of device: DeviceToken, app: AppName) async throws(ChatError)
    /// Returns activities with ids below `cursor`, newest first. With a `token`, returns only those that it started.
    func activities(
        startedWith token: Int64?, before cursor: ActivityID?, limit: Int
    ) async throws(ChatError) -> Page<ActivityRecord>
    /// - Throws: ``ChatError/Code/notFound``.
    func activity(_ id: ActivityID) async throws(ChatError) -> ActivityRecord

    /// Leases an activity that is due, for ``ActivityLimits/lease``. `nil` if none is due.
    func lease() async throws(ChatError) -> ActivityLease?
    /// Returns the time at which an activity is due. `nil` if none is.
    func nextDue() async throws(ChatError) -> Timestamp?
    /// Signals the continuation whenever a call or a token has made an activity due in this process.
    func announceWork(to signal: AsyncStream<Void>.Continuation)
    /// Returns at most `limit` devices on which the activity has to be started, in the order of their push-to-start
    /// tokens, after `cursor`.
    func startTokens(
        of activity: ActivityRecord, _ part: ActivityAudiencePart, after cursor: DeviceToken?, limit: Int
    ) async throws(ChatError) -> [DeviceToken]
    /// Records that the start was queued.
    func started(_ activity: ActivityRecord, by notifications: [NotificationID]) async throws(ChatError)
    /// Returns at most `limit` devices that have not got the activity's newest content.
    func targets(of activity: ActivityRecord, limit: Int) async throws(ChatError) -> [ActivityTarget]
    /// Records the notification with which devices get the activity's newest content.
    func sent(
        _ activity: ActivityRecord, to tokens: [DeviceToken], in notification: NotificationID
    ) async throws(ChatError)
    /// Deletes tokens that the push service has refused.
    func forget(_ tokens: [DeviceToken], of app: AppName) async throws(ChatError)
    /// Stores the state of the activity's channel.
    func record(_ channel: ActivityChannel, of activity: ActivityRecord) async throws(ChatError)
    /// Ends a lease. The activity remains due if a call or a token has come in the meantime.
    ///
    /// - Parameter next: The time at which the activity is due again. `nil` if nothing remains to be done.
    func settle(_ activity: ActivityRecord, next: Timestamp?) async throws(ChatError)
}

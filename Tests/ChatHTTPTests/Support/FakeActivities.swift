import ChatDomain
import Synchronization

/// Records calls and tokens of Live Activities.
final class FakeActivities: ActivityStore {
    private let recorded = Mutex<(requests: [ActivityRequest], reports: [ActivityTokenReport])>(([], []))

    var requests: [ActivityRequest] { recorded.withLock { $0.requests } }
    var reports: [ActivityTokenReport] { recorded.withLock { $0.reports } }

    /// An activity that the token 3 started at ``Sample/time``.
    private static func record(_ request: ActivityRequest? = nil) throws(ChatError) -> ActivityRecord {
        let content: ActivityContent
        if let request { content = request.content } else { content = try ActivityContent(["event": .string("end")]) }
        return ActivityRecord(
            id: 1, tag: request?.tag ?? ActivityTag(stored: "order-17"), app: request?.app ?? .default,
            audience: request?.audience, start: content, newest: content, revision: 1, timestamp: Sample.time.seconds,
            startedBy: [], isStarted: false, devices: 0, token: request?.token ?? 3, createdAt: Sample.time,
            updatedAt: Sample.time, endedAt: nil, channel: request?.wantsChannel == true ? ActivityChannel() : nil)
    }

    func accept(
        _ request: ActivityRequest
    ) async throws(ChatError) -> (activity: ActivityRecord, isRepeat: Bool) {
        recorded.withLock { $0.requests.append(request) }
        return (try Self.record(request), false)
    }

    func report(_ report: ActivityTokenReport, by member: MemberID) async throws(ChatError) {
        recorded.withLock { $0.reports.append(report) }
    }

    func report(_ report: ActivityTokenReport, of device: DeviceToken, app: AppName) async throws(ChatError) {
        recorded.withLock { $0.reports.append(report) }
    }

    func activities(
        startedWith token: Int64?, before cursor: ActivityID?, limit: Int
    ) async throws(ChatError) -> Page<ActivityRecord> {
        Page(items: token == nil || token == 3 ? [try Self.record()] : [], next: nil)
    }

    func activity(_ id: ActivityID) async throws(ChatError) -> ActivityRecord {
        guard id == 1 else { throw .notFound("activity") }
        return try Self.record()
    }

    // The service that sends is not part of the server.
    func lease() async throws(ChatError) -> ActivityLease? { nil }
    func nextDue() async throws(ChatError) -> Timestamp? { nil }
    func announceWork(to signal: AsyncStream<Void>.Continuation) {}
    func startTokens(
        of activity: ActivityRecord, _ part: ActivityAudiencePart, after cursor: DeviceToken?, limit: Int
    ) async throws(ChatError) -> [DeviceToken] { [] }
    func started(_ activity: ActivityRecord, by notifications: [NotificationID]) async throws(ChatError) {}
    func targets(of activity: ActivityRecord, limit: Int) async throws(ChatError) -> [ActivityTarget] { [] }
    func sent(
        _ activity: ActivityRecord, to tokens: [DeviceToken], in notification: NotificationID
    ) async throws(ChatError) {}
    func forget(_ tokens: [DeviceToken], of app: AppName) async throws(ChatError) {}
    func record(_ channel: ActivityChannel, of activity: ActivityRecord) async throws(ChatError) {}
    func settle(_ activity: ActivityRecord, next: Timestamp?) async throws(ChatError) {}
}

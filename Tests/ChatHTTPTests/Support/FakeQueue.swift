import ChatDomain
import Synchronization

/// Records the calls of the queue's administration, and answers with one push.
final class FakeQueue: QueueAdministration {
    enum Call: Equatable {
        case pushes(QueueFilter, after: Int64?, limit: Int)
        case change(QueueChange, QueueFilter, after: Int64?, isDryRun: Bool)
        case record(ModerationRecord.Action, String, Moderator)
        case amend(String?)
        case pause(AppName, String?, Moderator)
        case resume(AppName, Moderator)
    }

    private struct State {
        var calls: [Call] = []
        var pauses: [QueuePause] = []
    }

    private let state = Mutex(State())

    var calls: [Call] { state.withLock { $0.calls } }

    static let push = Delivery(
        id: 7, notification: nil, message: 3, token: "aa", app: .default, state: .failed, reason: "Busy", hint: nil,
        attempts: 2, queuedAt: Sample.time, notBefore: nil, sentAt: nil, settledAt: Sample.time, apnsID: nil)

    private func note(_ call: Call) { state.withLock { $0.calls.append(call) } }

    func pushes(_ filter: QueueFilter, after cursor: Int64?, limit: Int) async throws -> Page<Delivery> {
        note(.pushes(filter, after: cursor, limit: limit))
        return Page(items: [Self.push], next: 7)
    }

    func push(_ id: Int64) async throws -> PushRecord? { nil }
    func newestID() async throws -> Int64 { 99 }

    /// Has two parts of five pushes each, and then as many as the caller wants.
    func change(
        _ change: QueueChange, _ selection: QueueSelection, after cursor: Int64?, upTo last: Int64, isDryRun: Bool
    ) async throws -> QueuePart {
        note(.change(change, selection.filter, after: cursor, isDryRun: isDryRun))
        if selection.filter.reason == "endless" { return QueuePart(count: 1, next: (cursor ?? 0) + 1) }
        return QueuePart(count: 5, next: cursor == nil ? 50 : nil)
    }

    func record(_ action: ModerationRecord.Action, _ subject: String, by moderator: Moderator) async throws -> Int64 {
        note(.record(action, subject, moderator))
        return 1
    }

    func amend(record id: Int64, _ subject: String?) async throws { note(.amend(subject)) }

    func pause(_ app: AppName, reason: String?, by moderator: Moderator) async throws -> QueuePause {
        note(.pause(app, reason, moderator))
        let pause = QueuePause(app: app, reason: reason, actor: moderator.name, since: Sample.time)
        state.withLock { $0.pauses = [pause] }
        return pause
    }

    func resume(_ app: AppName, by moderator: Moderator) async throws -> QueuePause? {
        note(.resume(app, moderator))
        return state.withLock { state in
            defer { state.pauses = [] }
            return state.pauses.first
        }
    }

    func pauses() async throws -> [QueuePause] { state.withLock { $0.pauses } }
}

import Foundation

/// A notification that is being completed. It is delivered once: when it is complete, when the time limit has passed, or
/// when the system wants it.
///
/// `@unchecked Sendable` is sound: `best`, `deliver` and `tasks` are read and written only while `lock` is held.
public final class NotificationDelivery: @unchecked Sendable {
    private let lock = NSLock()
    private var best: PushContent
    /// `nil` after the delivery.
    private var deliver: (@Sendable (PushContent) -> Void)?
    private var tasks: [Task<Void, Never>] = []

    init(
        _ completer: NotificationCompleter, _ content: PushContent, _ details: PushDetails,
        _ deliver: @escaping @Sendable (PushContent) -> Void
    ) {
        best = content
        self.deliver = deliver
        // Under the lock, so that neither task ends before the delivery knows both.
        lock.withLock {
            let work = Task { await complete(content, details, completer) }
            let limit = Task {
                try? await completer.clock.sleep(for: completer.timeLimit)
                if !Task.isCancelled { expire() }
            }
            tasks = [work, limit]
        }
    }

    /// Delivers the best that is known so far. Call it from `serviceExtensionTimeWillExpire`.
    public func expire() { finish() }

    private func complete(_ content: PushContent, _ details: PushDetails, _ completer: NotificationCompleter) async {
        if let message = details.message, let found = await completer.find(message) {
            improve { $0 = completer.completed(content, details, with: found) }
            async let report: Void = completer.report(found)
            await attachPicture(details, completer)
            await report
        } else {
            await attachPicture(details, completer)
        }
        finish()
    }

    private func attachPicture(_ details: PushDetails, _ completer: NotificationCompleter) async {
        guard let picture = await completer.picture(details) else { return }
        improve { $0.picture = picture }
    }

    private func improve(_ change: (inout PushContent) -> Void) {
        lock.withLock { change(&best) }
    }

    private func finish() {
        let (deliver, content, tasks) = lock.withLock {
            defer { self.deliver = nil }
            return (self.deliver, best, self.tasks)
        }
        deliver?(content)
        for task in tasks { task.cancel() }
    }
}

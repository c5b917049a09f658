package import ChatDomain
package import ChatSQL

/// The queue's table inside the relay that serves the file. Leaves out leased pushes, and updates the relay's memory.
package struct RelayQueueTable: SQLiteQueueTable {
    package let database: SQLiteDatabase
    let queue: SQLitePushQueue
    let outcomes: OutcomeCounter

    package func leased(in range: ClosedRange<Int64>) -> [ClosedRange<Int64>] { queue.inFlight(in: range) }

    package func changed(_ change: QueueChange, _ changed: ChangedPushes) {
        guard changed.count > 0 else { return }
        switch change {
        case .retry: queue.madeDue(at: changed.time, apps: Array(changed.apps.keys))
        case .cancel:
            queue.forgetContent()
            outcomes.add(
                changed.apps.map {
                    FinalStateCount(
                        app: $0.key, state: .cancelled, reason: PushLifeCycle.cancelled, count: $0.value)
                })
        case .purge: break
        }
    }

    package func pausesChanged(of app: AppName) async throws(ChatError) { try await queue.readPauses() }
}

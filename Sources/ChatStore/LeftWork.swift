package import ChatDomain
import GRDB
import Synchronization

/// What is left to do behind an answer: in steps, one transaction each, so that other writes go between. Where it stands is
/// kept with the message or notification, so that it goes on after a crash.
enum LeftWork: Sendable, Hashable {
    /// Pushes of a message to queue.
    case message(MessageID)
    /// Pushes of a notification to queue, or to take back.
    case notification(NotificationID)

    /// The reason of an entry that was taken back.
    static let cancelled = "Cancelled"
    /// The reason of an entry that its device's end took back.
    static let unregistered = "Unregistered"
    /// Unfinished works that are taken up at once.
    static let most = 1000

    /// What a step did.
    struct Step: Sendable {
        /// Rows that wait in the queue now.
        var queued = 0
        /// Pushes that came to an end.
        var endings: [Ending] = []
        var hasMore = false
    }

    /// Does the next step of what the database says is left, which may be nothing.
    func step(now: Timestamp, _ settings: SQLiteStore.Settings, _ db: Database) throws -> Step {
        switch self {
        case .message(let id):
            guard let fanout = try Fanout.unfinished(id, db) else { return Step() }
            let entries = try fanout.nextEntries(settings, db)
            let queued = try fanout.insert(entries, now: now, settings, db)
            return Step(queued: queued, hasMore: entries.hasMore)
        case .notification(let id):
            if var fanout = try NotificationFanout.unfinished(id, db) { return try fanout.step(now: now, settings, db) }
            if let cancellation = try NotificationCancellation.unfinished(id, db) {
                return try cancellation.step(now: now, db)
            }
            return Step()
        }
    }
}

extension SQLiteStore {
    /// Does the remaining steps of a work, unless that is under way. When one fails (the disk is full, say),
    /// ``resumeWork()`` takes it up again.
    func continueWork(_ work: LeftWork) {
        let isNew = works.withLock { works in
            guard works.count < LeftWork.most else {
                hasMoreWork.store(true, ordering: .relaxed)
                return false
            }
            return works.insert(work).inserted
        }
        if isNew { nextStep(of: work) }
    }

    private func nextStep(of work: LeftWork) {
        let accepted = writer.enqueue(.behind) { [self] db in
            let step = try work.step(now: clock(), settings(), db)
            return { [self] in
                finished(step)
                if step.hasMore { nextStep(of: work) } else { end(work) }
            }
        } onFailure: { [self] error in
            works.withLock { _ = $0.remove(work) }
            logger.error(
                "work behind an answer was interrupted and goes on later",
                metadata: ["work": "\(work)", "error": "\(error)"])
        }
        if !accepted { works.withLock { _ = $0.remove(work) } }
    }

    /// To be called after the commit.
    func finished(_ step: LeftWork.Step) {
        count(step.endings)
        if step.queued > 0 { announceArrivals() }
    }

    /// With the last of those in hand, what had no room among them is taken up.
    private func end(_ work: LeftWork) {
        let isLast = works.withLock { works in
            works.remove(work)
            return works.isEmpty
        }
        guard isLast, hasMoreWork.exchange(false, ordering: .relaxed) else { return }
        Task {
            do throws(ChatError) {
                try await resumeWork()
            } catch {
                hasMoreWork.store(true, ordering: .relaxed)
            }
        }
    }

    /// Takes up what a crash or a full disk interrupted.
    package func resumeWork() async throws(ChatError) {
        let open = try await read { db in
            try Int64.fetchAll(
                db.cachedStatement(
                    sql: """
                        SELECT message_id FROM messages WHERE fanout_after IS NOT NULL ORDER BY message_id LIMIT ?
                        """), arguments: [LeftWork.most]
            ).map(LeftWork.message)
                + Int64.fetchAll(
                    db.cachedStatement(
                        sql: """
                            SELECT notification_id FROM notifications WHERE work IS NOT NULL
                            ORDER BY notification_id LIMIT ?
                            """), arguments: [LeftWork.most]
                ).map(LeftWork.notification)
        }
        if open.count >= LeftWork.most { hasMoreWork.store(true, ordering: .relaxed) }
        for work in open { continueWork(work) }
    }
}

import CSimulation
import ChatDomain

/// Notifications to all devices or some, now or later, some of them cancelled.
final class Notifications: Part {
    private struct Sent {
        let tokens: [DeviceToken]?
        let begin: Moment
        let wall: Timestamp
        let notBefore: Timestamp?
        var end: Moment?
        var id: NotificationID?
        var cancelling: Moment?
        var cancelled: Moment?
    }

    private unowned let world: World
    private var all: [Sent] = []
    private var numbers: [NotificationID: Int] = [:]

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        guard choices.dice.chance(40) else { return }
        choices.add(world.clients.isLarge ? 1 : choices.dice.among([1, 5, 20])) { dice in
            let tokens = dice.chance(50) ? nil : (0..<dice.within(1...20)).map { _ in Clients.token(dice.below(30)) }
            let delay: Duration? = dice.chance(30) ? dice.within(.zero...(.seconds(60))) : nil
            // Often while its first pushes are under way.
            let soon: Duration = dice.chance(50) ? .milliseconds(300) : .seconds(10)
            let cancellation: Duration? = dice.chance(30) ? dice.within(.zero...soon) : nil
            return (
                "a notification to \(tokens.map { "\($0.count)" } ?? "all") devices",
                { self.send(tokens, delay, cancelledAfter: cancellation) }
            )
        }
    }

    private func send(_ tokens: [DeviceToken]?, _ delay: Duration?, cancelledAfter: Duration?) {
        let number = all.count
        let notBefore = delay.map { Timestamp.now() + $0 }
        all.append(Sent(tokens: tokens, begin: .now, wall: Timestamp.now(), notBefore: notBefore))
        let request = NotificationRequest(
            audience: tokens.map { .tokens($0) } ?? .all, payload: #"{"aps":{"alert":"\#(number)"}}"#,
            notBefore: notBefore,
            idempotencyKey: "notification \(number)")
        world.calls.insist("notification \(number)") { stores in
            try await stores.notifications.send(request)
        } then: { [self] result in
            guard case .success(let receipt) = result else {
                return world.violate(.callsSucceed, "notification \(number): \(result)")
            }
            all[number].end = .now
            all[number].id = receipt.id
            numbers[receipt.id] = number
            if let cancelledAfter { simulation_world.run(after: cancelledAfter) { self.cancel(number, receipt.id) } }
        }
    }

    private func cancel(_ number: Int, _ id: NotificationID) {
        all[number].cancelling = .now
        world.calls.insist("cancellation of notification \(number)") { stores in
            try await stores.notifications.cancel(id)
        } then: { [self] result in
            // A notification whose pushes have all ended does not change.
            if case .success(let status) = result, status.cancelledAt != nil { all[number].cancelled = .now }
        }
    }

    func sending(_ push: QueuedPush, leased: Moment) {
        guard let number = push.notification.flatMap({ numbers[$0] }) else { return }
        if let cancelled = all[number].cancelled, cancelled < leased {
            world.violate(.cancelledNotificationsAreNotSent, "push \(push.id) of notification \(number) is sent")
        }
        // A retry makes pushes due at once.
        if let time = all[number].notBefore, Timestamp.now() < time,
            !world.queueOperator.mayHaveRetried(since: all[number].begin),
            !world.retention.hasStepped(since: leased)
        {
            world.violate(.notBeforeItsTime, "push \(push.id) of notification \(number) is sent before \(time)")
        }
    }

    func permits(_ push: StoredRows.Push) -> Bool {
        guard let number = push.notification.flatMap({ numbers[$0] }) else { return false }
        return push.state == "cancelled" && push.reason == PushLifeCycle.cancelled && all[number].cancelling != nil
    }

    func check(_ rows: StoredRows) {
        let pushes = Dictionary(grouping: rows.pushes.filter { $0.notification != nil }, by: \.notification)
        for (number, sent) in all.enumerated() {
            guard let id = sent.id, let end = sent.end,
                !world.retention.mayHaveDeleted(writtenSince: sent.begin, at: sent.wall)
            else { continue }
            let mine = pushes[id] ?? []
            let found = Set(mine.map(\.token))
            let registered = world.clients.devices(from: sent.begin, to: end)
            let named = sent.tokens.map { Set($0.map(\.description)) }
            let certain = named?.subtracting(world.ledger.unregistered) ?? registered.certain
            if found.count < mine.count {
                world.violate(.oneNotificationForEachDevice, "notification \(number) has two for one")
            }
            let isComplete = sent.cancelling != nil || found.isSuperset(of: certain)
            if !isComplete || !found.isSubset(of: named ?? registered.possible) {
                world.violate(
                    .oneNotificationForEachDevice,
                    "notification \(number) has \(found.count) pushes for \(certain.count) devices")
            }
            var counts = Dictionary(grouping: mine, by: \.state).mapValues { Int64($0.count) }
            if !mine.isEmpty { counts["queued"] = Int64(mine.count) }
            if let stored = rows.counts[id], stored != counts {
                world.violate(.countsOfANotification, "notification \(number): \(stored), and its rows: \(counts)")
            }
        }
    }
}

import CSimulation
import ChatDomain

/// An operator, who pauses the app, cancels waiting pushes, and sends failed ones again.
final class Operator: Part {
    private unowned let world: World
    /// The time since which the app is paused for certain.
    private var paused: Moment?
    private var isBusy = false
    private var hasCancelled = false
    private var retriesUnderWay = 0
    private var lastRetry: Moment?

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        guard choices.dice.chance(40) else { return }
        choices.add(choices.dice.below(6)) { dice in
            let length = dice.within(.milliseconds(1)...(.seconds(10)))
            return ("the operator pauses the app for \(length)", { self.pause(for: length) })
        }
        choices.add(choices.dice.below(4)) { _ in ("the operator cancels all pushes", { self.change(.cancel) }) }
        choices.add(choices.dice.below(6)) { _ in ("the operator retries all pushes", { self.change(.retry) }) }
    }

    private func pause(for length: Duration) {
        guard !isBusy else { return }
        isBusy = true
        world.calls.insist("pause") { stores in
            try await stores.queueAdministration.pause(.default, reason: nil, by: .commandLine)
        } then: { [self] result in
            expectSuccess("pause", result)
            paused = .now
            simulation_world.run(after: length) { self.resume() }
        }
    }

    private func resume() {
        paused = nil
        world.calls.insist("resumption") { stores in
            try await stores.queueAdministration.resume(.default, by: .commandLine)
        } then: { [self] result in
            expectSuccess("resumption", result)
            isBusy = false
        }
    }

    private func change(_ change: QueueChange) {
        if change == .cancel { hasCancelled = true }
        // A push that a gateway has may be accepted, and sent again all the same.
        if change == .retry {
            world.ledger.doubtAllOpen()
            retriesUnderWay += 1
        }
        world.calls.insist("\(change)") { stores in
            try await stores.queueAdministration.perform(
                change, .matching(QueueFilter(app: .default)), by: .commandLine)
        } then: { [self] result in
            expectSuccess("\(change)", result)
            guard change == .retry else { return }
            world.ledger.doubtAllOpen()
            retriesUnderWay -= 1
            lastRetry = .now
        }
    }

    private func expectSuccess<Value>(_ name: String, _ result: Result<Value, ChatError>) {
        if case .failure(let error) = result { world.violate(.callsSucceed, "\(name): \(error)") }
    }

    /// Whether pushes that were queued at a moment or later may have been due at once.
    func mayHaveRetried(since moment: Moment) -> Bool { retriesUnderWay > 0 || lastRetry.map { $0 >= moment } ?? false }

    func leased(_ pushes: [QueuedPush], asked: Moment) {
        guard let paused, paused < asked, !pushes.isEmpty else { return }
        world.violate(.aPauseHolds, "\(pushes.count) pushes are leased, and the app is paused since \(paused)")
    }

    func permits(_ push: StoredRows.Push) -> Bool {
        let fate = world.ledger.fate(of: push.id)
        return push.state == "cancelled" && push.reason == PushLifeCycle.cancelled && hasCancelled
            && fate.accepted <= fate.doubts
    }

    var isSettled: Bool { !isBusy }
}

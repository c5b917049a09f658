import CSimulation
import ChatDomain
import ChatStore

/// The calls of clients and operators. Each is repeated, through failures and crashes, until the relay has answered.
final class Calls {
    private unowned let world: World
    private var next = 0
    /// The calls that the relay has begun, by number, with what begins them again.
    private var underWay: [Int: () -> Void] = [:]
    private var waiting = 0

    init(_ world: World) { self.world = world }

    var areSettled: Bool { underWay.isEmpty && waiting == 0 }

    /// Repeats a call until it succeeds, or fails with an error that a repetition cannot change.
    func insist<Value>(
        _ name: String, _ call: @escaping (SQLiteStores) async throws -> Value,
        then completion: @escaping (Result<Value, ChatError>) -> Void
    ) {
        guard let relay = world.relay else { return later { self.insist(name, call, then: completion) } }
        next += 1
        let number = next
        underWay[number] = { self.insist(name, call, then: completion) }
        relay.call(call) { result in
            guard let again = self.underWay.removeValue(forKey: number) else { return }
            self.world.log("\(name): \(result)")
            switch result {
            case .success(let value): completion(.success(value))
            case .failure(let error as ChatError) where error.code == .unavailable:
                if !self.world.expectsErrors, !relay.isStopping {
                    self.world.violate(.callsSucceed, "\(name): \(error)")
                }
                self.later(again)
            case .failure(let error as ChatError) where error.code != .internalError: completion(.failure(error))
            case .failure(let error):
                self.world.violate(.errorsAreChatErrors, "\(name): \(error)")
                self.later(again)
            }
        }
    }

    private func later(_ again: @escaping () -> Void) {
        waiting += 1
        simulation_world.run(after: world.dice.within(.milliseconds(1)...(.seconds(3)))) {
            self.waiting -= 1
            again()
        }
    }

    /// The relay died with all calls. Their callers do not know the outcome.
    func relayDied() {
        let lost = underWay.sorted { $0.key < $1.key }
        underWay = [:]
        for (_, again) in lost { later(again) }
    }
}

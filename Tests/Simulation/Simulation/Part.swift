import ChatDomain

/// A part of the world outside of the relay: clients, a fault, another program. Each decides by the seed whether, how
/// often and when it acts.
protocol Part: AnyObject {
    init(_ world: World)
    /// Adds the part's choices.
    func plan(_ choices: Choices)
    /// Runs in the relay before it serves anything, in each life.
    func prepare(_ life: Life) async throws
    func relayDied()
    /// Ends all faults. From now on the part only finishes what it has begun.
    func calmDown()
    /// Whether the part has finished.
    var isSettled: Bool { get }
    /// Checks the part's properties at the end.
    func check(_ rows: StoredRows)
}

extension Part {
    func prepare(_ life: Life) async throws {}
    func relayDied() {}
    func calmDown() {}
    var isSettled: Bool { true }
    func check(_ rows: StoredRows) {}
}

/// A push service, together with the relay's gateway to it.
protocol PushService: Part {
    var format: any PushFormat { get }
    /// Creates the gateway of a life.
    func gateway(for life: Life) throws -> any PushGateway
}

import ChatDomain
import ServiceLifecycle

/// A part of the world outside of the relay: clients, a fault, another program. Each decides by the seed whether, how
/// often and when it acts.
protocol Part: AnyObject {
    init(_ world: World)
    /// Adds the part's choices.
    func plan(_ choices: Choices)
    /// Begins when the world does.
    func begin()
    /// The relay has leased pushes.
    /// - Parameter asked: The time at which it asked the store for them.
    func leased(_ pushes: [QueuedPush], asked: Moment)
    /// The relay sends a push to its service.
    /// - Parameter leased: The time at which it asked the store for pushes, and got this one.
    func sending(_ push: QueuedPush, leased: Moment)
    /// The service has accepted a push.
    func accepted(_ push: Int64)
    /// The relay's process is gone, or has stopped.
    func relayDied()
    /// Ends all faults. From now on the part only finishes what it has begun.
    func calmDown()
    /// Whether the part has finished.
    var isSettled: Bool { get }
    /// Whether the relay must run its clock of changed and scheduled messages.
    var needsMessageClock: Bool { get }
    /// Whether a push may have ended as it did, although it was neither sent nor rejected.
    func permits(_ push: StoredRows.Push) -> Bool
    /// Checks the part's properties at the end.
    func check(_ rows: StoredRows)
}

extension Part {
    func begin() {}
    func leased(_ pushes: [QueuedPush], asked: Moment) {}
    func sending(_ push: QueuedPush, leased: Moment) {}
    func accepted(_ push: Int64) {}
    func relayDied() {}
    func calmDown() {}
    var isSettled: Bool { true }
    var needsMessageClock: Bool { false }
    func permits(_ push: StoredRows.Push) -> Bool { false }
    func check(_ rows: StoredRows) {}
}

/// A push service, together with the relay's gateway to it.
protocol PushService: Part {
    var format: any PushFormat { get }
    /// Creates the gateway of a life.
    func gateway(for life: Life) throws -> any PushGateway
    /// Creates the relay's other services of a life that connect to this push service.
    func readers(for life: Life) -> [any Service]
    /// Applies the configuration again, to the gateway of the current life. `nil` if there is none.
    var reload: (() -> Void)? { get }
    /// Whether the relay can send any push at once. `false` if that is not known.
    var hasRoom: Bool { get }
    /// The updates of a notification that devices can do without a ring.
    var silentUpdates: Set<AlertUpdate> { get }
    /// The subscription that a browser stores before it registers. `nil` for other devices.
    func subscription(_ token: DeviceToken) -> Subscription?
}

extension PushService {
    func readers(for life: Life) -> [any Service] { [] }
    var reload: (() -> Void)? { nil }
    var hasRoom: Bool { false }
    var silentUpdates: Set<AlertUpdate> { [.replace, .remove] }
    func subscription(_ token: DeviceToken) -> Subscription? { nil }
}

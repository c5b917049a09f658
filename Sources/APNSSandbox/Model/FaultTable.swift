/// The faults that wait for their notifications, and those that had them.
struct FaultTable: Sendable {
    /// Faults that wait at the same time: each is looked at for every notification.
    static let limit = 100
    /// Spent faults that are kept for `GET /faults`, the newest.
    static let spentLimit = 100

    /// Too many faults wait.
    struct Full: Error {}

    private(set) var waiting: [Fault] = []
    private(set) var spent: [Fault] = []
    private var lastID = 0

    /// All of them, oldest first.
    var all: [Fault] { (waiting + spent).sorted { $0.id < $1.id } }

    mutating func add(
        to gateway: GatewayProtocol = .binary, token: [UInt8]? = nil, after: Int = 0, times: Int = 1, every: Int = 1,
        action: Fault.Action
    ) throws(Full) -> Fault {
        guard waiting.count < Self.limit else { throw Full() }
        lastID += 1
        let fault = Fault(
            id: lastID, gateway: gateway, token: token, after: after, times: times, every: every, action: action)
        waiting.append(fault)
        return fault
    }

    mutating func clear() {
        waiting = []
        spent = []
    }

    /// Counts a notification, and says what is to go wrong with it.
    ///
    /// Of several faults that are due the oldest has it; a fault that is not due counts it as passed in any case.
    mutating func strike(token: [UInt8], over gateway: GatewayProtocol = .binary) -> Fault.Action? {
        guard !waiting.isEmpty else { return nil }
        var struck: Int?
        for index in waiting.indices
        where waiting[index].gateway == gateway && (waiting[index].token == nil || waiting[index].token == token) {
            if waiting[index].passed < waiting[index].after {
                waiting[index].passed += 1
            } else if waiting[index].spared < waiting[index].every - 1 {
                waiting[index].spared += 1
            } else if struck == nil {
                struck = index
            }
        }
        guard let struck else { return nil }
        waiting[struck].hit += 1
        waiting[struck].spared = 0
        let action = waiting[struck].action
        if waiting[struck].isSpent {
            spent.append(waiting.remove(at: struck))
            if spent.count > Self.spentLimit { spent.removeFirst() }
        }
        return action
    }
}

import Foundation
import PushWire

/// The effect of a fault on the notifications that it hits. Each service has its own enum, so that a handler
/// gets only actions that its protocol knows. All times are in milliseconds.
protocol FaultAction: Sendable {
    /// The protocol of the action, unless several protocols share the actions.
    static var gateway: GatewayProtocol { get }

    /// The number of messages per minute that the fault lets pass. `nil` if it does not limit the rate.
    var passesPerMinute: Int? { get }
}

extension FaultAction {
    var passesPerMinute: Int? { nil }
}

/// An error to simulate, once or several times (`docs/sandbox-control.md`, "Faults"). Its JSON is that of `POST /faults`
/// and `GET /faults`.
struct Fault: Sendable {
    /// The fault's id, from 1. The ``FaultTable`` assigns it.
    fileprivate(set) var id = 0
    /// The token whose notifications the fault counts and hits. `nil` if it counts all.
    let token: [UInt8]?
    /// The number of matching notifications that pass first, counted from the creation of the fault.
    let after: Int
    /// The number of notifications to hit.
    let times: Int
    /// After the first ``after`` notifications, the fault hits only every Nth one. With 1, it hits every notification.
    let every: Int
    let action: any FaultAction
    /// The protocol whose notifications or requests the fault counts and hits.
    let gateway: GatewayProtocol
    /// The action's fields in JSON.
    private let fields: [Field: FaultFields.Value]
    /// The number of notifications that have passed, at most ``after``.
    fileprivate(set) var passed = 0
    /// The number of notifications that were hit, at most ``times``.
    fileprivate(set) var hit = 0
    /// The number of notifications since the last hit that were not hit because of ``every``.
    fileprivate var skipped = 0
    /// The minute of a rate limit, and the number of messages that have passed in it.
    private var minuteStart = Date.distantPast
    private var passedInMinute = 0

    init<Action: FaultAction>(
        _ action: Action, over gateway: GatewayProtocol = Action.gateway, token: [UInt8]? = nil, after: Int = 0,
        times: Int = 1, every: Int = 1, fields: [Field: FaultFields.Value] = [:]
    ) {
        (self.action, self.gateway, self.token, self.fields) = (action, gateway, token, fields)
        (self.after, self.times, self.every) = (after, times, every)
    }

    /// Whether a rate limit lets the message pass, which is counted.
    fileprivate mutating func passesRate(at now: Date) -> Bool {
        guard let limit = action.passesPerMinute else { return false }
        if now < minuteStart || now.timeIntervalSince(minuteStart) >= 60 { (minuteStart, passedInMinute) = (now, 0) }
        guard passedInMinute < limit else { return false }
        passedInMinute += 1
        return true
    }

    /// Whether the fault has hit all its notifications.
    var isSpent: Bool { hit >= times }
}

// MARK: - JSON

extension Fault: Encodable {
    /// The maximum of `after`, `times` and `every`.
    static let maxCount = 1_000_000

    enum Field: String, CaseIterable {
        case `protocol`, token, after, times, every, action
        // Only with some actions:
        case status, identifier, answer, reason, timestamp
        case lastStream = "last_stream"
        case code, limit
        case delay = "delay_ms"
        case retryAfter = "retry_after"
        case retryAfterForm = "retry_after_form"
    }

    /// Parses a fault.
    /// - Parameter forms: Returns the actions of a protocol.
    /// - Throws: ``ControlError`` that names the first invalid field and the rule.
    init(_ body: ControlBody<Field>, forms: (GatewayProtocol) -> [FaultForm]) throws {
        guard let gateway = try body.string(.protocol).flatMap(GatewayProtocol.init) else {
            throw ControlError("protocol: \(GatewayProtocol.rule())")
        }
        let token = try body.token(.token)
        guard token == nil || gateway.hasTokens else {
            throw ControlError("token: not allowed with the protocol \(gateway.rawValue), whose requests have none")
        }
        let after = try body.integer(.after, in: 0...Self.maxCount)
        let times = try body.integer(.times, in: 1...Self.maxCount)
        let every = try body.integer(.every, in: 1...Self.maxCount)
        let name = try body.string(.action)
        let forms = forms(gateway)
        guard let form = forms.first(where: { $0.name == name }) else {
            throw ControlError("action: must be one of \(forms.map(\.name).joined(separator: ", "))")
        }
        for field in Field.allCases.drop(while: { $0 != .status })
        where body.has(field) && !form.fields.contains(field) {
            let owners = forms.filter { $0.fields.contains(field) }.map(\.name)
            let hint = owners.isEmpty ? "" : ", only with \(owners.joined(separator: ", "))"
            throw ControlError("\(field.rawValue): not allowed with the action \(form.name)\(hint)")
        }
        var fields = FaultFields(body, action: form.name)
        let action = try form.read(&fields)
        // A limit holds until it is deleted.
        let usual = action.passesPerMinute == nil ? 1 : Self.maxCount
        self.init(
            action, over: gateway, token: token, after: after ?? 0, times: times ?? usual, every: every ?? 1,
            fields: fields.shown)
    }

    func encode(to encoder: any Encoder) throws {
        let common: JSONMembers = [
            "id": id, "passed": passed, "hit": hit, "protocol": gateway, "token": token?.hex, "after": after,
            "times": times,
            "every": every == 1 ? nil : every,
        ]
        try common.encode(to: encoder)
        try JSONMembers(fields.lazy.map { (name: $0.rawValue, value: $1) }).encode(to: encoder)
    }
}

// MARK: - The table

/// The faults that wait for notifications, and those that are spent.
struct FaultTable: Sendable {
    /// The maximum number of waiting faults. Each notification is compared with all of them.
    static let limit = 100
    /// The maximum number of spent faults to keep for `GET /faults`. The newest are kept.
    static let spentLimit = 100

    private var waiting: [Fault] = []
    private var spent: [Fault] = []
    private var lastID = 0

    /// All faults, oldest first.
    var all: [Fault] { (waiting + spent).sorted { $0.id < $1.id } }

    /// Adds a fault.
    /// - Returns: The fault with its id.
    @discardableResult
    mutating func add(_ fault: Fault) throws(LimitReached) -> Fault {
        guard waiting.count < Self.limit else {
            throw LimitReached(
                text: "\(Self.limit) faults are waiting, which is the limit; delete them with DELETE /faults")
        }
        lastID += 1
        var fault = fault
        fault.id = lastID
        waiting.append(fault)
        return fault
    }

    mutating func clear() {
        waiting = []
        spent = []
    }

    /// Counts a notification.
    ///
    /// If several faults are due, the oldest applies. Every waiting fault that is not due yet counts the notification
    /// as well.
    /// - Parameters:
    ///   - kind: The type of the faults that may hit the notification.
    ///   - now: The time. Only limits of the rate need it.
    ///   - concerns: Whether a fault counts and hits the notification.
    /// - Returns: The action to apply. `nil` if no fault is due.
    mutating func trigger<Action: FaultAction>(
        _ kind: Action.Type, over gateway: GatewayProtocol = Action.gateway, token: [UInt8] = [],
        at now: Date = .distantPast, where concerns: (Action) -> Bool = { _ in true }
    ) -> Action? {
        guard !waiting.isEmpty else { return nil }
        var due: (index: Int, action: Action)?
        for index in waiting.indices
        where waiting[index].gateway == gateway && (waiting[index].token == nil || waiting[index].token == token) {
            guard let action = waiting[index].action as? Action, concerns(action) else { continue }
            if waiting[index].passed < waiting[index].after {
                waiting[index].passed += 1
            } else if waiting[index].passesRate(at: now) {
                continue
            } else if waiting[index].skipped < waiting[index].every - 1 {
                waiting[index].skipped += 1
            } else if due == nil {
                due = (index, action)
            }
        }
        guard let (index, action) = due else { return nil }
        waiting[index].hit += 1
        waiting[index].skipped = 0
        if waiting[index].isSpent {
            spent.append(waiting.remove(at: index))
            if spent.count > Self.spentLimit { spent.removeFirst() }
        }
        return action
    }
}

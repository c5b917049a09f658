/// An action that a service offers in `POST /faults`: its name, the fields that it allows in addition to the common
/// ones, and the way to read them.
struct FaultForm: Sendable {
    let name: String
    let fields: [Fault.Field]
    let read: @Sendable (inout FaultFields) throws -> any FaultAction

    init(
        _ name: String, _ fields: Fault.Field...,
        read: @escaping @Sendable (inout FaultFields) throws -> any FaultAction
    ) {
        (self.name, self.fields, self.read) = (name, fields, read)
    }

    /// An action without fields.
    init(_ name: String, _ action: any FaultAction) {
        self.init(name) { _ in action }
    }

    /// The action `delay`, which every service has.
    static func delay(_ make: @escaping @Sendable (Int) -> any FaultAction) -> FaultForm {
        FaultForm("delay", .delay) { fields in
            guard let delay = try fields.delay() else {
                throw ControlError("delay_ms: must be given with the action delay, from 0 to \(FaultFields.maxDelay)")
            }
            return make(delay)
        }
    }
}

/// The fields of a fault that is being read. They are kept for `GET /faults`.
struct FaultFields {
    typealias Value = any Encodable & Sendable

    /// The maximum delay in milliseconds.
    static let maxDelay = 60_000
    /// The statuses of HTTP that a fault may have.
    private static let statuses = 300...599
    /// The maximum of `retry_after`: one day, in seconds.
    private static let maxRetryAfter = 86_400
    /// The maximum size of a reason in bytes.
    private static let maxReasonSize = 100

    private let body: ControlBody<Fault.Field>
    /// The fields that were read or set.
    private(set) var shown: [Fault.Field: Value]

    init(_ body: ControlBody<Fault.Field>, action: String) {
        (self.body, shown) = (body, [.action: action])
    }

    func has(_ field: Fault.Field) -> Bool { body.has(field) }

    mutating func set(_ field: Fault.Field, _ value: Value) { shown[field] = value }

    mutating func integer(_ field: Fault.Field, in range: ClosedRange<Int>) throws(ControlError) -> Int? {
        let number = try body.integer(field, in: range)
        shown[field] = number
        return number
    }

    mutating func integer(
        _ field: Fault.Field, in range: ClosedRange<Int>, default value: Int
    ) throws(ControlError) -> Int {
        let number = try body.integer(field, in: range) ?? value
        shown[field] = number
        return number
    }

    mutating func string(_ field: Fault.Field) throws(ControlError) -> String? {
        let text = try body.string(field)
        shown[field] = text
        return text
    }

    mutating func delay() throws(ControlError) -> Int? { try integer(.delay, in: 0...Self.maxDelay) }

    /// The delay of a response, by default 0.
    mutating func responseDelay() throws(ControlError) -> Int {
        try integer(.delay, in: 0...Self.maxDelay, default: 0)
    }

    /// A status of HTTP.
    mutating func status() throws(ControlError) -> Int? { try integer(.status, in: Self.statuses) }

    mutating func retryAfter() throws(ControlError) -> Int? { try integer(.retryAfter, in: 0...Self.maxRetryAfter) }

    /// Parses the reason. It is inserted into JSON unchanged, so it must not need escapes.
    mutating func reason() throws(ControlError) -> String? {
        guard let reason = try string(.reason) else { return nil }
        let isPlain = reason.utf8.allSatisfy { (0x20..<0x7F).contains($0) && $0 != 0x22 && $0 != 0x5C }
        guard isPlain, (1...Self.maxReasonSize).contains(reason.utf8.count) else {
            throw ControlError(
                "reason: must be 1 to \(Self.maxReasonSize) printable ASCII characters, without quotes and backslashes")
        }
        return reason
    }
}

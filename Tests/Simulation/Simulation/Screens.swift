import ChatDomain

/// The pushes of programs' messages, and the order in which devices got them.
final class Screens {
    /// A push as it was leased first.
    struct Leased {
        let message: MessageID
        let token: String
        let update: AlertUpdate
        /// `nil` if the push has no text.
        let marker: Marker?
    }

    struct Arrival: CustomStringConvertible {
        let push: Int64
        let update: AlertUpdate
        let marker: Marker?

        var description: String { "\(update) \(marker.map { $0.text } ?? "")(push \(push))" }
    }

    struct Device: Hashable, Comparable, CustomStringConvertible {
        let message: MessageID
        let token: String

        var description: String { "message \(message) on \(token.drop { $0 == "0" })" }

        static func < (left: Device, right: Device) -> Bool {
            (left.message, left.token) < (right.message, right.token)
        }
    }

    private(set) var pushes: [Int64: Leased] = [:]
    /// In the order in which the service accepted them.
    private(set) var arrivals: [Device: [Arrival]] = [:]
    /// All pushes of a message that a device had a lease of.
    private(set) var pushesOfDevices: [Device: [Int64]] = [:]

    /// Notes a leased push.
    /// - Returns: `nil` if the push is not of a program's message, or must not be sent.
    func leased(_ push: QueuedPush) -> Leased? {
        guard push.obstacle == nil, push.notification == nil, let payload = push.payload,
            let token = push.address?.description
        else { return nil }
        let found: Leased?
        if let message = push.message, let marker = Marker(in: payload) {
            found = Leased(
                message: message, token: token, update: Self.isSilent(payload) ? .replace : .ring, marker: marker)
        } else {
            found = removal(payload, token, push.message)
        }
        guard let found else { return nil }
        if pushes[push.id] == nil {
            pushes[push.id] = found
            pushesOfDevices[Device(message: found.message, token: token), default: []].append(push.id)
        }
        return found
    }

    private func removal(_ payload: [UInt8], _ token: String, _ message: MessageID?) -> Leased? {
        let text = String(decoding: payload, as: UTF8.self)
        guard text.contains(#""type":"clear""#) else { return nil }
        let named = text.range(of: #""message_id":"#).flatMap { range in
            MessageID(text[range.upperBound...].drop { $0 == "\"" }.prefix { $0.isNumber })
        }
        return (message ?? named).map {
            Leased(message: $0, token: token, update: .remove, marker: nil)
        }
    }

    /// Whether a text replaces an earlier one without a ring, in any of the formats.
    private static func isSilent(_ payload: [UInt8]) -> Bool {
        let text = String(decoding: payload, as: UTF8.self)
        return [#""interruption-level":"passive""#, #""update":"true""#, #""silent":true"#].contains {
            text.contains($0)
        }
    }

    func accepted(_ push: Int64) {
        guard let leased = pushes[push] else { return }
        arrivals[Device(message: leased.message, token: leased.token), default: []].append(
            Arrival(push: push, update: leased.update, marker: leased.marker))
    }
}

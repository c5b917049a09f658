import ChatDomain

/// The priorities of ntfy.
enum NtfyPriority: Int {
    case min = 1
    case low, usual, high, max

    /// The priority of the pushes. It is low for messages that ntfy's app does not announce.
    var ofPushes: UInt8? {
        switch self {
        case .min: 1
        case .low: 5
        case .usual: nil
        case .high, .max: 10
        }
    }

    /// The sound of the pushes. ntfy's app makes no sound below the default priority.
    var sound: String? { self == .min || self == .low ? "" : nil }

    /// The priority of a message. `nil` for the usual one.
    init?(of message: Message) {
        switch message.content.priority {
        case 1: self = .min
        case 5: self = .low
        case 10: self = message.content.isUrgent ? .max : .high
        default: return nil
        }
    }

    init?(_ text: String) {
        let names: [String: NtfyPriority] = [
            "1": .min, "min": .min, "2": .low, "low": .low, "3": .usual, "default": .usual, "4": .high,
            "high": .high, "5": .max, "max": .max, "urgent": .max,
        ]
        guard let priority = names[text.lowercased()] else { return nil }
        self = priority
    }
}

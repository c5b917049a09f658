/// The severities of alerts, in the words of other programs.
enum HookSeverity {
    static let quiet = 1
    static let usual = 2
    static let urgent = 4

    /// Returns the rank of a word, from 0 to 4: 4 wakes people, 1 and 0 make no sound. An unknown word is a warning.
    static func rank(_ word: String?) -> Int {
        switch HookText.shortWord(word) {
        case "critical", "page", "emergency", "fatal", "disaster", "urgent", "alert", "crit", "emerg", "max": urgent
        case "error", "major", "high", "failure", "err": 3
        case "info", "information", "notice", "success", "low", "quiet", "min": quiet
        case "debug", "none", "ok", "clear", "trace": 0
        default: usual
        }
    }

    static func urgency(_ rank: Int) -> HookDraft.Urgency { rank >= urgent ? .urgent : rank <= quiet ? .quiet : .usual }
}

extension HookDraft.State {
    /// Reads a state from a word that programs use. `nil` for any other word. Some programs name a state by its
    /// severity.
    init?(word: String?) {
        switch HookText.shortWord(word) {
        case "firing", "alerting", "down", "triggered", "open", "problem", "fail", "failed", "failing", "failure",
            "error", "unhealthy", "offline", "warning", "critical":
            self = .firing
        case "resolved", "ok", "up", "recovered", "closed", "clear", "cleared", "normal", "healthy", "online",
            "success":
            self = .resolved
        case "event": self = .event
        default: return nil
        }
    }
}

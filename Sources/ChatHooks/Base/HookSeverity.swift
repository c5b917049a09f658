/// The severities of alerts, in the words of other programs.
enum HookSeverity {
    /// Returns the rank of a word, from 0 to 4: 4 wakes people, 1 and 0 make no sound. An unknown word is a warning.
    static func rank(_ word: String?) -> Int {
        switch HookText.word(word) {
        case "critical", "page", "emergency", "fatal", "disaster", "urgent", "alert", "crit", "emerg", "max": 4
        case "error", "major", "high", "failure", "err": 3
        case "info", "information", "notice", "success", "low", "quiet", "min": 1
        case "debug", "none", "ok", "clear", "trace": 0
        default: 2
        }
    }

    static func urgency(_ rank: Int) -> HookDraft.Urgency { rank >= 4 ? .urgent : rank <= 1 ? .quiet : .usual }
}

extension HookDraft.State {
    /// Reads a state from a word that programs use. `nil` for any other word.
    init?(word: String?) {
        switch HookText.word(word) {
        case "firing", "alerting", "down", "triggered", "open", "problem", "fail", "failed", "failing", "failure",
            "error",
            "unhealthy", "critical":
            self = .firing
        case "resolved", "ok", "up", "recovered", "closed", "clear", "cleared", "normal", "healthy", "success":
            self = .resolved
        case "event": self = .event
        default: return nil
        }
    }
}

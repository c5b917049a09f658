/// How the lines of the log look.
enum LogFormat: String, Sendable, CaseIterable {
    /// `2026-11-20T23:55:00.123Z info  message key=value key="two words"`
    case text
    /// One object per line, with `time`, `level`, `label`, `message` and the metadata beside them.
    case json
}

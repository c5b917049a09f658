import ArgumentParser
import ChatDomain

extension ArgumentHelp {
    /// The help of an option, with a name for its value.
    static func value(_ name: String, _ abstract: String, discussion: String = "") -> ArgumentHelp {
        ArgumentHelp(abstract, discussion: discussion, valueName: name)
    }
}

/// Checks the values of flags, whose errors ArgumentParser prints with the command's usage.
func validated<Value>(_ check: () throws(ChatError) -> Value) throws(ValidationError) -> Value {
    do throws(ChatError) { return try check() } catch { throw ValidationError(error.message) }
}

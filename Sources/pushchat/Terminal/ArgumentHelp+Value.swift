import ArgumentParser

extension ArgumentHelp {
    /// The help of an option, with a name for its value.
    static func value(_ name: String, _ abstract: String, discussion: String = "") -> ArgumentHelp {
        ArgumentHelp(abstract, discussion: discussion, valueName: name)
    }
}

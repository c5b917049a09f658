import ChatDomain

/// The settings of a hook, which are kept with its token. `HookFormats` checks new ones.
package struct HookSettings: Sendable, Hashable {
    /// The name of the format.
    package let format: String
    /// The secret with which the sender signs. `nil` if the address alone is the proof.
    package let secret: String?
    /// The template of the format `json`.
    package let template: HookTemplate?

    package init(format: String, secret: String? = nil, template: HookTemplate? = nil) {
        self.format = format
        self.secret = secret
        self.template = template
    }

    /// The text in which databases keep the settings: a JSON object. `HookFormats` reads it.
    package var stored: String {
        var object: JSONObject = ["format": .string(format)]
        object["secret"] = secret.map { .string($0) }
        object["template"] = template?.json
        return "\(JSONValue.object(object))"
    }
}

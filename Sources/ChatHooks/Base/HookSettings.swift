package import ChatDomain

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

    /// Reads ``stored``.
    package init(stored text: String) throws(ChatError) {
        guard let object = try? JSONValue(parsing: text).object, let format = object["format"]?.text else {
            throw ChatError(.internalError, "The settings of this hook cannot be read", cause: "hook settings")
        }
        self.format = format
        secret = object["secret"]?.text
        template = try object["template"].map { value throws(ChatError) in try HookTemplate(value) }
    }

    /// The text in which databases keep the settings: a JSON object.
    package var stored: String {
        var object: JSONObject = ["format": .string(format)]
        object["secret"] = secret.map { .string($0) }
        object["template"] = template?.json
        return "\(JSONValue.object(object))"
    }
}

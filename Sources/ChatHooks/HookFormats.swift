package import ChatDomain

/// The list of all formats.
package enum HookFormats {
    package static let all: [any HookFormat.Type] = [
        AlertmanagerFormat.self,
        GrafanaFormat.self,
        GitHubFormat.self,
        GitLabFormat.self,
        GiteaFormat.self,
        UptimeKumaFormat.self,
        HealthchecksFormat.self,
        SentryFormat.self,
        SlackFormat.self,
        MattermostFormat.self,
        DiscordFormat.self,
        TextFormat.self,
        JSONFormat.self,
    ]

    /// Returns the format with the name. `nil` if there is none.
    package static func named(_ name: String) -> (any HookFormat.Type)? {
        all.first { $0.name == name || $0.aliases.contains(name) }
    }

    /// Checks the settings of a new hook.
    package static func settings(
        format name: String, secret: String? = nil, template: HookTemplate? = nil
    ) throws(ChatError) -> HookSettings {
        guard let format = named(name) else {
            throw .invalid("format", "must be one of \(all.flatMap { [$0.name] + $0.aliases }.joined(separator: ", "))")
        }
        if let secret {
            guard format.isSigned else {
                let signed = all.filter { $0.isSigned }.map { $0.name }.joined(separator: ", ")
                throw .invalid("secret", "is not possible for \(format.name), which does not sign; \(signed) do")
            }
            guard (8...256).contains(secret.utf8.count), secret.isVisibleASCII else {
                throw .invalid("secret", "must have 8 to 256 visible ASCII characters")
            }
            let isStandard = format.name == JSONFormat.name || secret.hasPrefix(WebhookSecret.prefix)
            guard !isStandard || HookSignature.standardKey(secret) != nil else {
                throw .invalid("secret", "must be \(WebhookSecret.prefix) and Base64, as Standard Webhooks say")
            }
        }
        guard template == nil || format.name == JSONFormat.name else {
            throw .invalid("template", "is only possible for \(JSONFormat.name)")
        }
        return HookSettings(format: format.name, secret: secret, template: template)
    }

    /// Reads ``HookSettings/stored``, and checks it like new settings: another program may have changed it, and without
    /// its secret a hook would accept what anyone sends.
    package static func settings(stored text: String) throws(ChatError) -> HookSettings {
        do {
            guard let object = try JSONValue(parsing: text).object, let format = object["format"]?.text,
                object["secret"].map({ $0.text != nil }) ?? true
            else { throw ChatError.invalid("hook", "must be an object with a format") }
            return try settings(
                format: format, secret: object["secret"]?.text,
                template: object["template"].map { try HookTemplate($0) })
        } catch {
            throw ChatError(.internalError, "The settings of this webhook cannot be read: \(error)")
        }
    }
}

import ChatDomain
import Testing

@testable import ChatHooks

/// Returns the result of a request in a format.
func read(_ format: String, _ request: HookRequest, template: HookTemplate? = nil) -> HookOutcome {
    guard let type = HookFormats.named(format) else { return .unreadable("no format \(format)") }
    return type.read(request, HookSettings(format: format, template: template))
}

func read(
    _ format: String, _ body: String, headers: [String: String] = [:], query: [String: String] = [:],
    form: [String: String] = [:]
) -> HookOutcome {
    read(format, HookRequest(headers: headers, query: query, form: form, body: Array(body.utf8)))
}

extension HookOutcome {
    /// The message. `nil` if there is none.
    var draft: HookDraft? {
        if case .draft(let draft) = self { draft } else { nil }
    }
}

/// Returns the message of a request. `nil` if there is none.
func draft(
    _ format: String, _ body: String, headers: [String: String] = [:], query: [String: String] = [:],
    form: [String: String] = [:]
) -> HookDraft? {
    read(format, body, headers: headers, query: query, form: form).draft
}

import ChatDomain

/// Programs that know Mattermost's incoming webhooks: Slack's shape with Markdown in it.
enum MattermostFormat: HookFormat {
    static let name = "mattermost"
    static let title = "Mattermost"
    static let rateStatus = 429

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        try SlackMessage(request.object(in: "payload"), read: markup).draft()
    }

    static func accepted(_ request: HookRequest, message: MessageID?) -> HookAnswer { HookAnswer(text: "ok") }

    /// Mattermost translates Slack's tags in Markdown.
    private static func markup(_ text: String) -> MarkupText {
        var result = MarkupText()
        result.add(
            markdown: HookText.replacingTags(in: text) { tag in
                let parts = tag.unicodeScalars.split(separator: "|", maxSplits: 1).map { String($0) }
                guard let target = parts.first else { return nil }
                if target.hasPrefix("!") { return "@" + target.dropFirst() }
                guard parts.count == 2, MessageContent.isLink(target) else { return nil }
                return "[\(parts[1])](\(target))"
            })
        return result
    }
}

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
        ForeignMarkdown.read(text) { tag in
            let (target, label) = SlackText.parts(ofTag: tag)
            if target.hasPrefix("!") { return MarkupText("@" + target.dropFirst()) }
            guard let label, MessageContent.isLink(target) else { return nil }
            return .link(target, label)
        }
    }
}

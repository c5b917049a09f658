import ChatDomain

/// Programs that know only Slack's incoming webhooks: texts, attachments and blocks.
enum SlackFormat: HookFormat {
    static let name = "slack"
    static let title = "Slack"
    static let rateStatus = 429

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        try SlackMessage(request.object(in: "payload"), read: Mrkdwn.read).draft()
    }

    /// Programs compare these bytes.
    static func accepted(_ request: HookRequest, message: MessageID?) -> HookAnswer { HookAnswer(text: "ok") }

    static func refused(_ error: ChatError, status: Int) -> HookAnswer? {
        let word =
            switch status {
            case 401, 403: "invalid_token"
            case 404: "no_service"
            case 413: "msg_too_long"
            case 429: "rate_limited"
            case 500...: "rollup_error"
            default: "invalid_payload"
            }
        return HookAnswer(text: word, status: status)
    }
}

import ChatDomain

/// Prometheus' Alertmanager: `webhook_configs`.
enum AlertmanagerFormat: HookFormat {
    static let name = "alertmanager"
    static let title = "Alertmanager"

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        try AlertGroup(request.object()).draft(prefix: "am")
    }
}

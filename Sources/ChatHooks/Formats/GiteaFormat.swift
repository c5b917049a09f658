import ChatDomain

/// Webhooks of Gitea and of Forgejo.
enum GiteaFormat: HookFormat {
    static let name = "gitea"
    static let aliases = ["forgejo"]
    static let title = "Gitea, Forgejo"
    static let isSigned = true
    static let postsByGET = true

    /// Without a secret, Gitea sends these headers empty.
    static func verify(_ request: HookRequest, secret: String, now: Timestamp) -> Bool {
        HookSignature.isHMAC(request.headers["x-gitea-signature"], of: request.body, secret: secret)
            || HookSignature.isHub(request, secret: secret)
    }

    static func deliveryID(_ request: HookRequest) -> String? {
        HookSignature.deliveryID(request, ["x-gitea-signature", "x-hub-signature-256"])
            ?? request.deliveryID("x-gitea-delivery", "x-forgejo-delivery")
    }

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        let event = request.headers["x-gitea-event"] ?? request.headers["x-forgejo-event"]
        return try GitHubEvent(event, request, prefix: "gt").draft()
    }
}

import ChatDomain

/// GitHub's webhooks of repositories and organisations.
enum GitHubFormat: HookFormat {
    static let name = "github"
    static let title = "GitHub"
    static let isSigned = true

    static func verify(_ request: HookRequest, secret: String, now: Timestamp) -> Bool {
        HookSignature.isHub(request, secret: secret)
    }

    static func deliveryID(_ request: HookRequest) -> String? {
        HookSignature.deliveryID(request, ["x-hub-signature-256"]) ?? request.deliveryID("x-github-delivery")
    }

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        try GitHubEvent(request.headers["x-github-event"], request, prefix: "gh").draft()
    }
}

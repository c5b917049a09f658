import WebAssets

/// The page at `/`: what arrived, and what can be made to go wrong.
enum InboxPage {
    static func files(strict: Bool) -> [WebFile] {
        WebFile.base + [
            .page("/", WebFile.filled(PackageResources.inbox_html, "unknown", with: strict ? "refused" : "accepted")),
            .style("/inbox.css", PackageResources.inbox_css), .script("/inbox.js", PackageResources.inbox_js),
        ]
    }
}

import WebAssets

/// The files of the chat and of the operator's page.
enum WebFiles {
    /// What does not depend on the configuration.
    static let all: [WebFile] =
        ofChat + [
            .page("/admin", PackageResources.admin_html),
            .style("/admin.css", PackageResources.admin_css),
            .script("/admin.js", PackageResources.admin_js),
            .script("/worker.js", worker),
            WebFile("/icon-512.png", "image/png", PackageResources.icon_512_png),
        ]

    /// What the chat page needs when there is no connection, beside itself.
    private static let ofChat: [WebFile] =
        WebFile.base + [
            .style("/chat.css", PackageResources.chat_css),
            .script("/chat.js", PackageResources.chat_js),
            .script("/qr.js", PackageResources.qr_js),
            WebFile("/icon.svg", "image/svg+xml", PackageResources.icon_svg),
            WebFile("/icon-192.png", "image/png", PackageResources.icon_192_png),
            WebFile("/manifest.webmanifest", "application/manifest+json", PackageResources.manifest_webmanifest),
        ]

    /// The page, which has to know how long a message may be.
    static func chat(textLimit: Int) -> WebFile {
        .page("/", WebFile.filled(PackageResources.chat_html, "text_limit", with: String(textLimit)))
    }

    /// The service worker keeps the files under a name that changes with them.
    private static let worker: [UInt8] = {
        let tags = ofChat.map(\.tag).joined().utf8
        let version = String(WebFile.digest(Array(tags) + PackageResources.chat_html), radix: 16)
        return WebFile.filled(PackageResources.worker_js, "version", with: version)
    }()
}

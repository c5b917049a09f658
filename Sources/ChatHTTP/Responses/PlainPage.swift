import NIOCore
import WebAssets

/// A page without scripts. Its addresses are relative, because a proxy may serve the relay below a path.
struct PlainPage: Sendable {
    private let text: String

    /// Creates a page with the frame that these pages share.
    ///
    /// - Parameter body: The content, in HTML. `{{root}}` stands for the way to the relay's root.
    init(title: String, body: String) {
        text = """
            <!DOCTYPE html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <title>\(WebFile.escaped(title)) – PushChat Relay</title>
            <link rel="stylesheet" href="{{root}}base.css">
            <link rel="icon" href="{{root}}icon.svg" type="image/svg+xml">
            </head>
            <body>
            <main>
            \(body)
            </main>
            </body>
            </html>

            """
    }

    /// Returns the page for a browser that asked for the path.
    func html(at path: String) -> ByteBuffer {
        ByteBuffer(string: text.replacing("{{root}}", with: WebFile.root(from: path)))
    }

    /// The page for a browser that opened an unknown address.
    static let notFound = PlainPage(
        title: "Not found",
        body: """
            <h1>There is nothing at this address</h1>
            <p>The address may be incomplete, or the page is gone.</p>
            <p><a href="{{root}}">Open the chat</a></p>
            """)
}

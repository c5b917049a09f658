import NIOCore
import WebAssets

/// Pages without scripts.
enum PlainPage {
    /// Returns a page with the frame that these pages share.
    ///
    /// - Parameter body: The content, in HTML.
    static func html(title: String, body: String) -> ByteBuffer {
        ByteBuffer(
            string: """
                <!DOCTYPE html>
                <html lang="en">
                <head>
                <meta charset="utf-8">
                <meta name="viewport" content="width=device-width, initial-scale=1">
                <meta name="color-scheme" content="light dark">
                <title>\(WebFile.escaped(title)) – PushChat Relay</title>
                <link rel="stylesheet" href="/base.css">
                <link rel="icon" href="/icon.svg" type="image/svg+xml">
                </head>
                <body>
                <main>
                \(body)
                </main>
                </body>
                </html>

                """)
    }

    /// The page for a browser that opened an unknown address.
    static let notFound = html(
        title: "Not found",
        body: """
            <h1>There is nothing at this address</h1>
            <p>The address may be incomplete, or the page is gone.</p>
            <p><a href="/">Open the chat</a></p>
            """)
}

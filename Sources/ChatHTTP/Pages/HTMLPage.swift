import NIOCore

/// The frame that all pages share.
enum HTMLPage {
    /// - Parameter body: HTML.
    static func html(title: String, body: String) -> ByteBuffer {
        ByteBuffer(
            string: """
                <!DOCTYPE html>
                <html lang="en">
                <head>
                <meta charset="utf-8">
                <meta name="viewport" content="width=device-width, initial-scale=1">
                <title>\(escaped(title)) – PushChat Relay</title>
                <link rel="stylesheet" href="/base.css">
                </head>
                <body>
                <main>
                \(body)
                </main>
                </body>
                </html>

                """)
    }

    /// Text that can stand between tags and in quoted attributes.
    static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}

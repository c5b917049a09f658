import Hummingbird
import NIOCore

/// The page at `/`: what this is, and the calls.
enum StartPage {
    static func response(strict: Bool) -> Response {
        Response(
            status: .ok,
            headers: [
                .contentType: "text/html; charset=utf-8",
                .contentSecurityPolicy:
                    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                .xContentTypeOptions: "nosniff",
                .cacheControl: "no-store",
            ],
            body: .init(byteBuffer: ByteBuffer(string: html(strict: strict))))
    }

    private static func html(strict: Bool) -> String {
        """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>PushChat sandbox</title>
        </head>
        <body>
        <main>
        <h1>PushChat sandbox</h1>
        <p>A local gateway that plays Apple&#8217;s push service, the HTTP/2 API and the legacy protocol: it takes
        notifications over TLS, delivers them nowhere, and shows here what came.</p>
        <p>Unknown device tokens are \(strict ? "refused (strict)" : "accepted").</p>
        <h2>Look</h2>
        <ul>
        <li><a href="/notifications">GET /notifications</a>: what arrived
        (<code>token</code>, <code>protocol</code>, <code>answer</code>, <code>since</code>, <code>limit</code>)</li>
        <li><a href="/devices">GET /devices</a>: simulated devices</li>
        <li><a href="/faults">GET /faults</a>: faults, waiting and done</li>
        <li><a href="/stats">GET /stats</a>: counts</li>
        <li><a href="/healthz">GET /healthz</a></li>
        </ul>
        <h2>Change</h2>
        <ul>
        <li><code>DELETE /notifications</code>: forget them</li>
        <li><code>POST /devices</code> <code>{}</code>: make a device, get its token</li>
        <li><code>DELETE /devices/{token}</code>: the app was removed; its token is refused, and feedback tells of it</li>
        <li><code>POST /faults</code>
        <code>{"protocol":"http2","after":3,"action":"status","reason":"Unregistered"}</code> or
        <code>{"protocol":"binary","after":3,"action":"status","status":8}</code>: let something go wrong</li>
        <li><code>DELETE /faults</code>: let nothing go wrong any more</li>
        </ul>
        </main>
        </body>
        </html>

        """
    }
}

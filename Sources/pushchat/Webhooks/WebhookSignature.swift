import ChatDomain
import Crypto
import Foundation

/// The headers that prove that a request is the relay's (Standard Webhooks 1.0.0).
enum WebhookSignature {
    /// Returns the headers of a request. The time is that of the attempt.
    static func headers(of request: WebhookRequest) -> [(name: String, value: String)] {
        let seconds = String(request.time.seconds)
        let signed = Array("\(request.id).\(seconds).".utf8) + request.body
        let signatures = request.secrets.map { secret in
            let code = HMAC<SHA256>.authenticationCode(for: signed, using: SymmetricKey(data: secret.bytes))
            return "v1," + Data(code).base64EncodedString()
        }
        return [
            ("webhook-id", request.id), ("webhook-timestamp", seconds),
            ("webhook-signature", signatures.joined(separator: " ")),
        ]
    }
}

import ChatDomain
import Crypto
import Foundation

/// Checks that a request comes from a program that knows a secret. All comparisons take the same time for each value.
enum HookSignature {
    /// Whether a header has the HMAC-SHA256 of the bytes in hexadecimal digits. An absent or empty header is wrong.
    static func isHMAC(_ digits: String?, of bytes: [UInt8], secret: String) -> Bool {
        guard let code = digits.flatMap({ Hex.bytes(Array($0.utf8)) }), !code.isEmpty else { return false }
        return HMAC<SHA256>.isValidAuthenticationCode(code, authenticating: bytes, using: key(secret))
    }

    /// Whether the request has GitHub's signature of the body.
    static func isHub(_ request: HookRequest, secret: String) -> Bool {
        guard let value = request.headers["x-hub-signature-256"], value.hasPrefix("sha256=") else { return false }
        return isHMAC(String(value.dropFirst("sha256=".count)), of: request.body, secret: secret)
    }

    /// Returns an id of a signed delivery: the hash of its body. Some signatures do not cover the header with the id, so
    /// that a program that has recorded a delivery could repeat it under another one. `nil` without a signature.
    static func deliveryID(_ request: HookRequest, _ headers: [String]) -> String? {
        guard headers.contains(where: { request.headers[$0]?.isEmpty == false }) else { return nil }
        return Hex.text(Array(SHA256.hash(data: request.body)))
    }

    /// Whether a header has the secret itself.
    static func isSecret(_ value: String?, _ secret: String) -> Bool {
        guard let value else { return false }
        // Codes have one length, so that the time does not depend on the values.
        let key = SymmetricKey(size: .bits256)
        let code = HMAC<SHA256>.authenticationCode(for: Data(value.utf8), using: key)
        return HMAC<SHA256>.isValidAuthenticationCode(code, authenticating: Data(secret.utf8), using: key)
    }

    private static func key(_ secret: String) -> SymmetricKey { SymmetricKey(data: Data(secret.utf8)) }

    /// Whether a time in seconds is close enough to now: an old request may be one that was recorded.
    static func isRecent(_ seconds: String?, now: Timestamp) -> Bool {
        guard let seconds, let time = Int64(seconds) else { return false }
        return time.subtractingReportingOverflow(now.seconds).partialValue.magnitude <= 300
    }

    /// Returns the key of Standard Webhooks that a secret contains. `nil` if it is not Base64.
    static func standardKey(_ secret: String) -> SymmetricKey? {
        let encoded =
            secret.hasPrefix(WebhookSecret.prefix) ? String(secret.dropFirst(WebhookSecret.prefix.count)) : secret
        return Data(base64Encoded: encoded).flatMap { $0.isEmpty ? nil : SymmetricKey(data: $0) }
    }

    /// Whether the request has a signature of Standard Webhooks 1.0.0 that the secret confirms.
    static func isStandard(_ request: HookRequest, secret: String, now: Timestamp) -> Bool {
        guard let key = standardKey(secret), let id = request.headers["webhook-id"],
            let time = request.headers["webhook-timestamp"],
            let list = request.headers["webhook-signature"], isRecent(time, now: now)
        else { return false }
        let signed = Array("\(id).\(time).".utf8) + request.body
        // A sender that changes its secret sends two. Blanks separate them.
        return list.split(separator: " ").prefix(8).contains { item in
            guard item.hasPrefix("v1,"), let code = Data(base64Encoded: String(item.dropFirst(3))) else { return false }
            return HMAC<SHA256>.isValidAuthenticationCode(code, authenticating: signed, using: key)
        }
    }
}

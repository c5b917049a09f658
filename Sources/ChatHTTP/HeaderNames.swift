import HTTPTypes

extension HTTPField.Name {
    // Literals that are valid field names: making them cannot fail.

    /// The error's text, as the original server sent it (pushchat-api.md §1).
    static let errorDescription = HTTPField.Name("X-Error-Description")!
    static let requestID = HTTPField.Name("X-Request-Id")!
    static let idempotencyKey = HTTPField.Name("Idempotency-Key")!
    /// The answer is that of an earlier request with the same key.
    static let idempotencyReplayed = HTTPField.Name("Idempotency-Replayed")!
    static let forwarded = HTTPField.Name("Forwarded")!
    static let xForwardedFor = HTTPField.Name("X-Forwarded-For")!
    /// What a proxy adds to what it passes on; of several kinds of proxies, one at least.
    static let ofProxies = [
        forwarded, xForwardedFor, HTTPField.Name("X-Forwarded-Host")!, HTTPField.Name("X-Forwarded-Proto")!,
        HTTPField.Name("X-Real-IP")!, .via,
    ]
    static let referrerPolicy = HTTPField.Name("Referrer-Policy")!
}

extension HTTPFields {
    /// The first value of a name; cheaper than the subscript, which joins all of them.
    func first(_ name: HTTPField.Name) -> String? {
        for field in self where field.name == name { return field.value }
        return nil
    }
}

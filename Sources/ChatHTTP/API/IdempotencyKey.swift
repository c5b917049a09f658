import ChatDomain
import HTTPTypes

/// The `Idempotency-Key` header: with the same one, a request that is repeated is done once.
enum IdempotencyKey {
    /// Nil if there is none.
    static func text(_ headers: HTTPFields) throws(ChatError) -> String? {
        guard let key = headers.first(.idempotencyKey) else { return nil }
        guard (1...HTTPLimits.idempotencyKey).contains(key.utf8.count),
            key.utf8.allSatisfy({ (0x20...0x7E).contains($0) })
        else {
            throw .invalid(
                "Idempotency-Key", "must be 1 to \(HTTPLimits.idempotencyKey) printable ASCII characters")
        }
        return key
    }
}

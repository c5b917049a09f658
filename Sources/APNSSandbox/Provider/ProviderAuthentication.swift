import APNSWire
import Foundation

/// The provider tokens of one connection: which it may use, and which it used (apns-http2.md §5).
///
/// A token is read and its signature checked once; its age is looked at for every request.
struct ProviderAuthentication: Sendable {
    /// What a header value turned out to be, apart from its age.
    private struct Reading {
        var text: String
        var outcome: Result<ProviderToken, Refusal>
    }

    /// Why a token is refused.
    struct Refusal: Error, Hashable {
        var reason: ProviderReason
        /// For the log.
        var why: String
    }

    private var reading: Reading?
    /// The key of the connection's first good token: it can use no other.
    private var keyID: String?
    /// The token in use, and since when.
    private var current: (issuedAt: Int64, firstUse: Date)?
    /// The header value that a fault has let expire.
    private var expired: String?
    /// Deviations of tokens that were taken all the same, to be warned of; cleared by who warns.
    var deviations: [ProviderToken.Deviation] = []
    private var hasWarned = false

    /// Checks the value of `authorization`.
    /// - Returns: the key's id.
    mutating func check(
        _ value: String?, policy: ProviderPolicy, at now: Date
    ) throws(Refusal) -> String {
        guard let value else {
            throw Refusal(reason: .missingProviderToken, why: "neither a client certificate nor a provider token")
        }
        let token = try read(value, policy: policy).get()
        let seconds = Int64(now.timeIntervalSince1970)
        guard abs(seconds - token.issuedAt) <= ProviderPolicy.tokenLifetime, value != expired else {
            throw Refusal(reason: .expiredProviderToken, why: "iat is \(seconds - token.issuedAt) seconds ago")
        }
        if let current, current.issuedAt != token.issuedAt {
            guard now.timeIntervalSince(current.firstUse) >= ProviderPolicy.tokenUpdateInterval else {
                throw Refusal(
                    reason: .tooManyProviderTokenUpdates, why: "the token before it is not 20 minutes in use yet")
            }
            self.current = (token.issuedAt, now)
        } else if current == nil {
            current = (token.issuedAt, now)
        }
        keyID = token.keyID
        if !hasWarned, !token.deviations.isEmpty {
            hasWarned = true
            deviations = token.deviations
        }
        return token.keyID
    }

    /// Lets the token in use expire, and takes whichever comes next.
    mutating func expire(_ value: String?) {
        expired = value
        current = nil
    }

    private mutating func read(_ value: String, policy: ProviderPolicy) -> Result<ProviderToken, Refusal> {
        if let reading, reading.text == value { return reading.outcome }
        let outcome = Result { () throws(Refusal) in try verify(value, policy: policy) }
        reading = Reading(text: value, outcome: outcome)
        return outcome
    }

    private func verify(_ value: String, policy: ProviderPolicy) throws(Refusal) -> ProviderToken {
        let scheme = value.prefix(ProviderHeader.bearer.count)
        guard scheme.lowercased() == ProviderHeader.bearer else {
            throw Refusal(reason: .invalidProviderToken, why: "authorization does not begin with bearer")
        }
        let token: ProviderToken
        do {
            token = try ProviderToken(parsing: String(value.dropFirst(scheme.count)))
        } catch {
            throw Refusal(reason: .invalidProviderToken, why: error.description)
        }
        if let keyID, token.keyID != keyID {
            throw Refusal(reason: .unrelatedKeyIDInToken, why: "the connection's key is \(keyID)")
        }
        guard token.teamID == policy.keys.teamID else {
            throw Refusal(reason: .invalidProviderToken, why: "iss is another team")
        }
        guard let key = policy.keys[token.keyID] else {
            throw Refusal(reason: .invalidProviderToken, why: "kid is no key of this sandbox")
        }
        guard token.isSigned(by: key.key) else {
            throw Refusal(reason: .invalidProviderToken, why: "the signature is not the key's")
        }
        guard !key.isForProduction else {
            throw Refusal(reason: .badEnvironmentKeyIDInToken, why: "the key is for production")
        }
        if policy.isStrict, let deviation = token.deviations.first {
            throw Refusal(reason: .invalidProviderToken, why: deviation.rawValue)
        }
        return token
    }
}

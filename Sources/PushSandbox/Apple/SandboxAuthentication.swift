import Foundation
import PushWire

/// The provider tokens that one connection may use, and those that it has used (Apple, "Establishing a token-based
/// connection to APNs").
///
/// A token is parsed and its signature verified once. Its age is checked with every request.
struct SandboxAuthentication: Sendable {
    /// The maximum distance of a provider token's time from the present, in seconds and in either direction.
    private static let tokenLifetime: Int64 = 3600
    /// The time for which a connection must use a provider token before it may send another, in seconds.
    private static let tokenUpdateInterval: Double = 20 * 60

    /// The reason for rejecting a token.
    struct Refusal: Error, Hashable {
        var reason: ProviderReason
        /// The details for the log.
        var details: String
    }

    private let keys: SandboxKeyring
    /// Whether tokens that deviate from the standard's form are rejected.
    private let isStrict: Bool
    /// The last header value, and the result of all its checks except the check of its age.
    private var last: (value: String, outcome: Result<ProviderToken, Refusal>)?
    /// The key id of the connection's first valid token. The connection can use no other key.
    private var keyID: String?
    /// The token in use, and the time of its first use.
    private var current: (issuedAt: Int64, firstUse: Date)?
    /// The header value that a fault has made expire.
    private var expiredValue: String?
    private var deviations: [ProviderToken.Deviation]?

    init(keys: SandboxKeyring, isStrict: Bool) {
        self.keys = keys
        self.isStrict = isStrict
    }

    /// Checks the value of `authorization`.
    /// - Returns: The key id.
    mutating func check(_ value: String?, at now: Date) throws(Refusal) -> String {
        guard let value else {
            throw Refusal(reason: .missingProviderToken, details: "neither a client certificate nor a provider token")
        }
        let token = try read(value).get()
        let seconds = Int64(now.timeIntervalSince1970)
        guard abs(seconds - token.issuedAt) <= Self.tokenLifetime, value != expiredValue else {
            throw Refusal(reason: .expiredProviderToken, details: "iat is \(seconds - token.issuedAt) seconds ago")
        }
        if current?.issuedAt != token.issuedAt {
            if let current, now.timeIntervalSince(current.firstUse) < Self.tokenUpdateInterval {
                throw Refusal(
                    reason: .tooManyProviderTokenUpdates,
                    details: "the previous token was used for less than 20 minutes")
            }
            current = (token.issuedAt, now)
        }
        keyID = token.keyID
        if deviations == nil, !token.deviations.isEmpty { deviations = token.deviations }
        return token.keyID
    }

    /// Makes the token in use expire, and accepts the next different token at any time.
    mutating func expire(_ value: String?) {
        expiredValue = value
        current = nil
    }

    /// Returns the deviations of the first accepted token that has any, for a warning. Later calls return nothing.
    mutating func takeDeviations() -> [ProviderToken.Deviation] {
        guard let found = deviations, !found.isEmpty else { return [] }
        deviations = []
        return found
    }

    private mutating func read(_ value: String) -> Result<ProviderToken, Refusal> {
        if let last, last.value == value { return last.outcome }
        let outcome = Result { () throws(Refusal) in try verify(value) }
        last = (value, outcome)
        return outcome
    }

    private func verify(_ value: String) throws(Refusal) -> ProviderToken {
        func invalid(_ details: String) -> Refusal { Refusal(reason: .invalidProviderToken, details: details) }
        let scheme = value.prefix(ProviderHeader.bearer.count)
        guard scheme.lowercased() == ProviderHeader.bearer else {
            throw invalid("authorization does not begin with bearer")
        }
        let token: ProviderToken
        do {
            token = try ProviderToken(parsing: String(value.dropFirst(scheme.count)))
        } catch {
            throw invalid(error.description)
        }
        if let keyID, token.keyID != keyID {
            throw Refusal(reason: .unrelatedKeyIDInToken, details: "the connection's key is \(keyID)")
        }
        guard token.teamID == keys.teamID else { throw invalid("iss is another team") }
        guard let key = keys.keys[token.keyID] else { throw invalid("kid is not a key of this sandbox") }
        guard token.isSigned(by: key.key) else { throw invalid("the signature does not match the key") }
        guard !key.isForProduction else {
            throw Refusal(reason: .badEnvironmentKeyIDInToken, details: "the key is for production")
        }
        if isStrict, let deviation = token.deviations.first { throw invalid(deviation.rawValue) }
        return token
    }
}

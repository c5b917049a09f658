import ChatDomain
import JWTKit

/// The claims of a session token (RFC 7519 §4.1), in the types that the relay needs.
struct SessionClaims: JWTPayload {
    private enum CodingKeys: String, CodingKey {
        case subject = "sub"
        case expires = "exp"
        case notBefore = "nbf"
        case audience = "aud"
        case issuer = "iss"
    }

    /// The session's user.
    var subject: String?
    /// The expiry, in UNIX seconds, perhaps with a fraction.
    var expires: Double?
    var notBefore: Double?
    /// The audiences. `nil` if the token names none.
    var audience: [String]?
    var issuer: String?

    /// Does nothing: ``check(_:now:)`` checks the claims, because it needs the time and the rules.
    func verify(using algorithm: some JWTAlgorithm) {}

    /// The latest end of a session, in milliseconds. RFC 3339 has no later years.
    private static let latestEnd = 253_402_300_799_000.0

    /// Returns the session if the claims are valid at `now`.
    func check(_ rules: SessionRules, now: Timestamp) throws(ChatError) -> UserSession {
        guard let expires else { throw .unauthorized("The session token never expires: it needs the claim exp") }
        let seconds = Double(now.milliseconds) / 1000
        guard seconds < expires + SessionRules.leeway else { throw .unauthorized("The session token has expired") }
        if let notBefore, seconds < notBefore - SessionRules.leeway {
            throw .unauthorized("The session token is not valid yet")
        }
        if let wanted = rules.issuer, issuer != wanted {
            throw .unauthorized("The session token is from another issuer")
        }
        // RFC 7519 §4.1.3: a service must reject a token that names audiences but not the service itself.
        if let audience, !(rules.audience.map(audience.contains) ?? false) {
            throw .unauthorized("The session token is for another audience")
        }
        if rules.audience != nil, audience == nil {
            throw .unauthorized("The session token names no audience")
        }
        guard let subject else {
            throw .unauthorized("The session token names no user: it needs the claim sub")
        }
        do throws(ChatError) {
            let end = min((expires + SessionRules.leeway) * 1000, Self.latestEnd).rounded(.up)
            return UserSession(
                user: try UserReference(parsing: subject, field: "sub"), end: Timestamp(milliseconds: Int64(end)))
        } catch {
            throw .unauthorized("The session token's user is not valid: \(error.message)")
        }
    }
}

extension SessionClaims {
    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        // Some systems number their users and send the number.
        if let number = try? container.decodeIfPresent(Int64.self, forKey: .subject) {
            subject = String(number)
        } else {
            subject = try container.decodeIfPresent(String.self, forKey: .subject)
        }
        expires = try container.decodeIfPresent(Double.self, forKey: .expires)
        notBefore = try container.decodeIfPresent(Double.self, forKey: .notBefore)
        if let one = try? container.decodeIfPresent(String.self, forKey: .audience) {
            audience = [one]
        } else {
            audience = try container.decodeIfPresent([String].self, forKey: .audience)
        }
        issuer = try container.decodeIfPresent(String.self, forKey: .issuer)
    }
}

/// The audience and issuer that a token must have.
struct SessionRules: Sendable, Hashable {
    /// The tolerated difference between the clocks of the relay and of the system that signs tokens, in seconds.
    static let leeway = 60.0

    /// The audience that the token's `aud` must contain. `nil` if tokens must name no audience.
    var audience: String?
    /// The value that the token's `iss` must have. `nil` for any.
    var issuer: String?
}

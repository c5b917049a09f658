package import Crypto
import Foundation

/// A provider token as a gateway reads it: a JWT, which is checked part by part so that a rejection can be exact.
///
/// Besides the standard form (RFC 7518 section 3.4), it reads forms that the live service is known to accept: a
/// signature in DER, as Pushy signs, and `iat` as a string. Apple's own sample token in "Establishing a token-based
/// connection to APNs" has both. ``deviations`` lists these forms, for a gateway that warns or is strict.
package struct ProviderToken: Sendable, Hashable {
    /// The maximum size of a token in bytes. Apple's tokens have about 200.
    package static let maxSize = 4096
    /// The maximum of ``issuedAt``. It is later than any time in milliseconds that a clock can show.
    package static let latestIssueTime: Int64 = 9_000_000_000_000_000

    /// A deviation of a usable token from RFC 7518 or from Apple's description.
    package enum Deviation: String, Sendable, Hashable {
        case derSignature = "the signature is DER, not 64 bytes"
        case textualIssueTime = "iat is a string, not a number"
        case millisecondIssueTime = "iat is in milliseconds"
    }

    /// The reason why a text is not a provider token.
    package struct Malformed: Error, Sendable, Hashable {
        package let description: String
    }

    package let keyID: String
    package let teamID: String
    /// UNIX seconds, limited to the range from 0 to ``latestIssueTime``, so that calculations cannot overflow.
    package let issuedAt: Int64
    package let deviations: [Deviation]
    private let signed: [UInt8]
    private let signature: [UInt8]

    package init(parsing text: String) throws(Malformed) {
        guard text.utf8.count <= Self.maxSize else { throw Malformed(description: "longer than \(Self.maxSize) bytes") }
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3 else { throw Malformed(description: "it does not have three parts separated by dots") }
        guard let header: Header = Self.decode(parts[0]) else {
            throw Malformed(description: "the header is not JSON in base64url, or lacks alg or kid")
        }
        guard header.alg == "ES256" else { throw Malformed(description: "alg is not ES256") }
        guard let claims: Claims = Self.decode(parts[1]) else {
            throw Malformed(description: "the claims are not JSON in base64url, or lack iss or iat")
        }
        guard let signature = Base64URL.bytes(parts[2]) else {
            throw Malformed(description: "the signature is not base64url")
        }
        var deviations = claims.deviations
        if signature.count != 64 { deviations.append(.derSignature) }
        keyID = header.kid
        teamID = claims.iss
        issuedAt = claims.issuedAt
        self.deviations = deviations
        self.signature = signature
        signed = Array((parts[0] + "." + parts[1]).utf8)
    }

    /// Whether the token was signed with the key.
    package func isSigned(by key: P256.Signing.PublicKey) -> Bool {
        let parsed =
            signature.count == 64
            ? try? P256.Signing.ECDSASignature(rawRepresentation: signature)
            : try? P256.Signing.ECDSASignature(derRepresentation: signature)
        return parsed.map { key.isValidSignature($0, for: Data(signed)) } ?? false
    }

    private static func decode<Value: Decodable>(_ part: Substring) -> Value? {
        Base64URL.bytes(part).flatMap { try? JSONDecoder().decode(Value.self, from: Data($0)) }
    }

    private struct Header: Decodable {
        var alg: String
        var kid: String
    }

    private struct Claims: Decodable {
        /// A larger number must be milliseconds: UNIX seconds do not reach it before the year 5138.
        private static let largestSeconds: Int64 = 100_000_000_000

        var iss: String
        var issuedAt: Int64
        var deviations: [Deviation] = []

        enum CodingKeys: CodingKey { case iss, iat }

        init(from decoder: any Decoder) throws {
            let values = try decoder.container(keyedBy: CodingKeys.self)
            iss = try values.decode(String.self, forKey: .iss)
            if let number = try? values.decode(Double.self, forKey: .iat) {
                issuedAt = Int64(number.rounded(.down).clamped(to: 0...Double(ProviderToken.latestIssueTime)))
            } else {
                guard let number = Int64(try values.decode(String.self, forKey: .iat)) else {
                    throw DecodingError.dataCorruptedError(
                        forKey: .iat, in: values, debugDescription: "neither a number nor one as a string")
                }
                issuedAt = min(max(number, 0), ProviderToken.latestIssueTime)
                deviations.append(.textualIssueTime)
            }
            if issuedAt > Self.largestSeconds {
                issuedAt /= 1000
                deviations.append(.millisecondIssueTime)
            }
        }
    }
}

extension Double {
    fileprivate func clamped(to range: ClosedRange<Double>) -> Double {
        isNaN ? range.lowerBound : min(max(self, range.lowerBound), range.upperBound)
    }
}

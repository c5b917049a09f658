package import Crypto
import Foundation

/// A provider token as a gateway reads it: a JWT, checked part by part so that a refusal can be exact.
///
/// Also reads what the live service is known to accept beside the standard's form: a signature in DER, and `iat` as a string.
/// ``deviations`` says so, for a gateway that warns or is strict (apns-http2.md §5).
package struct ProviderToken: Sendable, Hashable {
    /// Bytes of a token that are read; Apple's form has about 200.
    package static let longest = 4096
    /// Of ``issuedAt``; above any time in milliseconds that a clock can show.
    package static let latest: Int64 = 9_000_000_000_000_000

    /// Where a token that can be used leaves RFC 7518 or Apple's text.
    package enum Deviation: String, Sendable, Hashable {
        case derSignature = "the signature is DER, not 64 bytes"
        case textualIssueTime = "iat is a string, not a number"
        case millisecondIssueTime = "iat is in milliseconds"
    }

    /// Why a text is no provider token.
    package struct Malformed: Error, Sendable, Hashable {
        package let description: String
    }

    package let keyID: String
    package let teamID: String
    /// UNIX seconds, from 0 to ``latest``: it can be calculated with, whatever the token says.
    package let issuedAt: Int64
    package let deviations: [Deviation]
    private let signed: [UInt8]
    private let signature: [UInt8]

    package init(parsing text: String) throws(Malformed) {
        guard text.utf8.count <= Self.longest else { throw Malformed(description: "longer than \(Self.longest) bytes") }
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3 else { throw Malformed(description: "not three parts with dots between") }
        guard let header: Header = Self.decode(parts[0]) else {
            throw Malformed(description: "the header is no JSON in base64url, or lacks alg or kid")
        }
        guard header.alg == "ES256" else { throw Malformed(description: "alg is not ES256") }
        guard let claims: Claims = Self.decode(parts[1]) else {
            throw Malformed(description: "the claims are no JSON in base64url, or lack iss or iat")
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

    /// Whether the key made it.
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
        /// UNIX seconds do not reach this before the year 5138.
        private static let largestSeconds: Int64 = 100_000_000_000

        var iss: String
        var issuedAt: Int64
        var deviations: [Deviation] = []

        enum CodingKeys: CodingKey { case iss, iat }

        init(from decoder: any Decoder) throws {
            let values = try decoder.container(keyedBy: CodingKeys.self)
            iss = try values.decode(String.self, forKey: .iss)
            if let number = try? values.decode(Double.self, forKey: .iat) {
                issuedAt = Int64(number.rounded(.down).clamped(to: 0...Double(ProviderToken.latest)))
            } else {
                guard let number = Int64(try values.decode(String.self, forKey: .iat)) else {
                    throw DecodingError.dataCorruptedError(
                        forKey: .iat, in: values, debugDescription: "neither a number nor one as a string")
                }
                issuedAt = min(max(number, 0), ProviderToken.latest)
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

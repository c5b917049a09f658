import Foundation
import HTTPTypes

/// The user and the password of an `Authorization: Basic` header (RFC 7617).
struct BasicCredential: Sendable, Hashable {
    let user: String
    let password: String

    /// Reads the header. `nil` if it is missing, or has another form.
    ///
    /// - Parameter decode: Decodes the base64. By default it accepts only the alphabet of RFC 7617, with padding.
    init?(_ headers: HTTPFields, decode: (String) -> String? = Self.standard) {
        guard let value = headers.first(.authorization), value.lowercased().hasPrefix("basic "),
            let pair = decode(String(HeaderText.trimmed(value.dropFirst("basic ".count))))
        else { return nil }
        let parts = pair.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        user = String(parts[0])
        password = parts.count == 2 ? String(parts[1]) : ""
    }

    private static func standard(_ text: String) -> String? {
        Data(base64Encoded: text).flatMap { String(data: $0, encoding: .utf8) }
    }

    /// The password, or the user if the password is empty.
    var secret: String { password.isEmpty ? user : password }
}

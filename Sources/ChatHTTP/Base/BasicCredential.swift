import Foundation
import HTTPTypes

extension HTTPFields {
    /// The password of an `Authorization: Basic` header (RFC 7617), or its user if the password is empty. `nil` if there
    /// is no such header.
    var basicPassword: String? {
        guard let value = first(.authorization), value.lowercased().hasPrefix("basic "),
            let data = Data(base64Encoded: String(HeaderText.trimmed(value.dropFirst("basic ".count)))),
            let pair = String(data: data, encoding: .utf8)
        else { return nil }
        let parts = pair.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        return String(parts.count == 2 && !parts[1].isEmpty ? parts[1] : parts[0])
    }
}

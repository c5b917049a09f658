/// A form of the addresses that push services issue. Each gateway kind names the form of its service's tokens
/// (``PushFormat/tokens``).
///
/// No text has two of these forms. Calls, imports and rows of scripts therefore need not name the kind, and a token is
/// the same on a relay without such a gateway.
package enum TokenKind: Sendable {
    /// Opaque bytes, written in hexadecimal digits.
    case bytes
    /// An installation id, or a registration token: such an id, a colon, and base64url (Firebase, "Manage FCM
    /// registration tokens").
    case installation

    /// The number of characters of an installation id.
    package static let installationID = 22
    /// The maximum number of characters of a registration token. They have about 160 today.
    private static let longestRegistration = 1024

    /// The kind of a token that is kept unchanged. `nil` for all other texts. No token in hexadecimal digits has the form
    /// of an installation: an id is shorter, and such a token has no colon.
    package init?(ofText text: String) {
        guard text.utf8.count <= Self.longestRegistration, let first = text.utf8.first,
            (UInt8(ascii: "c")...UInt8(ascii: "f")).contains(first),
            text.utf8.prefix(Self.installationID).allSatisfy(\.isBase64URL)
        else { return nil }
        let rest = text.utf8.dropFirst(Self.installationID)
        let isRegistration =
            rest.first == UInt8(ascii: ":") && rest.count > 8 && rest.dropFirst().allSatisfy(\.isBase64URL)
        guard text.utf8.count == Self.installationID || isRegistration else { return nil }
        self = .installation
    }

    /// The rule for tokens of an app whose gateway has this kind, for the caller.
    package var rule: String {
        switch self {
        case .bytes: "is a token of an Android app, and the app that it is for has another gateway"
        case .installation:
            "must be a Firebase installation id of \(Self.installationID) characters, or a registration token of at most "
                + "\(Self.longestRegistration)"
        }
    }
}

extension UInt8 {
    fileprivate var isBase64URL: Bool {
        switch self {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "-"), UInt8(ascii: "_"):
            true
        default: false
        }
    }
}

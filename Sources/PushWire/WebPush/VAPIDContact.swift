import Foundation

/// The sender's contact in a VAPID token: the claim `sub`, as `mailto:` or `https:` (RFC 8292 §2.1).
package struct VAPIDContact: Sendable, Hashable {
    /// The hosts: one for `https:`, and one for each address of `mailto:`.
    package let hosts: [String]

    /// The last labels that no name in the public DNS has (RFC 6761, RFC 6762, RFC 7686, RFC 9476, ICANN's `internal`).
    /// The others are names that ICANN does not delegate because private networks use them.
    private static let privateNames: Set<Substring> = [
        "localhost", "local", "invalid", "test", "example", "onion", "alt", "internal", "intranet", "lan", "home",
        "corp", "localdomain",
    ]

    /// Reads a contact. `nil` if it has no valid form.
    package init?(_ text: String) {
        guard let colon = text.firstIndex(of: ":"), text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            return nil
        }
        let rest = text[text.index(after: colon)...]
        switch text[..<colon].lowercased() {
        case "mailto":
            let addresses = rest.prefix { $0 != "?" }.split(separator: ",", omittingEmptySubsequences: false)
            hosts = addresses.compactMap(Self.mailHost)
            guard hosts.count == addresses.count else { return nil }
        case "https":
            guard rest.hasPrefix("//"), var host = URLComponents(string: text)?.host else { return nil }
            // The root of all names. An email address cannot have it (RFC 5321 §4.1.2).
            if host.hasSuffix(".") { host.removeLast() }
            guard Self.isHost(host) else { return nil }
            hosts = [host]
        default: return nil
        }
    }

    /// A host of the contact that no public host can be. `nil` if there is none. Apple's service is reported to reject
    /// every token with such a contact (web-push#787, web-push#947).
    package var privateHost: String? { hosts.first(where: Self.isPrivate) }

    private static func mailHost(_ address: Substring) -> String? {
        guard let at = address.lastIndex(of: "@"), at > address.startIndex else { return nil }
        // RFC 5322 §3.2.3, without characters that need encoding in a URL (RFC 6068 §2), as in `mailto://a@b`. Also
        // without a colon, so that `mailto:mailto:a@b` is invalid.
        let isLocal = address[..<at].utf8.allSatisfy {
            UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 | 0x20
                || ".!$%&'*+-=^_`{|}~".utf8.contains($0)
        }
        let host = String(address[address.index(after: at)...])
        return isLocal && isHost(host) ? host : nil
    }

    /// Whether the text is a name, or an address in brackets if it is one of IPv6 or of an email address.
    private static func isHost(_ host: String) -> Bool {
        if host.hasPrefix("[") { return host.hasSuffix("]") && address(host) != nil }
        let labels = host.split(separator: ".", omittingEmptySubsequences: false)
        return host.utf8.count <= 253
            && labels.allSatisfy {
                (1...63).contains($0.utf8.count) && $0.utf8.allSatisfy { $0.isURLSafe } && $0.first != "-"
            }
    }

    private static func isPrivate(_ host: String) -> Bool {
        if let bytes = address(host) { return isPrivate(bytes) }
        let labels = host.lowercased().split(separator: ".")
        // No top-level domain is a number (RFC 3696 §2). Browsers read such a name as an address: `127.1`.
        return labels.count < 2 || privateNames.contains(labels[labels.count - 1])
            || labels.suffix(2) == ["home", "arpa"] || labels[labels.count - 1].allSatisfy(\.isWholeNumber)
    }

    /// Returns the bytes of an address, with or without brackets. `nil` if the host is a name.
    private static func address(_ host: String) -> [UInt8]? {
        var text = host.trimmingCharacters(in: CharacterSet(charactersIn: "[]"))
        if text.lowercased().hasPrefix("ipv6:") { text.removeFirst(5) }
        var (v4, v6) = (in_addr(), in6_addr())
        if inet_pton(AF_INET, text, &v4) == 1 { return withUnsafeBytes(of: v4, Array.init) }
        return inet_pton(AF_INET6, text, &v6) == 1 ? withUnsafeBytes(of: v6, Array.init) : nil
    }

    /// Whether an address is of this machine or of a private or local network.
    private static func isPrivate(_ bytes: [UInt8]) -> Bool {
        let isMapped = bytes.count == 16 && bytes.prefix(12) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]
        guard bytes.count == 16, !isMapped else {
            let bytes = Array(bytes.suffix(4))
            switch (bytes[0], bytes[1]) {
            case (0, _), (10, _), (127, _), (169, 254), (172, 16...31), (192, 168), (100, 64...127), (224..., _):
                return true
            default: return false
            }
        }
        // Global unicast addresses are 2000::/3.
        return bytes[0] & 0xE0 != 0x20
    }
}

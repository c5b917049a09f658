/// An address, or a network in CIDR notation (`10.0.0.0/8`, `2001:db8::/32`).
package struct AddressRange: Sendable, Hashable, CustomStringConvertible {
    private let prefix: UInt128
    private let mask: UInt128
    package let description: String

    /// Nil if the text is neither. Bits after the prefix length are ignored.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard (1...2).contains(parts.count), let address = IPAddress(parts[0]) else { return nil }
        var length = 128
        if parts.count == 2 {
            // The length of an IPv4 network counts from the 97th bit of the mapped form, unless written as IPv6.
            let offset = parts[0].contains(":") ? 0 : 96
            guard parts[1].utf8.count <= 3,
                parts[1].utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }),
                let given = Int(parts[1]), given + offset <= 128
            else { return nil }
            length = given + offset
        }
        mask = length == 0 ? 0 : UInt128.max << (128 - UInt128(length))
        prefix = address.bits & mask
        description = text
    }

    package func contains(_ address: IPAddress) -> Bool {
        address.bits & mask == prefix
    }
}

import Foundation

/// An IPv4 or IPv6 address. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) is the IPv4 address.
package struct IPAddress: Sendable, Hashable, CustomStringConvertible {
    /// The 128 bits of the IPv6 form.
    package let bits: UInt128

    private static let mappedPrefix: UInt128 = 0xFFFF << 32
    /// The first 64 bits of an IPv6 address are its network. One customer has all addresses of a network.
    fileprivate static let network = UInt128.max << 64

    package var isV4: Bool { bits >> 32 == 0xFFFF }

    /// The client's key in rate limits: an IPv4 address, or the /64 network of an IPv6 address.
    package var rateKey: IPAddress { isV4 ? self : IPAddress(bits: bits & Self.network) }

    package init(bits: UInt128) {
        self.bits = bits
    }

    /// Reads dotted IPv4 or textual IPv6, without brackets and port. A zone (`%eth0`) is dropped.
    package init?(_ text: some StringProtocol) {
        // The longest textual form has 45 characters (RFC 4291 §2.2), without a zone.
        guard text.utf8.count <= 80 else { return nil }
        let text = String(text.prefix { $0 != "%" })
        var v4 = in_addr()
        if inet_pton(AF_INET, text, &v4) == 1 {
            self.init(v4: UInt32(bigEndian: v4.s_addr))
            return
        }
        var v6 = in6_addr()
        guard inet_pton(AF_INET6, text, &v6) == 1 else { return nil }
        self.init(v6: v6)
    }

    package init(v4: UInt32) {
        self.init(bits: Self.mappedPrefix | UInt128(v4))
    }

    /// Creates an IPv6 address.
    ///
    /// - Parameter v6: The 16 bytes in network order.
    package init(v6: some Sequence<UInt8>) {
        self.init(bits: v6.reduce(0) { $0 << 8 | UInt128($1) })
    }

    private init(v6: in6_addr) {
        self.init(bits: withUnsafeBytes(of: v6) { UInt128(bigEndian: $0.loadUnaligned(as: UInt128.self)) })
    }

    /// Whether the address is this machine: 127.0.0.0/8 or ::1.
    package var isLoopback: Bool {
        isV4 ? UInt32(truncatingIfNeeded: bits) >> 24 == 127 : bits == 1
    }

    package var description: String {
        if isV4 {
            let low = UInt32(truncatingIfNeeded: bits)
            return "\(low >> 24).\(low >> 16 & 255).\(low >> 8 & 255).\(low & 255)"
        }
        var storage = in6_addr()
        withUnsafeMutableBytes(of: &storage) { $0.storeBytes(of: bits.bigEndian, as: UInt128.self) }
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(INET6_ADDRSTRLEN)) { text in
            inet_ntop(AF_INET6, &storage, text.baseAddress, socklen_t(text.count)).map { String(cString: $0) } ?? ""
        }
    }
}

/// An address, or a network in CIDR notation (`10.0.0.0/8`, `2001:db8::/32`).
package struct AddressRange: Sendable, Hashable {
    private let prefix: UInt128
    private let mask: UInt128

    /// `nil` if the text is neither an address nor a network. Bits after the prefix length are ignored.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard (1...2).contains(parts.count), let address = IPAddress(parts[0]) else { return nil }
        var length = 128
        if parts.count == 2 {
            // The prefix of an IPv4 network begins at bit 97 of the mapped form, unless the network is written as IPv6.
            let offset = parts[0].contains(":") ? 0 : 96
            guard parts[1].utf8.count <= 3, let given = Int(digits: parts[1]), given + offset <= 128 else { return nil }
            length = given + offset
        }
        mask = length == 0 ? 0 : UInt128.max << (128 - UInt128(length))
        prefix = address.bits & mask
    }

    package func contains(_ address: IPAddress) -> Bool {
        address.bits & mask == prefix
    }

    /// Whether the range shares an address with a client's ``IPAddress/rateKey``.
    package func overlaps(_ key: IPAddress) -> Bool {
        let common = key.isV4 ? mask : mask & IPAddress.network
        return key.bits & common == prefix & common
    }
}

extension FixedWidthInteger {
    /// Reads a whole number in decimal ASCII digits. `nil` for any other text, including one with a sign.
    package init?(digits: some StringProtocol) {
        guard digits.utf8.allSatisfy(\.isASCIIDigit) else { return nil }
        self.init(digits, radix: 10)
    }
}

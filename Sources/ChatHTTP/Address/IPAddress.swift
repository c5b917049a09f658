import Foundation
import NIOCore

/// An IPv4 or IPv6 address. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) is the IPv4 address.
package struct IPAddress: Sendable, Hashable, CustomStringConvertible {
    /// The 128 bits of the IPv6 form.
    let bits: UInt128

    private static let mappedPrefix: UInt128 = 0xFFFF << 32
    /// Networks are told apart by the first 64 bits of an IPv6 address: one customer has all of the others.
    private static let network = UInt128.max << 64

    var isV4: Bool { bits >> 32 == 0xFFFF }

    /// What stands for the client in rate limits: the address, or for IPv6 its /64 network.
    var rateKey: IPAddress { isV4 ? self : IPAddress(bits: bits & Self.network) }

    init(bits: UInt128) {
        self.bits = bits
    }

    /// Reads dotted IPv4 or textual IPv6, without brackets and port; a zone (`%eth0`) is dropped.
    package init?(_ text: some StringProtocol) {
        // The longest textual form has 45 characters (RFC 4291 §2.2), and a zone.
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

    /// Nil for a Unix socket.
    init?(_ address: SocketAddress) {
        switch address {
        case .v4(let v4): self.init(v4: UInt32(bigEndian: v4.address.sin_addr.s_addr))
        case .v6(let v6): self.init(v6: v6.address.sin6_addr)
        case .unixDomainSocket: return nil
        }
    }

    private init(v4: UInt32) {
        self.init(bits: Self.mappedPrefix | UInt128(v4))
    }

    private init(v6: in6_addr) {
        self.init(bits: withUnsafeBytes(of: v6) { UInt128(bigEndian: $0.loadUnaligned(as: UInt128.self)) })
    }

    /// The machine itself: 127.0.0.0/8 or ::1.
    var isLoopback: Bool {
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

import ChatDomain
import NIOCore

extension IPAddress {
    /// Nil for a Unix socket.
    init?(_ address: SocketAddress) {
        switch address {
        case .v4(let v4): self.init(v4: UInt32(bigEndian: v4.address.sin_addr.s_addr))
        case .v6(let v6): self.init(v6: withUnsafeBytes(of: v6.address.sin6_addr) { Array($0) })
        case .unixDomainSocket: return nil
        }
    }
}

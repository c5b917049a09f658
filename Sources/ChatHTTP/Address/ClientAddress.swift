import ChatDomain
import HTTPTypes
import Hummingbird
import NIOCore

/// Finds the client's address when the connection comes from a proxy.
///
/// The relay believes only trusted proxies, and each of them only about the hop before it. The relay follows the list
/// from its end while the hops are trusted. It never reaches entries that the client itself wrote, because they are
/// further left.
enum ClientAddress {
    /// Returns the client's address. `nil` for a Unix socket.
    static func find(_ request: Request, _ context: ChatContext, trusted: [AddressRange]) -> IPAddress? {
        context.peerAddress.map {
            trusted.isEmpty ? $0 : find(peer: $0, headers: request.headers, trusted: trusted)
        }
    }

    /// Returns the client's address, or the last trusted hop's if that hop names no address.
    ///
    /// A proxy that maintains only one of `Forwarded` (RFC 7239) and `X-Forwarded-For` passes the other on as the
    /// client wrote it. If both headers exist and disagree, the relay believes neither and returns the peer's address.
    static func find(peer: IPAddress, headers: HTTPFields, trusted: [AddressRange]) -> IPAddress {
        guard trusted.contains(where: { $0.contains(peer) }) else { return peer }
        let forwarded = headers[values: .forwarded]
        let forwardedFor = headers[values: .xForwardedFor]
        if forwarded.isEmpty {
            return follow(nodesOfForwardedFor(forwardedFor), from: peer, trusted: trusted)
        }
        let client = follow(nodesOfForwarded(forwarded), from: peer, trusted: trusted)
        if forwardedFor.isEmpty { return client }
        return client == follow(nodesOfForwardedFor(forwardedFor), from: peer, trusted: trusted) ? client : peer
    }

    private static func follow(_ nodes: [IPAddress?], from peer: IPAddress, trusted: [AddressRange]) -> IPAddress {
        var client = peer
        for node in nodes.suffix(HTTPLimits.forwardedHops).reversed() {
            guard let node else { return client }
            client = node
            guard trusted.contains(where: { $0.contains(node) }) else { return client }
        }
        return client
    }

    /// Returns the `for` of each element, nearest hop last. `nil` for an element whose `for` is hidden, `unknown` or
    /// unreadable.
    private static func nodesOfForwarded(_ values: [String]) -> [IPAddress?] {
        values.flatMap { HeaderText.split($0[...], at: ",") }.map { element in
            for parameter in HeaderText.split(element, at: ";") {
                if let (name, value) = HeaderText.pair(parameter), name == "for" { return node(value[...]) }
            }
            return nil
        }
    }

    private static func nodesOfForwardedFor(_ values: [String]) -> [IPAddress?] {
        values.flatMap { $0.unicodeScalars.split(separator: ",", omittingEmptySubsequences: false) }.map {
            node(HeaderText.trimmed(Substring($0)))
        }
    }

    /// Parses an address with or without a port: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]:4711`.
    private static func node(_ text: Substring) -> IPAddress? {
        if text.first == "[" {
            guard let end = text.firstIndex(of: "]") else { return nil }
            return IPAddress(text[text.index(after: text.startIndex)..<end])
        }
        if let address = IPAddress(text) { return address }
        guard let colon = text.lastIndex(of: ":"), text.firstIndex(of: ":") == colon else { return nil }
        return IPAddress(text[..<colon])
    }
}

extension IPAddress {
    /// The IP address of a socket. `nil` for a Unix socket.
    init?(_ address: SocketAddress) {
        switch address {
        case .v4(let v4): self.init(v4: UInt32(bigEndian: v4.address.sin_addr.s_addr))
        case .v6(let v6): self.init(v6: withUnsafeBytes(of: v6.address.sin6_addr) { Array($0) })
        case .unixDomainSocket: return nil
        }
    }
}

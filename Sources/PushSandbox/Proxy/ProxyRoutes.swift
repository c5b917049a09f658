/// Decides to which of the sandbox's listeners the proxy leads.
struct ProxyRoutes: Sendable {
    private let addresses: SandboxAddresses

    init(_ addresses: SandboxAddresses) {
        self.addresses = addresses
    }

    /// Returns the address of the listener that plays the target.
    func address(of target: ProxyTarget) throws(ProxyRefusal) -> SandboxAddress {
        if let host = ServiceHost.all.first(where: { $0.matches(target.host) }) {
            guard host.ports.contains(target.port) else { throw refusal(of: target) }
            return Self.local(addresses[host.listener])
        }
        // Clients that use a proxy for everything also reach the sandbox's own endpoints and `token_uri` through it.
        let own = tlsListeners.first { $0.port == target.port }
        guard let own, ["localhost", "127.0.0.1", "::1", own.host.lowercased()].contains(target.host) else {
            throw refusal(of: target)
        }
        return Self.local(own)
    }

    private var tlsListeners: [SandboxAddress] {
        SandboxPort.allCases.filter(\.isService).map { addresses[$0] }
    }

    /// A wildcard address is for listening, not for connecting.
    private static func local(_ address: SandboxAddress) -> SandboxAddress {
        switch address.host {
        case "0.0.0.0": SandboxAddress(host: "127.0.0.1", port: address.port)
        case "::": SandboxAddress(host: "::1", port: address.port)
        default: address
        }
    }

    private func refusal(of target: ProxyTarget) -> ProxyRefusal {
        let hosts = ServiceHost.all.map { host in
            "\(host.name):\(host.ports.map { "\($0)" }.joined(separator: "/"))"
        }
        let ports = tlsListeners.map { "\($0.port)" }.joined(separator: "/")
        return .forbidden(
            """
            The sandbox does not play \(target), and the proxy connects to nothing else. It permits: \
            \((hosts + ["localhost:" + ports]).joined(separator: ", ")).
            """)
    }
}

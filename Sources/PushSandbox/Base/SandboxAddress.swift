/// The address of a listener.
package struct SandboxAddress: Sendable, Hashable, CustomStringConvertible {
    package var host: String
    package var port: Int

    package init(host: String, port: Int) {
        self.host = host
        self.port = port
    }

    package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

/// The addresses of all listeners on one host.
package struct SandboxAddresses: Sendable, Hashable {
    package var host: String
    package var ports: [SandboxPort: Int]

    package init(host: String, ports: [SandboxPort: Int]) {
        self.host = host
        self.ports = ports
    }

    package subscript(port: SandboxPort) -> SandboxAddress {
        SandboxAddress(host: host, port: ports[port] ?? port.standard)
    }
}

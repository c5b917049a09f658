/// A listener of the sandbox. The raw value is its name in `--NAME-port`, in the log and in the ready file.
package enum SandboxPort: String, Sendable, CaseIterable {
    case binary, feedback
    /// The HTTP/2 provider API, also for broadcasts.
    case http2
    /// The management of broadcast channels.
    case channels
    case control
    /// The push service for browsers.
    case webPush = "webpush"
    /// FCM, and Google's token endpoint.
    case fcm
    /// The proxy that leads clients of push services to the sandbox.
    case proxy

    package var standard: Int {
        switch self {
        case .binary: 2195
        case .feedback: 2196
        case .http2: 2197
        case .channels: 2193
        case .control: 2198
        case .webPush: 2199
        case .fcm: 2194
        case .proxy: 2192
        }
    }

    /// Whether a push service listens there, with TLS.
    var isService: Bool { self != .control && self != .proxy }

    package static let standard = values(\.standard)
    /// Any free port for each listener.
    package static let free = values { _ in 0 }

    /// Returns a value for each listener.
    package static func values<Value>(_ value: (SandboxPort) throws -> Value) rethrows -> [SandboxPort: Value] {
        try Dictionary(uniqueKeysWithValues: allCases.map { ($0, try value($0)) })
    }
}

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

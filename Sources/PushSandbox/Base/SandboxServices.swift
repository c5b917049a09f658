// The services that the sandbox plays: their ports, their protocols, and the hosts whose names they have.

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

/// The protocols that accept notifications.
enum GatewayProtocol: String, Sendable, Hashable, Encodable, CaseIterable {
    case binary
    case http2
    case webpush
    /// Broadcasts to channels, over HTTP/2.
    case broadcast
    /// Requests that manage channels, over HTTP/2. The inbox does not have them.
    case channels
    /// Messages to Android phones, with FCM.
    case fcm
    /// Requests for access tokens, which FCM needs. The inbox does not have them.
    case fcmToken = "fcm_token"

    /// The protocols of notifications.
    static let ofNotifications = allCases.filter { ![.channels, .fcmToken].contains($0) }

    /// Whether notifications of the protocol have a token.
    var hasTokens: Bool { ![.broadcast, .channels, .fcmToken].contains(self) }

    /// The rule to quote when a client names an unknown protocol.
    static func rule(_ known: [GatewayProtocol] = allCases) -> String {
        "must be one of \(known.map(\.rawValue).joined(separator: ", "))"
    }
}

/// A host of a real push service whose protocol the sandbox speaks.
///
/// Many libraries have these names built in. A client with such a library reaches the sandbox through the proxy or its
/// resolver, and checks the name in the certificate.
struct ServiceHost: Sendable {
    /// The host's name. A `*` at the beginning stands for one label.
    let name: String
    let ports: [Int]
    /// The sandbox's listener for the protocol.
    let listener: SandboxPort

    private static let httpsPort = 443

    /// Apple's hosts ("Sending notification requests to APNs", "Sending broadcast push notification requests to APNs",
    /// "Binary Provider API").
    static let apple = [
        ServiceHost("api.push", [httpsPort, 2197], .http2),
        ServiceHost("api.sandbox.push", [httpsPort, 2197], .http2),
        ServiceHost("api.development.push", [httpsPort, 2197], .http2),
        ServiceHost("gateway.push", [2195], .binary),
        ServiceHost("gateway.sandbox.push", [2195], .binary),
        ServiceHost("feedback.push", [2196], .feedback),
        ServiceHost("feedback.sandbox.push", [2196], .feedback),
        ServiceHost("api-manage-broadcast.push", [2196], .channels),
        ServiceHost("api-manage-broadcast.sandbox.push", [2195], .channels),
        ServiceHost("api-broadcast.push", [httpsPort, 2197], .http2),
        ServiceHost("api-broadcast.sandbox.push", [httpsPort, 2197], .http2),
    ].map { ServiceHost($0.name + ".apple.com", $0.ports, $0.listener) }

    /// Google's hosts of FCM and of access tokens.
    static let google = [
        ServiceHost("fcm.googleapis.com", [httpsPort], .fcm),
        ServiceHost("oauth2.googleapis.com", [httpsPort], .fcm),
    ]

    /// The push services of browsers. Chrome's is missing, because it shares its host with FCM.
    static let browsers = [
        ServiceHost("updates.push.services.mozilla.com", [httpsPort], .webPush),
        ServiceHost("web.push.apple.com", [httpsPort], .webPush),
        ServiceHost("*.notify.windows.com", [httpsPort], .webPush),
    ]

    static let all = apple + google + browsers

    private init(_ name: String, _ ports: [Int], _ listener: SandboxPort) {
        self.name = name
        self.ports = ports
        self.listener = listener
    }

    /// Whether this is the host with the given name in lower case.
    func matches(_ other: String) -> Bool {
        guard name.hasPrefix("*.") else { return name == other }
        guard let label = other.firstIndex(of: "."), label != other.startIndex else { return false }
        return other[label...] == name.dropFirst()
    }
}

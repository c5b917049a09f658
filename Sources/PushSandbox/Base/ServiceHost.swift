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

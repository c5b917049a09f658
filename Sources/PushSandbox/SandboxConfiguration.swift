import APNSWire
package import Foundation

/// The settings of the sandbox.
package struct SandboxConfiguration: Sendable {
    package static let defaultTopic = "com.example.PushChat"

    /// How a binary frame that cannot be read is answered. Apple's own texts disagree (apns-binary.md §7).
    package enum MalformedResponse: String, Sendable, CaseIterable {
        /// With status 128, as the later editions say.
        case protocolError = "128"
        /// With status 255, as some test gateways do.
        case unknown = "255"
        /// Not at all: the connection is closed without a packet.
        case close
    }

    /// The answer to a probe: a notification with an empty token. A provider sends it last, and concludes from the answer that the
    /// gateway has processed everything before it (apns-binary.md §8).
    package enum ProbeResponse: String, Sendable, CaseIterable {
        /// Status 2 and the probe's identifier, as Apple's gateway did.
        case answer
        /// An error that names no notification: the gateway takes the probe for a malformed frame.
        case unidentified
        /// The connection is closed without a packet.
        case close
        /// None. Nothing more is read.
        case silence
    }

    /// Where the credentials are; made if need be.
    package var directory: String
    /// The address of all listeners.
    package var host = "127.0.0.1"
    /// Ports; 0 takes any free one.
    package var binaryPort = 2195
    package var feedbackPort = 2196
    /// For the HTTP/2 provider API.
    package var http2Port = 2197
    package var controlPort = 2198
    /// For browsers' push service.
    package var webPushPort = 2199
    /// The app: what the client certificate names, and what a device gets that is made without a topic.
    package var topic = SandboxConfiguration.defaultTopic
    /// Refuses tokens that the sandbox does not know (status 8), tokens that are not 32 bytes long (5),
    /// and payloads that are no JSON object (1).
    ///
    /// Over HTTP/2: unknown tokens and other lengths (BadDeviceToken), provider tokens that leave the standard's form
    /// (InvalidProviderToken), push types that are not documented (InvalidPushType), topics of other apps
    /// (TopicDisallowed). Clients that do not choose HTTP/2 by ALPN are not let in.
    package var strict = false
    /// Bytes of a binary payload: 2,048 since iOS 8, 256 before.
    package var payloadLimit = 2048
    /// Bytes of a token; nil: 1 to 100, or exactly 32 when strict.
    package var tokenSizes: ClosedRange<Int>?
    /// Streams that an HTTP/2 connection may have open at the same time, once it is authenticated.
    package var http2StreamLimit = 1000
    /// Take the limit back to 1 after a refused notification, until one is accepted, as has been observed of Apple; nil: when
    /// strict.
    package var lowersStreamLimit: Bool?
    /// How long an HTTP/2 connection may send nothing before it is closed with IdleTimeout; nil: for ever.
    package var http2IdleTimeout: Duration?
    /// Notifications to one device in a second over HTTP/2, above which it is TooManyRequests; nil: any number.
    package var deviceRate: Int?
    package var malformedResponse = MalformedResponse.protocolError
    package var probeResponse = ProbeResponse.answer
    /// Forget feedback when it is handed out, and not only once its reader has it.
    package var clearFeedbackOnHandshake = false
    /// Notifications that the inbox keeps.
    package var inboxLimit = Inbox.defaultLimit
    /// Bytes of payloads that the inbox keeps.
    package var inboxByteLimit = Inbox.byteLimit
    /// Connections that each TLS listener has open at the same time.
    package var connectionLimit = 1000
    /// How long a connection is read, and what it sends discarded, after its error packet was written.
    package var linger = Duration.seconds(2)
    /// How long TLS may take to come up.
    package var handshakeTimeout = Duration.seconds(10)
    /// Names besides `localhost`, its addresses and ``host`` by which the control API may be called.
    package var allowedHosts: Set<String> = []
    /// The clock. Handed in for tests.
    package var now: @Sendable () -> Date = { Date() }

    package init(directory: String) {
        self.directory = directory
    }

    /// What the parser of the binary protocol refuses.
    var parserLimits: BinaryNotificationParser.Limits {
        .init(payload: payloadLimit, token: acceptedTokenSizes)
    }

    /// Bytes of a token that is not refused by its size.
    var acceptedTokenSizes: ClosedRange<Int> {
        let size = DeviceRegistry.tokenSize
        return tokenSizes ?? (strict ? size...size : 1...BinaryNotification.longestToken)
    }
}

/// Where a listener can be reached.
package struct SandboxAddress: Sendable, Hashable, CustomStringConvertible {
    package var host: String
    package var port: Int

    package init(host: String, port: Int) {
        self.host = host
        self.port = port
    }

    package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

/// Where the sandbox's listeners can be reached, with the ports that were really bound.
package struct SandboxAddresses: Sendable, Hashable {
    package var binary: SandboxAddress
    package var feedback: SandboxAddress
    package var http2: SandboxAddress
    package var control: SandboxAddress
    package var webPush: SandboxAddress

    package init(
        binary: SandboxAddress, feedback: SandboxAddress, http2: SandboxAddress, control: SandboxAddress,
        webPush: SandboxAddress
    ) {
        self.binary = binary
        self.feedback = feedback
        self.http2 = http2
        self.control = control
        self.webPush = webPush
    }
}

package import Foundation
import PushWire

/// The settings of the sandbox.
package struct SandboxConfiguration: Sendable {
    package static let defaultTopic = "com.example.PushChat"

    /// The binary gateway's response to a frame that it cannot read.
    ///
    /// Apple's documents disagree: "Binary Provider API" lists status 128, Technical Note TN2265 says that the
    /// connection closes without a packet.
    package enum MalformedResponse: String, Sendable, CaseIterable {
        /// Status 128, as in later editions of "Binary Provider API".
        case protocolError = "128"
        /// Status 255, as from some test gateways.
        case unknown = "255"
        /// No packet: the gateway closes the connection.
        case close
    }

    /// The binary gateway's response to a probe, which is a notification with an empty token.
    ///
    /// A provider sends a probe last, and concludes from the response that the gateway has processed everything before
    /// it. The idea is Pushy's (0.4.3), not Apple's; see `docs/binary-gateway.md`, "When a push counts as sent".
    package enum ProbeResponse: String, Sendable, CaseIterable {
        /// Status 2 and the probe's identifier, as from Apple's gateway.
        case answer
        /// An error that names no notification, as if the probe were a malformed frame.
        case unidentified
        /// No packet: the gateway closes the connection.
        case close
        /// No response. The gateway reads nothing more from the connection.
        case silence
    }

    /// Whether apps have the capability to broadcast, and the reason with which the sandbox refuses the others.
    ///
    /// Apple documents one name. The live service was observed to send the other.
    package enum Broadcasts: String, Sendable, CaseIterable {
        case on
        case featureNotEnabled = "FeatureNotEnabled"
        case broadcastFeatureNotEnabled = "BroadcastFeatureNotEnabled"

        /// `nil` if apps have the capability.
        var reason: BroadcastReason? { BroadcastReason(rawValue: rawValue) }
    }

    /// The directory of the credentials. The sandbox creates them if needed.
    package var directory: String
    /// The address on which all listeners listen.
    package var host = "127.0.0.1"
    /// 0 chooses a free port.
    package var ports = SandboxPort.standard
    /// The app's topic. The client certificates name it, and so does a device that is created without a topic.
    package var topic = SandboxConfiguration.defaultTopic
    /// Whether the sandbox is strict.
    ///
    /// The binary gateway then rejects unknown tokens (status 8), tokens that are not 32 bytes long (5), and payloads
    /// that are not a JSON object (1).
    ///
    /// The HTTP/2 gateway then rejects unknown tokens and other lengths (BadDeviceToken), provider tokens that deviate
    /// from the standard's form (InvalidProviderToken), undocumented push types (InvalidPushType), and topics of other
    /// apps (TopicDisallowed). It refuses clients that do not choose HTTP/2 by ALPN.
    package var strict = false
    /// The maximum size of a binary payload in bytes. Apple's limit is 2,048 since iOS 8, and was 256 before.
    package var payloadLimit = 2048
    /// The valid token sizes in bytes. `nil` means 1 to 100, or exactly 32 if the sandbox is strict.
    package var tokenSizes: ClosedRange<Int>?
    /// The maximum number of streams that an authenticated HTTP/2 connection may have open at the same time.
    package var http2StreamLimit = 1000
    /// Whether a rejected notification lowers the stream limit to 1 until one is accepted. If it is `nil`, only a
    /// strict sandbox lowers the limit.
    ///
    /// Apple was observed to do this in 2016 (Open Radar 27870881).
    package var lowersStreamLimit: Bool?
    /// The time after which a silent HTTP/2 connection is closed with IdleTimeout. `nil` if connections may be silent
    /// forever.
    package var http2IdleTimeout: Duration?
    /// The maximum number of notifications per second to one device over HTTP/2. Further ones are rejected with
    /// TooManyRequests. `nil` if there is no limit.
    package var deviceRate: Int?
    package var broadcasts = Broadcasts.on
    /// The maximum number of channels of an app.
    package var channelLimit = BroadcastWire.channelLimit
    package var malformedResponse = MalformedResponse.protocolError
    package var probeResponse = ProbeResponse.answer
    /// Whether the feedback list is cleared after a client's handshake instead of after the client has received the
    /// whole list.
    package var clearFeedbackOnHandshake = false
    /// The maximum number of notifications in the inbox.
    package var inboxLimit = 100_000
    /// The maximum size of all payloads and headers in the inbox, in bytes. A full inbox of notifications of ordinary
    /// size fits.
    package var inboxByteLimit = 64 << 20
    /// The folder of files for `xcrun simctl push`. `nil` to write none.
    package var simulatorFolder: String?
    /// The maximum number of connections that each listener has open at the same time. Further ones over HTTP/1.1 wait
    /// to be accepted.
    package var connectionLimit = 1000
    /// The time limit for unfinished requests over HTTP/1.1 when the sandbox stops.
    package var shutdownLimit = Duration.seconds(1)
    /// The time for which a binary connection is read, and its data discarded, after its error packet. Over HTTP/2, the
    /// time after GOAWAY in which promised streams may still arrive.
    package var linger = Duration.seconds(2)
    /// The time limit for a TLS handshake, for HTTP/2's preface, and for the `hello` of a real browser.
    package var handshakeTimeout = Duration.seconds(10)
    /// Additional names by which clients may call the control API, besides `localhost`, its addresses and ``host``.
    package var allowedHosts: Set<String> = []
    /// The wall clock. Tests replace it.
    package var now: @Sendable () -> Date = { Date() }

    package init(directory: String) {
        self.directory = directory
    }

    /// The limits that the binary protocol's parser enforces.
    var parserLimits: BinaryNotificationParser.Limits {
        .init(payload: payloadLimit, token: acceptedTokenSizes)
    }

    /// The valid token sizes in bytes.
    var acceptedTokenSizes: ClosedRange<Int> {
        let size = TokenText.usualSize
        return tokenSizes ?? (strict ? size...size : 1...BinaryNotification.longestToken)
    }
}

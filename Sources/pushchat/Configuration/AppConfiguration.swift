import ChatDomain

/// One app: its topic, its gateway and what the relay proves itself with there.
struct AppConfiguration: Sendable, Equatable {
    /// Apple's two protocols.
    enum Gateway: String, Sendable, CaseIterable {
        case binary, http2
    }

    let name: AppName
    var gateway: Gateway
    /// The bundle id; nil leaves it to the certificate. A key has none, and needs it.
    var topic: String?
    var host: String
    var port: Int
    var feedbackHost: String
    var feedbackPort: Int
    /// Nil: the feedback service is not asked.
    var feedbackInterval: Duration? = .hours(1)
    /// PEM or PKCS#12.
    var certificate: String?
    /// PEM, where the key does not stand in the certificate's file.
    var certificateKey: String?
    /// Of the certificate's key or of the PKCS#12 file.
    var passphrase: Secret?
    /// Provider token key, `.p8`.
    var key: String?
    /// Ten letters and digits, as Apple gives them.
    var keyID: String?
    var teamID: String?
    /// PEM with authorities to trust beside the system's.
    var trust: String?
    var connections = 2
    /// Bytes.
    var payloadLimit: Int
    /// Which command of the binary protocol carries a push: 0, 1 or 2.
    var command = 2
    /// How long the binary gateway's silence has to last until a written push counts as accepted.
    var settleTime: Duration = .seconds(5)
    /// How long the HTTP/2 gateway may take over a push until it is repeated.
    var answerTimeout: Duration = .seconds(30)

    /// The defaults: Apple's hosts and ports (apns-binary.md §1, apns-http2.md §1) and payload limits
    /// (apns-binary.md §6).
    init(name: AppName, environment: Configuration.Environment, gateway: Gateway = .http2) {
        self.name = name
        self.gateway = gateway
        let part = environment == .development ? ".sandbox" : ""
        switch gateway {
        case .binary:
            host = "gateway\(part).push.apple.com"
            port = 2195
            payloadLimit = 2048
        case .http2:
            host = "api\(part).push.apple.com"
            port = 443
            payloadLimit = 4096
        }
        feedbackHost = "feedback\(part).push.apple.com"
        feedbackPort = 2196
    }

    /// Whether the gateway is Apple's and of the protocol that Apple has given up (apns-binary.md §10).
    var isRetired: Bool { gateway == .binary && host.hasSuffix(".push.apple.com") }
    static let retirement =
        "Apple has not answered the binary protocol since 2021-03-31; nothing will be delivered there"

    /// Whether there is something to log in to the gateway with. Without, pushes are accepted and queued, not sent.
    var hasCredentials: Bool {
        switch gateway {
        case .binary: certificate != nil
        case .http2: certificate != nil || key != nil
        }
    }

    static let nothingToLogInWith =
        "no certificate and no key: messages are accepted and queued, and sent once there is one"

    /// What is wrong with the settings together: the setting that a message is about, and the message.
    var contradiction: (setting: String, message: String)? {
        switch gateway {
        case .binary:
            if key != nil, certificate == nil {
                return (
                    "key",
                    "is a provider token key (.p8), which only the gateway http2 takes; set `gateway: http2` or a "
                        + "`certificate`, or remove `key`"
                )
            }
        case .http2:
            guard key != nil else { return nil }
            if keyID == nil {
                return ("key", "needs key_id beside it: the ten letters and digits in the name of the file from Apple")
            }
            if teamID == nil {
                return ("key", "needs team_id beside it: Apple shows it under Membership in the developer account")
            }
            if topic == nil {
                return ("key", "needs topic beside it: the app's bundle id, for example com.example.PushChat")
            }
        }
        return nil
    }

    /// The id in the name that Apple gives a key's file, `AuthKey_ABC123DEFG.p8`.
    static func keyID(ofFile path: String) -> String? {
        let name = path.split(separator: "/").last ?? ""
        guard name.hasPrefix("AuthKey_"), name.hasSuffix(".p8") else { return nil }
        let id = name.dropFirst("AuthKey_".count).dropLast(".p8".count)
        return id.count == 10 ? String(id) : nil
    }
}

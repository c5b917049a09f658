import ChatDomain
import FCMGateway

/// One app: its topic, its gateway and its credentials for that gateway.
struct AppConfiguration: Sendable, Equatable {
    /// The kinds of gateways. To add one, add a case and its ``GatewayKind``.
    enum Gateway: String, Sendable, CaseIterable {
        case binary, http2, fcm

        var kind: any GatewayKind.Type {
            switch self {
            case .binary: BinaryKind.self
            case .http2: HTTP2Kind.self
            case .fcm: FCMKind.self
            }
        }
    }

    let name: AppName
    var gateway: Gateway
    /// `nil` for the certificate's topic. Required with a key, because a key has no topic.
    var topic: String?
    var host: String
    var port: Int
    /// The host of broadcasts. The port is ``port``.
    var broadcastHost: String
    /// The host and port that manage broadcast channels.
    var channelsHost: String
    var channelsPort: Int
    var feedbackHost: String
    var feedbackPort: Int
    /// `nil` if the relay does not read the feedback service.
    var feedbackInterval: Duration? = .hours(1)
    /// The path of a PEM or PKCS#12 file.
    var certificate: String?
    /// The path of a PEM file. `nil` if the certificate's file contains the key.
    var certificateKey: String?
    var passphrase: Secret?
    /// The path of the `.p8` file with the key that signs provider tokens.
    var key: String?
    /// Ten letters and digits that Apple assigns.
    var keyID: String?
    var teamID: String?
    /// The path of the JSON file with a service account of Google's.
    var serviceAccount: String?
    /// The way in which Android phones show messages, with `fcm`.
    var androidMessages = FCMFormat.Kind.data
    /// The silent notification channel in the Android app for changes of messages. `nil` if it has none.
    var updateChannel: String?
    /// The notification channel in the Android app. `nil` for the app's default.
    var androidChannel: String?
    /// The path of a PEM file.
    var trust: String?
    var connections = 2
    /// The limit in bytes.
    var payloadLimit: Int
    var command = 2
    /// Whether chat messages show the number of unread messages, with `http2`.
    var badge = true
    /// The optional fields that chat messages do not have, with `http2`.
    var leftOut: [String] = []
    var settleTime: Duration = .seconds(5)
    var answerTimeout: Duration = .seconds(30)

    /// The defaults: Apple's hosts, ports and payload limits.
    ///
    /// Source: developer.apple.com, "Sending notification requests to APNs", as of November 2026; for `binary` the last
    /// edition, of 2018, of "Local and Remote Notification Programming Guide".
    init(name: AppName, environment: Configuration.Environment, gateway: Gateway = .http2) {
        self.name = name
        self.gateway = gateway
        let part = environment.ofApple
        (host, port, payloadLimit) = gateway.kind.defaults(environment)
        broadcastHost = host
        channelsHost = "api-manage-broadcast\(part).push.apple.com"
        channelsPort = environment == .development ? 2195 : 2196
        feedbackHost = "feedback\(part).push.apple.com"
        feedbackPort = 2196
    }

    var gatewayKind: any GatewayKind { gateway.kind.init(app: self) }

    /// Whether a gateway that runs with this configuration can continue with `other`. The settings that are not
    /// compared apply to new connections.
    func hasGateway(of other: AppConfiguration) -> Bool {
        SettingsTable.app.allSatisfy { !$0.isOfGateway || $0.text(self) == $0.text(other) }
    }

    static let onlyBrowsers = "no certificate and no key: only browsers get pushes"
    var noCredentials: String {
        let missing = gateway.kind.credentialSettings.map { "no \($0)" }.joined(separator: " and ")
        return "\(missing): messages are accepted and queued; they are sent when one is configured"
    }

    /// The first rule that the combination of settings breaks, as the setting to report and the message about it.
    var contradiction: (setting: String, message: String)? {
        let kind = gatewayKind
        guard kind.contradiction == nil, !kind.hasCredentials else { return kind.contradiction }
        let others = Gateway.allCases.lazy.filter { $0 != gateway }.map { $0.kind.init(app: self) }
        return others.compactMap(\.misplacedCredentials).first
    }

    /// The files that contain a private key, each with the setting that names it.
    var keyFiles: [(setting: String, path: String?)] {
        let certificate = certificateKey == nil ? ("certificate", certificate) : ("certificate_key", certificateKey)
        return [("key", key), ("service_account", serviceAccount), certificate]
    }

    /// The key id in the name that Apple gives to the file of a key, `AuthKey_ABC123DEFG.p8`. `nil` if the file has
    /// another name.
    static func keyID(ofFile path: String) -> String? {
        let name = path.split(separator: "/").last ?? ""
        guard name.hasPrefix("AuthKey_"), name.hasSuffix(".p8") else { return nil }
        let id = name.dropFirst("AuthKey_".count).dropLast(".p8".count)
        return id.count == 10 ? String(id) : nil
    }
}

extension SettingsTable {
    private typealias App = Setting<AppConfiguration>

    /// Settings of each app, named by their key inside `apps.NAME`. `gateway` is first because the defaults of other
    /// settings depend on it.
    static let app: [Setting<AppConfiguration>] =
        [
            App(
                "gateway", \.gateway, .choice, isOfGateway: true,
                "`http2` for Apple's protocol, `binary` for the one that Apple stopped supporting in 2021, or `fcm` for "
                    + "Android apps through Google"),
            App(
                "topic", \.topic, SettingKind.bundleID.optional(),
                "the app's bundle id; unless set, the one in the certificate. A `key` requires it"),
            App(
                "host", \.host, .host(example: "api.push.apple.com"),
                "the gateway's host; the default with `binary` is Apple's binary gateway"),
            App("port", \.port, .number(1...65_535), "the gateway's port; the default with `binary` is 2195"),
        ] + AppConfiguration.Gateway.allCases.flatMap { $0.kind.settings } + [
            App(
                "broadcast_host", \.broadcastHost, .host(example: "api-broadcast.push.apple.com"),
                "the host of broadcasts to Live Activities; its port is `port`. Unless set, the value of `host`"
            ),
            App(
                "channels_host", \.channelsHost, .host(example: "api-manage-broadcast.push.apple.com"),
                "the host that manages broadcast channels; unless set, the value of `host` if that is set"
            ),
            App("channels_port", \.channelsPort, .number(1...65_535), "the port that manages broadcast channels"),
            App(
                "feedback_host", \.feedbackHost, .host(example: "feedback.push.apple.com"),
                "the host of the feedback service; unless set, the value of `host` if that is set"),
            App("feedback_port", \.feedbackPort, .number(1...65_535), "the port of the feedback service"),
            App(
                "feedback_interval", \.feedbackInterval,
                SettingKind.duration(.seconds(1) ... .days(7), example: "1 hour").optional(none: "off"),
                "the interval at which the relay reads the feedback service, with `binary`"),
            App(
                "certificate", \.certificate, SettingKind.file("a PEM or PKCS#12 file").optional(),
                "the client certificate; without it and `key`, pushes are queued and not sent"),
            App(
                "certificate_key", \.certificateKey, SettingKind.file("a PEM file").optional(),
                "the certificate's key, if it is in a separate file"),
            App(
                "passphrase", \.passphrase, SettingKind.passphrase.optional(), isSecret: true,
                "the passphrase of the key or of the PKCS#12 file"),
            App(
                "key", \.key, SettingKind.file("a .p8 file").optional(),
                "the key that signs provider tokens, for `http2`; if set, the relay uses it instead of `certificate`"),
            App(
                "key_id", \.keyID, SettingKind.appleID(example: "ABC123DEFG").optional(),
                "the key's id; unless set, the one in the file's name"),
            App(
                "team_id", \.teamID, SettingKind.appleID(example: "DEF123GHIJ").optional(),
                "the id of the team that owns the key"),
            App(
                "trust", \.trust, SettingKind.file("a PEM file").optional(),
                "additional certificate authorities to trust for the gateway"),
            App(
                "connections", \.connections, .number(1...64), isOfGateway: true,
                "the number of connections to the gateway with `binary`, the limit with `http2` and `fcm`"),
            App(
                "payload_limit", \.payloadLimit, .number(256...4096, unit: "bytes"), isOfGateway: true,
                "the gateway's limit for a payload; the default with `binary` is 2048. Devices before iOS 8 accept 256"),
            App(
                "badge", \.badge, .onOrOff,
                "whether chat messages set the number at the app's icon to the unread messages, with `http2`, for devices that have fetched messages since they joined"
            ),
            App(
                "leave_out", \.leftOut, .chatFields,
                "the fields of `aps` that chat messages do not have, with `http2`"),
            App(
                "command", \.command, .number(0...2), isOfGateway: true,
                "the command of the binary protocol; with 0 the gateway does not report rejected pushes"),
            App(
                "settle", \.settleTime, .duration(.seconds(1) ... .seconds(60), example: "5s"), isOfGateway: true,
                "the time of silence after which the binary gateway counts as having accepted a push"),
            App(
                "answer_timeout", \.answerTimeout, .duration(.seconds(1) ... .seconds(300), example: "30s"),
                isOfGateway: true,
                "the time in which the HTTP/2 gateway must respond; after that, the relay retries the push"),
        ]
}

import APNSGateway
import ChatDomain
import GatewayPool
import Logging
import PushSandbox
import PushWire

/// One of Apple's gateways.
private protocol AppleKind: GatewayKind {}

extension AppleKind {
    static var credentialSettings: [String] { ["certificate", "key"] }
    /// All zeros, with the length of Apple's tokens.
    static var strangersToken: DeviceToken? {
        DeviceToken(bytes: [UInt8](repeating: 0, count: DeviceToken.sizes.lowerBound))
    }

    var credentialName: String { app.key == nil ? "certificate" : "key" }
    var misplacedCredentials: (setting: String, message: String)? {
        guard app.key != nil || app.certificate != nil else { return nil }
        let needed = app.gateway.kind.credentialSettings.joined(separator: " or ")
        return (credentialName, "is for Apple's gateways; `\(app.gateway.rawValue)` requires \(needed)")
    }

    func proof(of reason: String) -> String? {
        [ProviderReason.badDeviceToken.rawValue, BinaryStatus.invalidToken.name].contains(reason)
            ? "\(credentialName) and topic" : nil
    }

    func advice(on reason: String) -> String? {
        let known = ProviderReason(rawValue: reason)
        switch known {
        case .topicDisallowed, .badTopic, .deviceTokenNotForTopic, .missingTopic:
            return
                "the \(credentialName) is not for the topic \(app.topic ?? "that it names"); topic is the app's bundle id"
        default: return known?.advice
        }
    }
}

extension ClientCredentials {
    /// `nil` for an app without a certificate.
    fileprivate init?(_ app: AppConfiguration) throws(CredentialsError) {
        guard let certificate = app.certificate else { return nil }
        try self.init(certificate: certificate, key: app.certificateKey, passphrase: app.passphrase?.text)
    }
}

// MARK: - The legacy binary protocol

/// The binary protocol. Apple stopped supporting it on 2021-03-31 (Apple, News, 9 October 2020).
struct BinaryKind: AppleKind {
    static let textLimit = MessageText.defaultLimit
    static let confirmsPushes = false

    static func defaults(_ environment: Configuration.Environment) -> (host: String, port: Int, payloadLimit: Int) {
        ("gateway\(environment.ofApple).push.apple.com", 2195, 2048)
    }

    static func settings(to sandbox: SandboxAddresses, _ credentials: SandboxCredentials) -> NamedValues {
        [
            ("topic", credentials.topic), ("trust", credentials.authorityFile), ("host", sandbox[.binary].host),
            ("port", "\(sandbox[.binary].port)"), ("feedback_host", sandbox[.feedback].host),
            ("feedback_port", "\(sandbox[.feedback].port)"), ("feedback_interval", "10s"),
            ("certificate", credentials.clientFile),
            // On the same machine, a push that was not rejected within a second was accepted.
            ("settle", "1s"),
        ]
    }

    let app: AppConfiguration

    var hasCredentials: Bool { app.certificate != nil }
    var retirement: String? {
        guard app.host.hasSuffix(".push.apple.com") else { return nil }
        return "Apple has not supported the binary protocol since 2021-03-31, so no push will be delivered; use http2"
    }
    var contradiction: (setting: String, message: String)? {
        guard app.key != nil, app.certificate == nil else { return nil }
        return (
            "key",
            "is a provider token key (.p8), which only the gateway http2 accepts; set `gateway: http2` or a "
                + "`certificate`, or remove `key`"
        )
    }

    func credentials() throws(CredentialsError) -> AppCredentials {
        guard let credentials = try ClientCredentials(app) else { return AppCredentials() }
        return AppCredentials(
            push: try GatewayEndpoint(host: app.host, port: app.port, credentials: credentials, trust: app.trust),
            feedback: try GatewayEndpoint(
                host: app.feedbackHost, port: app.feedbackPort, credentials: credentials, trust: app.trust),
            certificate: credentials.summary)
    }

    func format(sound: String?, threads: RoomThreads?) -> any PushFormat {
        APNSFormat(.binary, payloadLimit: app.payloadLimit, sound: sound, threads: threads)
    }

    func gateway(
        _ credentials: AppCredentials, tokens: any ProviderTokenStore, connectionIDs: ConnectionIDs, logger: Logger
    ) -> any ConfiguredGateway {
        BinaryGateway(
            endpoint: credentials.push, format: APNSFormat(.binary, payloadLimit: app.payloadLimit),
            options: .init(
                connections: app.connections, command: BinaryCommand(rawValue: UInt8(app.command)) ?? .framed,
                settleTime: app.settleTime),
            connectionIDs: connectionIDs, logger: logger)
    }
}

extension BinaryGateway: ConfiguredGateway {
    func reconfigure(_ app: AppConfiguration, _ credentials: AppCredentials, tokens: any ProviderTokenStore) {
        reconfigure(endpoint: credentials.push)
    }
}

// MARK: - The HTTP/2 provider API

/// The HTTP/2 provider API.
struct HTTP2Kind: AppleKind {
    static func defaults(_ environment: Configuration.Environment) -> (host: String, port: Int, payloadLimit: Int) {
        ("api\(environment.ofApple).push.apple.com", 443, 4096)
    }

    static func settings(to sandbox: SandboxAddresses, _ credentials: SandboxCredentials) -> NamedValues {
        [
            ("topic", credentials.topic), ("trust", credentials.authorityFile), ("host", sandbox[.http2].host),
            ("port", "\(sandbox[.http2].port)"), ("channels_host", sandbox[.channels].host),
            ("channels_port", "\(sandbox[.channels].port)"), ("key", credentials.providerKeyFile),
            ("key_id", credentials.keyID), ("team_id", credentials.teamID),
            // On the same machine, a response that has not arrived after five seconds will not arrive.
            ("answer_timeout", "5s"),
        ]
    }

    let app: AppConfiguration

    var hasCredentials: Bool { app.certificate != nil || app.key != nil }
    var isForBrowsersOnly: Bool { !hasCredentials && app.topic == nil && app.keyID == nil && app.teamID == nil }
    var contradiction: (setting: String, message: String)? {
        guard app.key != nil else { return nil }
        if app.keyID == nil {
            return ("key", "requires key_id: the ten letters and digits in the name of the file from Apple")
        }
        if app.teamID == nil {
            return ("key", "requires team_id: Apple shows it under Membership in the developer account")
        }
        guard app.topic == nil else { return nil }
        return ("key", "requires topic: the app's bundle id, for example com.example.PushChat")
    }

    func credentials() throws(CredentialsError) -> AppCredentials {
        func endpoint(_ credentials: ClientCredentials?) throws(CredentialsError) -> GatewayEndpoint {
            try GatewayEndpoint(
                host: app.host, port: app.port, credentials: credentials, trust: app.trust,
                applicationProtocols: [GatewayEndpoint.http2])
        }
        if let file = app.key, let keyID = app.keyID, let teamID = app.teamID {
            let key = try ProviderKey(file: file, keyID: keyID, teamID: teamID)
            return AppCredentials(push: try endpoint(nil), key: key)
        }
        guard let credentials = try ClientCredentials(app) else { return AppCredentials() }
        return AppCredentials(push: try endpoint(credentials), certificate: credentials.summary)
    }

    func format(sound: String?, threads: RoomThreads?) -> any PushFormat {
        APNSFormat(
            .http2, payloadLimit: app.payloadLimit, sound: sound, threads: threads,
            fields: Set(ChatField.allCases).subtracting(app.leftOut.compactMap(ChatField.init(rawValue:))),
            showsUnread: app.badge)
    }

    func gateway(
        _ credentials: AppCredentials, tokens: any ProviderTokenStore, connectionIDs: ConnectionIDs, logger: Logger
    ) -> any ConfiguredGateway {
        HTTP2Gateway(
            service: APNSService(app, credentials, tokens),
            // The payloads are composed by then, so sound, threads and fields do not matter here.
            format: APNSFormat(.http2, payloadLimit: app.payloadLimit),
            options: .init(connections: app.connections, answerLimit: app.answerTimeout), connectionIDs: connectionIDs,
            logger: logger)
    }
}

extension APNSService: ConfiguredService {
    init?(_ app: AppConfiguration, _ credentials: AppCredentials, _ tokens: any ProviderTokenStore) {
        guard let endpoint = credentials.push else { return nil }
        self.init(
            endpoint: endpoint, bundleID: app.topic ?? credentials.certificate?.topic,
            tokens: credentials.key.map { TokenSource(key: $0, store: tokens) })
    }
}

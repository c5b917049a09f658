import APNSGateway
import ChatDomain
import FCMGateway
import GatewayPool
import Logging
import PushSandbox

/// Google's FCM.
struct FCMKind: GatewayKind {
    static let credentialSettings = ["service_account"]
    static let sandboxApp: String? = "android"
    /// An installation id in the form of Google's.
    static let strangersToken: DeviceToken? = .text(
        "c" + String(repeating: "A", count: TokenKind.installationID - 1), .installation)

    static let settings: [Setting<AppConfiguration>] = [
        Setting(
            "service_account", \.serviceAccount, SettingKind.file("a JSON file").optional(),
            "the service account of the Firebase project, with `fcm`; without it, pushes are queued and not sent"),
        Setting(
            "android_messages", \.androidMessages, .choice, isOfGateway: true,
            "with `fcm`: `data`, which the app shows itself, or `notification`, which Google's library shows while "
                + "the app is in the background"),
        Setting(
            "android_channel", \.androidChannel,
            SettingKind.printable("the id of a notification channel, at most 100 bytes", limit: 100).optional(),
            isOfGateway: true,
            "the notification channel in the Android app, with `android_messages: notification`; unless set, the "
                + "app's default"),
        Setting(
            "update_channel", \.updateChannel,
            SettingKind.printable("the id of a notification channel, at most 100 bytes", limit: 100).optional(),
            isOfGateway: true,
            "the silent notification channel for changes of messages, with `android_messages: notification`; unless "
                + "set, only changes that ring are sent"),
    ]

    static func defaults(_ environment: Configuration.Environment) -> (host: String, port: Int, payloadLimit: Int) {
        ("fcm.googleapis.com", 443, FCMFormat.payloadLimit)
    }

    static func settings(to sandbox: SandboxAddresses, _ credentials: SandboxCredentials) -> NamedValues {
        [
            ("trust", credentials.authorityFile), ("host", sandbox[.fcm].host), ("port", "\(sandbox[.fcm].port)"),
            ("service_account", credentials.serviceAccountFile), ("answer_timeout", "5s"),
        ]
    }

    let app: AppConfiguration

    var hasCredentials: Bool { app.serviceAccount != nil }
    var credentialName: String { "service account" }
    var misplacedCredentials: (setting: String, message: String)? {
        hasCredentials ? ("service_account", "is for Google's gateway; set `gateway: fcm`") : nil
    }

    func proof(of reason: String) -> String? {
        ["UNREGISTERED", "INVALID_ARGUMENT"].contains(reason) ? "service account and project" : nil
    }

    func credentials() throws(CredentialsError) -> AppCredentials {
        guard let file = app.serviceAccount else { return AppCredentials() }
        let account = try ServiceAccountFile(file: file)
        return AppCredentials(
            push: try GatewayEndpoint(
                host: app.host, port: app.port, trust: app.trust, applicationProtocols: [GatewayEndpoint.http2]),
            account: try OAuthTokens(account: account, trust: app.trust))
    }

    func format(sound: String?, threads: RoomThreads?) -> any PushFormat {
        let room: (@Sendable (SecretCode) -> String)? =
            if let threads { { code in threads.id(of: code) } } else { nil }
        return FCMFormat(
            app.androidMessages, payloadLimit: app.payloadLimit, channel: app.androidChannel,
            updateChannel: app.updateChannel, sound: sound, room: room)
    }

    func gateway(
        _ credentials: AppCredentials, tokens: any ProviderTokenStore, connectionIDs: ConnectionIDs, logger: Logger
    ) -> any ConfiguredGateway {
        HTTP2Gateway(
            service: FirebaseService(app, credentials, tokens), format: format(sound: nil, threads: nil),
            options: .init(connections: app.connections, answerLimit: app.answerTimeout), connectionIDs: connectionIDs,
            logger: logger)
    }
}

extension OAuthTokens: ServiceAccess {
    func proof() async throws -> String {
        _ = try await token()
        return "\(account.email), project \(account.project): Google issues access tokens"
    }
}

extension FirebaseService: ConfiguredService {
    init?(_ app: AppConfiguration, _ credentials: AppCredentials, _ tokens: any ProviderTokenStore) {
        guard let endpoint = credentials.push, let access = credentials.account as? OAuthTokens else { return nil }
        self.init(endpoint: endpoint, tokens: access)
    }
}

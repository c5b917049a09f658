import APNSGateway
import ChatDomain
import GatewayPool
import Logging
import PushSandbox
import PushWire

/// Settings with their values.
typealias NamedValues = [(name: String, value: String)]

/// A kind of gateway, which an app's setting `gateway` selects. It decides everything in which the gateways differ, so
/// that no other code names one of them.
protocol GatewayKind: Sendable {
    /// Returns the defaults of three settings of an app.
    static func defaults(_ environment: Configuration.Environment) -> (host: String, port: Int, payloadLimit: Int)
    /// The default limit for chat messages of a relay with such an app, in bytes.
    static var textLimit: Int { get }
    /// The settings that only this kind has.
    static var settings: [Setting<AppConfiguration>] { get }
    /// The settings of which an app needs one, as its credentials.
    static var credentialSettings: [String] { get }
    /// Whether the gateway responds to every push, also if the token is no longer registered.
    static var confirmsPushes: Bool { get }
    /// A token that no device has. The gateway examines the credentials before it rejects the token.
    static var strangersToken: DeviceToken? { get }
    /// The name of the app that a relay with a sandbox has in addition, unless its default app is of this kind. `nil` for
    /// none.
    static var sandboxApp: String? { get }
    /// Returns the settings of an app that sends to a sandbox.
    static func settings(to sandbox: SandboxAddresses, _ credentials: SandboxCredentials) -> NamedValues

    var app: AppConfiguration { get }
    init(app: AppConfiguration)

    /// Whether the app has credentials that the gateway can use. Without them, pushes are queued and not sent.
    var hasCredentials: Bool { get }
    /// The name of the app's credentials, for messages.
    var credentialName: String { get }
    /// Whether nothing is configured for the app, as on a relay that serves only browsers.
    var isForBrowsersOnly: Bool { get }
    /// The warning that the service behind the gateway has ended. `nil` if it has not.
    var retirement: String? { get }
    /// The first rule that the combination of settings breaks, as the setting to report and the message about it.
    var contradiction: (setting: String, message: String)? { get }
    /// The same for credentials of this kind, if the app has another gateway and no credentials for that one.
    var misplacedCredentials: (setting: String, message: String)? { get }
    /// Returns the names of what the gateway has accepted if it rejects ``strangersToken`` for this reason. `nil` if the
    /// reason proves nothing.
    func proof(of reason: String) -> String?
    /// Returns the steps that fix a rejection. `nil` if none are known.
    func advice(on reason: String) -> String?

    /// Reads the app's files.
    func credentials() throws(CredentialsError) -> AppCredentials
    /// Returns the format of the app's pushes.
    /// - Parameters:
    ///   - sound: The sound of chat messages.
    ///   - threads: Names the rooms of chat messages to Apple. `nil` if no chat messages are sent.
    func format(sound: String?, threads: RoomThreads?) -> any PushFormat
    func gateway(
        _ credentials: AppCredentials, tokens: any ProviderTokenStore, connectionIDs: ConnectionIDs, logger: Logger
    ) -> any ConfiguredGateway
}

extension GatewayKind {
    static var settings: [Setting<AppConfiguration>] { [] }
    static var textLimit: Int { MessageText.roomyLimit }
    static var confirmsPushes: Bool { true }
    static var sandboxApp: String? { nil }

    var tokens: TokenKind { format(sound: nil, threads: nil).tokens }
    var isForBrowsersOnly: Bool { false }
    var retirement: String? { nil }
    var contradiction: (setting: String, message: String)? { nil }
    func advice(on reason: String) -> String? { nil }
}

/// The endpoints of an app, and its credentials for them. Empty while the app has no credentials.
struct AppCredentials: Sendable {
    /// The gateway.
    var push: GatewayEndpoint?
    /// The feedback service, which only the binary protocol has.
    var feedback: GatewayEndpoint?
    /// The key that signs provider tokens. `nil` if the app uses a certificate.
    var key: ProviderKey?
    var certificate: CertificateSummary?
    /// The account at the push service. `nil` for Apple's gateways.
    var account: (any ServiceAccess)?
}

/// An account that grants access to a push service.
protocol ServiceAccess: Sendable {
    /// Requests access, and returns what was granted.
    func proof() async throws -> String
}

/// A gateway that a reload can change.
protocol ConfiguredGateway: PushGateway {
    /// Uses the configuration and credentials for new connections. Open connections first finish their pushes in
    /// flight, but this function does not wait for them.
    func reconfigure(_ app: AppConfiguration, _ credentials: AppCredentials, tokens: any ProviderTokenStore)
}

extension HTTP2Gateway: ConfiguredGateway where Service: ConfiguredService {
    func reconfigure(_ app: AppConfiguration, _ credentials: AppCredentials, tokens: any ProviderTokenStore) {
        reconfigure(service: Service(app, credentials, tokens))
    }
}

/// A push service that an app's settings describe.
protocol ConfiguredService: HTTP2Service {
    /// `nil` without credentials.
    init?(_ app: AppConfiguration, _ credentials: AppCredentials, _ tokens: any ProviderTokenStore)
}

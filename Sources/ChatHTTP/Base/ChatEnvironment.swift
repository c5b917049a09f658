package import ChatDomain
package import Logging

/// The parts of the relay that the server uses: stores, configuration, the state of the other parts, clocks and the log.
/// A class, so that an open stream holds one reference instead of a copy of everything.
package final class ChatEnvironment: Sendable {
    let stores: Stores
    let configuration: any ConfigurationInForce
    let relay: any RelayState
    let build: RelayBuild
    let clocks: Clocks
    let logger: Logger
    /// The start of the relay.
    let started: Timestamp

    package init(
        stores: Stores, configuration: any ConfigurationInForce, relay: any RelayState, build: RelayBuild,
        clocks: Clocks = Clocks(), logger: Logger
    ) {
        self.stores = stores
        self.configuration = configuration
        self.relay = relay
        self.build = build
        self.clocks = clocks
        self.logger = logger
        started = clocks.now()
    }

    var settings: ChatHTTPSettings { configuration.settings }
    var now: TimeSource { clocks.now }
}

/// The configuration in force. The server reads it for every request, because a reload may replace it.
package protocol ConfigurationInForce: Sendable {
    var settings: ChatHTTPSettings { get }
    /// The verifier of sessions. `nil` if clients may register without a session.
    var sessions: (any SessionVerifier)? { get }

    /// Returns the app that an `appid` names.
    ///
    /// - Parameter appID: The app's name or topic. `nil` if the request has no `appid`.
    /// - Throws: An error for the user if there is no such app.
    func app(named appID: String?) throws(ChatError) -> AppName

    /// Returns the app with the topic of `app` whose gateway serves an environment. That may be `app` itself.
    ///
    /// - Throws: An error for the field `environment` if there is no such app.
    func app(like app: AppName, in environment: AppEnvironment) throws(ChatError) -> AppName

    /// Returns the requirements of an app's gateway on pushes.
    func format(of app: AppName) -> any PushFormat

    /// Checks whether the relay may send events to a webhook's URL.
    func check(webhook url: String) throws(ChatError)

    /// The apps of phones that name no app, by their tokens (``StoreSettings/tokenApps``).
    var tokenApps: [TokenKind: AppName] { get }
}

extension ConfigurationInForce {
    /// Returns the app of a phone. Without an `appid`, the kind of its token says which.
    ///
    /// - Throws: An error for the user if there is no such app, or if its gateway has other tokens.
    func app(named appID: String?, of token: DeviceToken) throws(ChatError) -> AppName {
        let own = appID?.isEmpty ?? true ? tokenApps[token.kind] : nil
        let app = if let own { own } else { try app(named: appID) }
        try format(of: app).check(token, field: "token")
        return app
    }
}

/// The part of Apple's push service in which a build of an app receives pushes. A device token is valid in one of them.
package enum AppEnvironment: Sendable {
    /// Builds that Xcode installs.
    case sandbox
    /// Builds from the App Store and TestFlight.
    case production

    static let rule = "must be sandbox (or development) or production"

    /// Reads the relay's names and those of the entitlement `aps-environment`.
    init?(_ text: String) {
        switch text {
        case "sandbox", "development": self = .sandbox
        case "production": self = .production
        default: return nil
        }
    }
}

/// The state of the relay's other parts.
package protocol RelayState: Sendable {
    /// The configured apps, with the state of their gateways.
    var apps: [AppStatus] { get }
    /// The reader of browsers' subscriptions. `nil` if pushes to browsers are off.
    var browsers: (any SubscriptionReader)? { get }
    /// The log's latest warnings and errors, oldest first.
    var recentWarnings: [JSONValue] { get }

    /// Checks the parts of the relay that must work, except whether the database can be read.
    func readiness() async -> [ReadinessCheck]
}

/// The result of checking one part of the process that requests depend on.
package struct ReadinessCheck: Sendable, Hashable {
    package let name: String
    /// The problem in a few words, safe for the public. `nil` if there is none.
    package let problem: String?
    /// The details of the problem, for the log and for callers with the scope `figures`.
    package let cause: String?

    package init(name: String, problem: String? = nil, cause: String? = nil) {
        self.name = name
        self.problem = problem
        self.cause = cause
    }
}

/// The version and the commit of the build.
package struct RelayBuild: Sendable {
    let version: String
    let commit: String

    package init(version: String, commit: String) {
        self.version = version
        self.commit = commit
    }
}

/// The clocks of the server.
package struct Clocks: Sendable {
    /// The wall clock, for times in responses and in the database.
    let now: TimeSource
    /// The monotonic clock, for rates and event streams.
    let monotonic: MonotonicTime

    package init(monotonic: any Clock<Duration> = ContinuousClock(), now: @escaping TimeSource = Timestamp.now) {
        self.now = now
        self.monotonic = MonotonicTime(monotonic)
    }
}

import ChatDomain
import Logging

// Every setting stands in this file: its default where its property is declared, its name, kind, check and help in the
// table. A new setting is a property and a row.

/// The relay's settings, checked, with their defaults.
struct Configuration: Sendable {
    /// Which of Apple's gateways, and which block of the file. `development` unless set: it listens on loopback only, so
    /// that nothing is open to others by accident.
    enum Environment: String, Sendable, CaseIterable {
        case development, production
    }

    /// Who may register devices and join rooms: anyone, or clients with a token that the operator's own system has signed.
    enum Registration: String, Sendable, CaseIterable {
        case open, session
    }

    /// Whether it is kept what apps say of themselves, and when devices were seen.
    enum Analytics: String, Sendable, CaseIterable {
        case on, off
    }

    struct HTTP: Sendable, Equatable {
        var host: String
        var port = 44447
        /// PEM; nil for plain HTTP.
        var certificate: String?
        /// PEM; nil if the key is in the certificate's file.
        var key: String?
        /// In CIDR notation.
        var trustedProxies: [String] = []
        /// Nil for no limit.
        var ratePerAddress: RequestRate?
        var ratePerMember: RequestRate?
        /// `https://…`, without a path: where browsers reach the relay.
        var publicURL: String?
        /// Joins to rooms that nobody is in; nil for no limit.
        var joinsPerAddress: RequestRate?

        /// ``publicURL`` where others reach it too, and not only this machine: with HTTPS.
        var secureURL: String? { publicURL.flatMap { $0.hasPrefix("https://") ? $0 : nil } }

        /// The files for TLS; nil for plain HTTP.
        var tls: (certificate: String, key: String)? {
            certificate.map { ($0, key ?? $0) }
        }
    }

    struct Database: Sendable, Equatable {
        /// SQLite's file; with ``url``, the files that a relay has for itself stand beside it.
        var path = "pushchat.db"
        /// Of PostgreSQL; nil for SQLite.
        var url: Secret?
        /// Nil: where the server puts the user's tables.
        var schema: String?
        var connections = 8
    }

    struct Admin: Sendable, Equatable {
        /// Each as good as the other; several while one is exchanged.
        var tokens: [Secret] = []
    }

    /// How session tokens are verified: with any of the keys.
    struct Session: Sendable, Equatable {
        var secret: Secret?
        var key: String?
        var keySet: String?
        var audience: String?
        var issuer: String?

        var hasKeys: Bool { secret != nil || key != nil || keySet != nil }
    }

    struct Push: Sendable, Equatable {
        /// Nil for no sound.
        var sound: String? = "default"
        /// Bytes of UTF-8.
        var textLimit = MessageText.roomyLimit
        /// Nil for ever.
        var expiration: Duration?
        /// `mailto:…` or `https://…`.
        var contact: String?
    }

    /// Pushes to browsers.
    struct WebPush: Sendable, Equatable {
        /// `host` or `host:port`.
        var hosts: [String] = []
        /// PEM.
        var trust: String?
    }

    struct Retention: Sendable, Equatable {
        var retention: Duration
    }

    struct Messages: Sendable, Equatable {
        var retention: Duration = .days(30)
        /// The history of rooms for which the operator has chosen none.
        var history = RoomHistory.joined
    }

    struct Log: Sendable, Equatable {
        var format = LogFormat.text
        var level = Logger.Level.info
    }

    var environment: Environment
    var http: HTTP
    var database = Database()
    var admin = Admin()
    var registration = Registration.open
    var session = Session()
    var push = Push()
    var webPush = WebPush()
    var messages = Messages()
    var queue = Retention(retention: .days(7))
    var moderation = Retention(retention: .days(365))
    var analytics = Analytics.on
    var log = Log()
    /// In the order of the file; never empty.
    var apps: [AppConfiguration]

    /// The file that was read, as an absolute path; nil if there was none.
    var file: String?
    /// Where the settings that are not at their default came from.
    var origins: [SettingKey: SettingOrigin] = [:]
    /// Secrets that stand in the file themselves, also where something overrides them.
    var secretsInFile: [SettingKey] = []
    /// The files that secrets were read from.
    var secretFiles: [(setting: SettingKey, path: String)] = []
    /// Sentences about a configuration file that others can write and that was read all the same.
    var warnings: [String] = []

    /// The defaults, with the one app named `default`.
    init(environment: Environment) {
        self.environment = environment
        switch environment {
        case .development:
            http = HTTP(host: "127.0.0.1")
        case .production:
            // High enough for people, also for many of them behind one address; too low for a script that floods a room.
            http = HTTP(
                host: "0.0.0.0", ratePerAddress: RequestRate(count: 50, unit: .second, burst: 500),
                ratePerMember: RequestRate(count: 5, unit: .second, burst: 50),
                // Who opens a room of its own needs a few in a day; who guesses codes needs thousands in an hour.
                joinsPerAddress: RequestRate(count: 200, unit: .hour, burst: 100))
        }
        apps = [AppConfiguration(name: .default, environment: environment)]
    }

    /// The app of members that send no `appid`: the one named `default`, or else the first of the file.
    var defaultApp: AppName {
        apps.contains { $0.name == .default } ? .default : apps[0].name
    }

    /// Listens on loopback, with no proxy in front that would bring requests from elsewhere.
    var isLoopbackOnly: Bool {
        (http.host == "localhost" || http.host == "::1" || http.host.hasPrefix("127.")) && http.trustedProxies.isEmpty
            && environment == .development
    }

    func app(_ name: AppName) -> AppConfiguration? {
        apps.first { $0.name == name }
    }
}

/// One app: its topic, its gateway and its credentials there.
struct AppConfiguration: Sendable, Equatable {
    /// Apple's two protocols.
    enum Gateway: String, Sendable, CaseIterable {
        case binary, http2
    }

    let name: AppName
    var gateway: Gateway
    /// Nil for the certificate's. Required with a key, which has none.
    var topic: String?
    var host: String
    var port: Int
    var feedbackHost: String
    var feedbackPort: Int
    /// Nil: the feedback service is not read.
    var feedbackInterval: Duration? = .hours(1)
    /// PEM or PKCS#12.
    var certificate: String?
    /// PEM; nil if the key is in the certificate's file.
    var certificateKey: String?
    var passphrase: Secret?
    /// Provider token key, `.p8`.
    var key: String?
    /// Ten letters and digits, as Apple gives them.
    var keyID: String?
    var teamID: String?
    /// PEM.
    var trust: String?
    var connections = 2
    /// Bytes.
    var payloadLimit: Int
    var command = 2
    var settleTime: Duration = .seconds(5)
    var answerTimeout: Duration = .seconds(30)

    /// The defaults: Apple's hosts and ports (apns-binary.md §1, apns-http2.md §1) and payload limits (apns-binary.md §6).
    ///
    /// Source: developer.apple.com, "Sending notification requests to APNs", as of November 2026; for `binary` the last edition,
    /// of 2018, of "Local and Remote Notification Programming Guide".
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

    /// Whether a gateway that runs with this configuration can go on with another one: what differs is used for new connections.
    func hasGateway(of other: AppConfiguration) -> Bool {
        gateway == other.gateway && connections == other.connections && payloadLimit == other.payloadLimit
            && command == other.command && settleTime == other.settleTime && answerTimeout == other.answerTimeout
    }

    /// Whether the gateway is Apple's and of the protocol that Apple has given up (apns-binary.md §10).
    var isRetired: Bool { gateway == .binary && host.hasSuffix(".push.apple.com") }
    static let retirement =
        "Apple has not answered the binary protocol since 2021-03-31; nothing will be delivered there"

    /// Without credentials, pushes are accepted and queued, not sent.
    var hasCredentials: Bool { certificate != nil || (gateway == .http2 && key != nil) }
    static let noCredentials =
        "no certificate and no key: messages are accepted and queued, and sent once there is one"

    /// The first rule that settings break together: the setting that the message is about, and the message.
    var contradiction: (setting: String, message: String)? {
        guard key != nil else { return nil }
        let message: String? =
            switch gateway {
            case .binary where certificate == nil:
                "is a provider token key (.p8), which only the gateway http2 takes; set `gateway: http2` or a "
                    + "`certificate`, or remove `key`"
            case .binary: nil
            case .http2 where keyID == nil:
                "needs key_id beside it: the ten letters and digits in the name of the file from Apple"
            case .http2 where teamID == nil:
                "needs team_id beside it: Apple shows it under Membership in the developer account"
            case .http2 where topic == nil:
                "needs topic beside it: the app's bundle id, for example com.example.PushChat"
            case .http2: nil
            }
        return message.map { ("key", $0) }
    }

    /// The id in the name that Apple gives a key's file, `AuthKey_ABC123DEFG.p8`.
    static func keyID(ofFile path: String) -> String? {
        let name = path.split(separator: "/").last ?? ""
        guard name.hasPrefix("AuthKey_"), name.hasSuffix(".p8") else { return nil }
        let id = name.dropFirst("AuthKey_".count).dropLast(".p8".count)
        return id.count == 10 ? String(id) : nil
    }
}

/// A text that must not be shown: printed, interpolated or dumped it reads `(secret)`.
struct Secret: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    static let shown = "(secret)"

    let text: String

    init(_ text: String) {
        self.text = text
    }

    var description: String { Self.shown }
    var debugDescription: String { Self.shown }
    var customMirror: Mirror { Mirror(self, children: []) }
}

extension Duration {
    static func days(_ count: Int) -> Duration { .seconds(count * 86_400) }
    static func hours(_ count: Int) -> Duration { .seconds(count * 3600) }
}

/// Every setting: the file's keys, the variables' names, the checks, what `pushchat config` shows and the table in
/// docs/configuration.md all come from here.
enum SettingsTable {
    private typealias Relay = Setting<Configuration>
    private typealias App = Setting<AppConfiguration>

    /// Settings of the whole relay, by the path of their keys.
    static let relay: [Setting<Configuration>] = [
        Relay(
            "environment", \.environment, .choice, needsRestart: true,
            "selects Apple's sandbox or production hosts, the defaults below, and the file's block of that name"),
        Relay("http.host", \.http.host, .host(example: "127.0.0.1"), needsRestart: true, "the address to listen on"),
        Relay(
            "http.port", \.http.port, .number(0...65_535), needsRestart: true,
            "the port to listen on; 0 for any that is free"),
        Relay(
            "http.certificate", \.http.certificate, SettingKind.file("a PEM file").optional(), needsRestart: true,
            "the server's certificate with its chain; without it the server speaks plain HTTP, for a proxy in front"),
        Relay(
            "http.key", \.http.key, SettingKind.file("a PEM file").optional(), needsRestart: true,
            "the certificate's key, if it is in a file of its own"),
        Relay(
            "http.trusted_proxies", \.http.trustedProxies, .addressRanges,
            "`Forwarded` and `X-Forwarded-For` count only from these"),
        Relay(
            "http.rate_per_address", \.http.ratePerAddress, SettingKind.rateLimit.optional(none: "off"),
            "requests from one address; above, the answer is 429"),
        Relay(
            "http.rate_per_member", \.http.ratePerMember, SettingKind.rateLimit.optional(none: "off"),
            "requests of one udid; above, the answer is 429"),
        Relay(
            "http.joins_per_address", \.http.joinsPerAddress, SettingKind.rateLimit.optional(none: "off"),
            "joins from one address to rooms that nobody is in, which may be guesses of a code; above, every join is "
                + "answered 429"),
        Relay(
            "http.public_url", \.http.publicURL, SettingKind.publicURL.optional(),
            "where browsers reach the relay: a click on a notification and invitations lead there, Safari shows "
                + "notifications by itself, and `pushchat check` looks at it"),
        Relay(
            "database.path", \.database.path, .path, needsRestart: true,
            "the SQLite file; created if it does not exist. With `database.url`, what this relay keeps for itself "
                + "stands beside it"),
        Relay(
            "database.url", \.database.url, SettingKind.postgres.optional(), isSecret: true, needsRestart: true,
            "the PostgreSQL database that is used instead, which several relays may share"),
        Relay(
            "database.schema", \.database.schema, SettingKind.schema.optional(), needsRestart: true,
            "in which schema its tables are, created if it does not exist; unless set, the user's first, mostly "
                + "`public`"),
        Relay(
            "database.connections", \.database.connections, .number(3...100), needsRestart: true,
            "how many connections the relay opens to it at the most, and one more"),
        Relay(
            "admin.token", \.admin.tokens, .tokens, isSecret: true,
            "the bearer token of `/v1`, or several that are equally good; without it only this machine may call, in "
                + "production nobody"),
        Relay(
            "registration", \.registration, .choice,
            "who may register devices and chat: `open` for anyone, `session` for clients with a token that your system "
                + "signed"),
        Relay(
            "session.secret", \.session.secret, SettingKind.visibleASCII(shortest: 32).optional(), isSecret: true,
            "the secret that signs those tokens (HS256); `session` needs at least one of this and the next two"),
        Relay(
            "session.key", \.session.key, SettingKind.file("a PEM file").optional(),
            "the public key, or a certificate, that verifies them (ES256, RS256)"),
        Relay(
            "session.jwks", \.session.keySet, SettingKind.file("a JSON file").optional(),
            "a JSON Web Key Set that verifies them (HS256, ES256, RS256)"),
        Relay(
            "session.audience", \.session.audience, SettingKind.claim(example: "pushchat").optional(),
            "the `aud` that a token must have; without it a token must have none"),
        Relay(
            "session.issuer", \.session.issuer, SettingKind.claim(example: "https://example.com").optional(),
            "the `iss` that a token must have; without it any"),
        Relay(
            // At most so long that a payload of 256 bytes still has room for a text.
            "push.sound", \.push.sound,
            SettingKind.printable("the name of a sound file, at most 100 bytes, for example `beep.caf`", limit: 100)
                .optional(none: "none"),
            "a sound file in the app, or `default`, for chat messages"),
        Relay(
            "push.text_limit", \.push.textLimit, .number(1...MessageText.highestLimit, unit: "bytes"),
            "the longest text of a chat message; unless set, 190 where an app uses `binary`"),
        Relay(
            "push.expiration", \.push.expiration,
            SettingKind.duration(.seconds(60) ... .days(365), example: "1 day").optional(none: "none"),
            "how long a chat message is worth sending, for the relay and for Apple"),
        Relay(
            "push.contact", \.push.contact, SettingKind.contact.optional(),
            "whom the operators of browsers' push services may ask; without it `http.public_url`; Apple's wants one of "
                + "them"),
        Relay(
            "webpush.hosts", \.webPush.hosts, .pushHosts,
            "push services beside those of the browsers' vendors, for UnifiedPush say; they may be in your own network"),
        Relay(
            "webpush.trust", \.webPush.trust, SettingKind.file("a PEM file").optional(),
            "authorities to trust for push services beside the system's, for a sandbox"),
        Relay("messages.retention", \.messages.retention, .retention, "how long the chat's messages are kept"),
        Relay(
            "messages.history", \.messages.history, .choice,
            "what members may read that join from then on: what is posted after they have joined, or all that is kept; "
                + "`pushchat rooms history` chooses for one room"),
        Relay(
            "queue.retention", \.queue.retention, .retention,
            "how long pushes are kept after they were sent or refused"),
        Relay(
            "moderation.retention", \.moderation.retention, .retention,
            "how long bans that have ended, and the record of what was done to keep order, are kept"),
        Relay(
            "analytics", \.analytics, .choice,
            "whether it is kept which versions, systems and models are used, and when; `off` also deletes what was kept"
        ),
        Relay("log.format", \.log.format, .choice, "lines for people or for programs, on standard error"),
        Relay("log.level", \.log.level, .choice, "the least important level that is logged"),
    ]

    /// Settings of each app, by their key inside `apps.NAME`. `gateway` is first: other defaults depend on it.
    static let app: [Setting<AppConfiguration>] = [
        App(
            "gateway", \.gateway, .choice,
            "Apple's protocol: `http2`, or the `binary` one of before 2021"),
        App(
            "topic", \.topic, SettingKind.bundleID.optional(),
            "the app's bundle id; without it the certificate's; a `key` needs it"),
        App("host", \.host, .host(example: "api.push.apple.com"), "the gateway; Apple's other one with `binary`"),
        App("port", \.port, .number(1...65_535), "its port; 2195 with `binary`"),
        App(
            "feedback_host", \.feedbackHost, .host(example: "feedback.push.apple.com"),
            "the feedback service; where `host` is set, that host"),
        App("feedback_port", \.feedbackPort, .number(1...65_535), "its port"),
        App(
            "feedback_interval", \.feedbackInterval,
            SettingKind.duration(.seconds(1) ... .days(7), example: "1 hour").optional(none: "off"),
            "how often the feedback service is read, with `binary`"),
        App(
            "certificate", \.certificate, SettingKind.file("a PEM or PKCS#12 file").optional(),
            "the client certificate; without it and without `key` pushes are queued, not sent"),
        App(
            "certificate_key", \.certificateKey, SettingKind.file("a PEM file").optional(),
            "the certificate's key, if it is in a file of its own"),
        App(
            "passphrase", \.passphrase, SettingKind.passphrase.optional(), isSecret: true,
            "of the key or the PKCS#12 file"),
        App(
            "key", \.key, SettingKind.file("a .p8 file").optional(),
            "the key that signs provider tokens, for `http2`; used instead of `certificate`"),
        App(
            "key_id", \.keyID, SettingKind.appleID(example: "ABC123DEFG").optional(),
            "the key's id; without it the one in the file's name"),
        App(
            "team_id", \.teamID, SettingKind.appleID(example: "DEF123GHIJ").optional(),
            "the id of the team that owns the key"),
        App(
            "trust", \.trust, SettingKind.file("a PEM file").optional(),
            "authorities to trust beside the system's, for a sandbox"),
        App(
            "connections", \.connections, .number(1...64),
            "connections to the gateway: so many with `binary`, at most so many with `http2`"),
        App(
            "payload_limit", \.payloadLimit, .number(256...4096, unit: "bytes"),
            "the largest payload that the gateway accepts; with `binary` 2048, and 256 before iOS 8"),
        App(
            "command", \.command, .number(0...2),
            "the binary protocol's command; with 0 the gateway does not report refused pushes, with 1 and 2 it does"),
        App(
            "settle", \.settleTime, .duration(.seconds(1) ... .seconds(60), example: "5s"),
            "how long the binary gateway must be silent until a push counts as accepted"),
        App(
            "answer_timeout", \.answerTimeout, .duration(.seconds(1) ... .seconds(300), example: "30s"),
            "how long the HTTP/2 gateway may take to answer a push until it is repeated"),
    ]
}

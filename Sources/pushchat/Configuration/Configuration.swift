import ChatDomain
import Logging

/// Everything that the relay can be told, after checking; the defaults stand here, what each setting takes and means
/// in ``SettingsTable``.
struct Configuration: Sendable {
    /// Which of Apple's gateways, and which block of the file. `development` unless set: it listens on loopback
    /// only, so that nothing is open to others by accident.
    enum Environment: String, Sendable, CaseIterable {
        case development, production
    }

    var environment: Environment
    var http: HTTP
    var database = Database()
    var admin = Admin()
    var registration = Registration.open
    var session = Session()
    var push = Push()
    var messages = Retention(retention: .days(30))
    var queue = Retention(retention: .days(7))
    var log = Log()
    /// In the order of the file; never empty.
    var apps: [AppConfiguration]

    /// The file that was read, as an absolute path; nil if there was none.
    var file: String?
    /// Where the settings that are not at their default came from.
    var origins: [SettingKey: Origin] = [:]

    struct HTTP: Sendable, Equatable {
        var host: String
        /// 0: any free port.
        var port = 44447
        /// PEM; nil for plain HTTP.
        var certificate: String?
        /// PEM; nil if the key stands in the certificate's file.
        var key: String?
        /// Addresses and networks in CIDR notation, each checked to be one.
        var trustedProxies: [String] = []
        /// Nil for no limit.
        var ratePerAddress: RequestRate?
        var ratePerMember: RequestRate?

        /// The two files to speak TLS with; nil for plain HTTP.
        var tls: (certificate: String, key: String)? {
            certificate.map { ($0, key ?? $0) }
        }
    }

    struct Database: Sendable, Equatable {
        var path = "pushchat.db"
    }

    struct Admin: Sendable, Equatable {
        var token: Secret?
    }

    /// Who may register devices and join rooms.
    enum Registration: String, Sendable, CaseIterable {
        /// Anyone.
        case open
        /// Who brings a token that the operator's own system has signed.
        case session
    }

    /// How those tokens are checked: with any of the keys.
    struct Session: Sendable, Equatable {
        /// Shared, for HS256.
        var secret: Secret?
        /// PEM: a public key or certificate, for ES256 or RS256.
        var key: String?
        /// A JWKS file.
        var keySet: String?
        var audience: String?
        var issuer: String?

        var hasKeys: Bool { secret != nil || key != nil || keySet != nil }
    }

    struct Push: Sendable, Equatable {
        /// Nil for no sound.
        var sound: String? = "default"
        /// Bytes of UTF-8.
        var textLimit = MessageText.defaultLimit
        /// How long a chat push is worth sending, in the queue and at the gateway; nil for ever.
        var expiration: Duration?
    }

    struct Retention: Sendable, Equatable {
        var retention: Duration
    }

    struct Log: Sendable, Equatable {
        var format = LogFormat.text
        var level = Logger.Level.info
    }

    /// The defaults, with the one app named `default`.
    init(environment: Environment) {
        self.environment = environment
        // Generous for people and for many of them behind one address; in the way of a script that floods a room.
        switch environment {
        case .development:
            http = HTTP(host: "127.0.0.1")
        case .production:
            http = HTTP(
                host: "0.0.0.0", ratePerAddress: RequestRate(count: 50, unit: .second, burst: 500),
                ratePerMember: RequestRate(count: 5, unit: .second, burst: 50))
        }
        apps = [AppConfiguration(name: .default, environment: environment)]
    }

    /// The app of members that send no `appid`: the one named `default`, or else the first of the file.
    var defaultApp: AppName {
        apps.contains { $0.name == .default } ? .default : apps[0].name
    }

    /// Listens on loopback, with no proxy in front that would bring requests from elsewhere.
    var isForThisMachineOnly: Bool {
        (http.host == "localhost" || http.host == "::1" || http.host.hasPrefix("127.")) && http.trustedProxies.isEmpty
            && environment == .development
    }

    func app(_ name: AppName) -> AppConfiguration? {
        apps.first { $0.name == name }
    }
}

extension Duration {
    static func days(_ count: Int) -> Duration { .seconds(count * 86_400) }
    static func hours(_ count: Int) -> Duration { .seconds(count * 3600) }
}

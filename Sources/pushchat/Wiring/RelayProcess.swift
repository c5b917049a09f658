import APNSGateway
import ChatDispatch
import ChatDomain
import ChatHTTP
import ChatSession
import ChatStore
import Foundation
import Logging
import ServiceLifecycle
import Synchronization
import UnixSignals

/// The relay as a process: everything wired together, run until a signal stops it.
struct RelayProcess: Sendable {
    /// How long the parts have to finish what is in flight before they are cut off.
    private static let shutdownLimit = Duration.seconds(20)
    /// And how long to end after that, before the process ends all the same. The queue is on disk.
    private static let cancellationLimit = Duration.seconds(5)
    /// Between tries to open a database that is locked or on a full disk.
    private static let reopenInterval = Duration.seconds(1)

    private let sources: ConfigurationSources
    private let configuration: Configuration
    private let reloads: Bool
    private let log: LogSettings
    private let companions: [any Service]
    private let onListening: @Sendable (Int) -> Void

    /// - Parameters:
    ///   - sources: read again on SIGHUP.
    ///   - reloads: whether SIGHUP means that; otherwise it ends the process, as a closed terminal should.
    ///   - log: handed in when logging has begun already.
    ///   - companions: further services, started first and stopped last.
    init(
        sources: ConfigurationSources, configuration: Configuration, reloads: Bool = true, log: LogSettings? = nil,
        companions: [any Service] = [], onListening: @escaping @Sendable (Int) -> Void = { _ in }
    ) {
        self.sources = sources
        self.configuration = configuration
        self.reloads = reloads
        self.companions = companions
        self.onListening = onListening
        if let log {
            self.log = log
        } else {
            self.log = LogSettings(level: configuration.log.level, format: configuration.log.format)
            self.log.bootstrap()
        }
    }

    func run() async throws {
        let logger = Logger(label: LogRecord.relay)
        do {
            try await run(logger: logger)
        } catch let error as Failure {
            throw error
        } catch is CancellationError {
        } catch {
            throw Failure("\(error)")
        }
    }

    private func run(logger: Logger) async throws {
        umask(0o077)
        FileLimit.raise()
        let live = LiveConfiguration(configuration)
        let lock = try DatabaseLock(path: configuration.database.path)
        let (store, backlog) = try await openStore(live, logger)
        let stores = store.ports
        logger.info(
            "started",
            metadata: [
                "version": "\(Pushchat.version)", "environment": "\(configuration.environment.rawValue)",
                "database": "\(configuration.database.path)", "configuration": "\(configuration.file ?? "defaults")",
            ])
        let orphans = backlog.apps.filter { configuration.app($0) == nil && $0 != .default }.sorted()
        if !orphans.isEmpty {
            logger.warning(
                "entries wait for apps that are not configured",
                metadata: ["apps": "\(orphans.map(\.text).joined(separator: " "))"])
        }

        let epochs = ConnectionEpochs()
        var apps: [AppRuntime] = []
        for app in configuration.apps {
            apps.append(
                AppRuntime(app, credentials: try app.credentials(), stores: stores, epochs: epochs, logger: logger))
        }
        live.replace(
            configuration, topics: Self.topics(apps), sessions: try await TokenVerifier.configured(configuration))
        let certificate = try configuration.http.tls.map {
            try ServerCertificate(certificate: $0.certificate, key: $0.key)
        }
        let server = ChatServer(
            configuration: ChatServerConfiguration(
                host: configuration.http.host, port: configuration.http.port, certificate: certificate,
                maximumConnections: FileLimit.connections),
            stores: stores, settings: { live.httpSettings },
            resolveApp: { appid throws(ChatError) in try live.apps.resolve(appid) },
            apps: { [apps] in apps.map(\.status) }, format: { live.storeSettings.format($0) },
            recentWarnings: { [log] in log.recentWarnings.records },
            sessions: { live.sessions }, version: Pushchat.version,
            logger: logger,
            onListening: { [configuration, onListening] port in
                logger.info("listening", metadata: ["host": "\(configuration.http.host)", "port": "\(port)"])
                onListening(port)
            })
        let showsTokens = configuration.environment == .development
        let services: [any Service] =
            companions + [
                StoreWatch(upkeep: stores.upkeep),
                Housekeeping(
                    sweep: { () async throws(ChatError) in try await sweep(stores.upkeep, live.current) },
                    logger: logger),
            ]
            + apps.flatMap {
                $0.services(startsInDoubt: backlog.apps.contains($0.name), showsTokens: showsTokens)
            } + [server]
            + (reloads
                ? [
                    Reloader(
                        sources: sources, live: live, apps: apps, certificate: certificate, log: log, logger: logger)
                ] : [])
        var group = ServiceGroupConfiguration(
            services: services.map(NamedService.init), gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
        group.maximumGracefulShutdownDuration = Self.shutdownLimit
        group.maximumCancellationDuration = Self.cancellationLimit
        try await ServiceGroup(configuration: group).run()
        try store.close()
        logger.info("stopped")
        _ = consume lock
    }

    /// The topics that the apps' certificates name.
    static func topics(_ apps: [AppRuntime]) -> [AppName: String] {
        apps.reduce(into: [:]) { topics, app in topics[app.name] = app.certificateTopic }
    }

    /// Waits while the disk is in the way: a lock that another process holds is no reason not to start.
    private func openStore(
        _ live: LiveConfiguration, _ logger: Logger
    ) async throws -> (SQLiteStores, StoreBacklog) {
        while true {
            do {
                let store = try SQLiteStores(
                    file: DatabaseFile(path: configuration.database.path), settings: { live.storeSettings },
                    logger: logger)
                return (store, try await store.upkeep.prepare())
            } catch let error as ChatError where error.code == .unavailable {
                logger.error("the database cannot be opened now, trying again", metadata: ["error": "\(error)"])
                try await Task.sleep(for: Self.reopenInterval)
            }
        }
    }

    private func sweep(
        _ upkeep: any StoreUpkeep, _ configuration: Configuration
    ) async throws(ChatError) -> Logger.Metadata {
        let result = try await upkeep.applyRetention(
            messages: configuration.messages.retention, queue: configuration.queue.retention)
        guard result.messages + result.pushes + result.feedback + result.notifications > 0 else { return [:] }
        return [
            "messages": "\(result.messages)", "pushes": "\(result.pushes)", "feedback": "\(result.feedback)",
            "notifications": "\(result.notifications)",
        ]
    }
}

/// A service that is called by its type in the log, where the group would else print all that it holds.
private struct NamedService: Service, CustomStringConvertible {
    let service: any Service

    var description: String { String(describing: type(of: service)) }

    func run() async throws {
        try await service.run()
    }
}

/// What the store does by itself, as a service.
private struct StoreWatch: Service {
    let upkeep: any StoreUpkeep

    func run() async throws {
        await cancelWhenGracefulShutdown { await upkeep.watch() }
    }
}

/// The configuration in force, in the forms in which the parts want it; changed by a reload.
final class LiveConfiguration: Sendable {
    private struct Values: Sendable {
        var configuration: Configuration
        var http: ChatHTTPSettings
        var store: StoreSettings
        var apps: AppDirectory
        var sessions: (any SessionVerifier)?
    }

    private let values: Mutex<Values>

    init(_ configuration: Configuration) {
        values = Mutex(Self.derive(configuration, topics: [:], sessions: nil))
    }

    var current: Configuration { values.withLock { $0.configuration } }
    var httpSettings: ChatHTTPSettings { values.withLock { $0.http } }
    var storeSettings: StoreSettings { values.withLock { $0.store } }
    var apps: AppDirectory { values.withLock { $0.apps } }
    var sessions: (any SessionVerifier)? { values.withLock { $0.sessions } }

    /// - Parameters:
    ///   - topics: what the apps' certificates name.
    ///   - sessions: nil where anyone may register.
    func replace(_ configuration: Configuration, topics: [AppName: String], sessions: (any SessionVerifier)?) {
        let new = Self.derive(configuration, topics: topics, sessions: sessions)
        values.withLock { $0 = new }
    }

    private static func derive(
        _ configuration: Configuration, topics: [AppName: String], sessions: (any SessionVerifier)?
    ) -> Values {
        let sound = configuration.push.sound
        let formats = Dictionary(
            uniqueKeysWithValues: configuration.apps.map { ($0.name, $0.format(sound: sound)) })
        // An app that is not configured any more: what fits everywhere.
        let smallest = configuration.apps.min { $0.payloadLimit < $1.payloadLimit }?.format(sound: sound)
        let other = smallest ?? AppConfiguration(name: .default, environment: .development).format(sound: sound)
        return Values(
            configuration: configuration,
            http: ChatHTTPSettings(
                isDevelopment: configuration.environment == .development,
                refusesForeignPages: configuration.isForThisMachineOnly, textLimit: configuration.push.textLimit,
                trustedProxies: configuration.http.trustedProxies.compactMap { AddressRange($0) },
                addressRate: configuration.http.ratePerAddress.flatMap {
                    RateLimit(perSecond: $0.perSecond, burst: $0.burst)
                },
                memberRate: configuration.http.ratePerMember.flatMap {
                    RateLimit(perSecond: $0.perSecond, burst: $0.burst)
                }, adminToken: configuration.admin.token?.text),
            store: StoreSettings(
                format: { formats[$0] ?? other },
                expiration: configuration.push.expiration, defaultApp: configuration.defaultApp,
                apps: Set(configuration.apps.map(\.name))),
            apps: AppDirectory(configuration, topics: topics), sessions: sessions)
    }
}

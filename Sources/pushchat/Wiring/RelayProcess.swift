import APNSGateway
import ChatDispatch
import ChatDomain
import ChatHTTP
import ChatStore
import Foundation
import Logging
import NIOCore
import PushWire
import ServiceLifecycle
import UnixSignals

/// The relay as a process. Connects all parts, and runs until a signal or a failure stops it.
struct RelayProcess: Sendable {
    /// The time between attempts to open a database that is locked or on a full disk.
    private static let reopenInterval = Duration.seconds(1)

    /// The sources that SIGHUP reads again.
    let sources: ConfigurationSources
    let configuration: Configuration
    let log: LogSettings
    /// Whether SIGHUP reloads the configuration. Otherwise, SIGHUP ends the process, for example when a terminal is
    /// closed.
    var reloads = true
    /// Services that start first and stop last.
    var additionalServices: [any Service] = []
    /// A file that has the relay's URL while it listens. `nil` for none.
    var addressFile: String?
    var onListening: @Sendable (_ port: Int) -> Void = { _ in }

    /// Runs the relay until a signal or a failure stops it.
    /// - Throws: ``Failure``.
    func run() async throws {
        do {
            try await run(logger: Logger(label: LogRecord.relay))
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
        try await runAlone(live, logger)
        // Keeps the lock until here.
        _ = consume lock
    }

    /// Opens the database, whose lock the caller holds, and runs the services on it.
    private func runAlone(_ live: LiveConfiguration, _ logger: Logger) async throws {
        // From now on, `pushchat reload` may send its signal. It gets the result when the relay listens.
        if reloads { try? ReloadReport(process: getpid()).write(for: configuration.database.path) }
        defer { if reloads { unlink(ReloadReport.file(of: configuration.database.path)) } }
        // A killed process has left this file.
        if let addressFile { unlink(addressFile) }
        defer { if let addressFile { unlink(addressFile) } }
        let (storage, key, backlog) = try await openStorage(live, logger)
        do {
            try await serve(storage.ports, key, backlog, live, logger)
        } catch {
            try? await storage.close()
            throw error
        }
        try await storage.close()
        logger.info("stopped")
    }

    /// Runs the services on an open database.
    private func serve(
        _ stores: Stores, _ key: VAPIDKey, _ backlog: StoreBacklog, _ live: LiveConfiguration, _ logger: Logger
    ) async throws {
        logger.info(
            "started",
            metadata: [
                "version": "\(Build.description)", "environment": "\(configuration.environment.rawValue)",
                "database": "\(configuration.database.description)",
                "configuration": "\(configuration.file ?? "defaults")",
            ])

        let connectionIDs = ConnectionIDs()
        let showsTokens = configuration.environment == .development
        let vital = VitalServices(logger: logger)
        let apps = RunningApps(
            stores: stores, connectionIDs: connectionIDs, services: vital, inDoubt: backlog.apps,
            showsTokens: showsTokens, logger: logger)
        await apps.update(try configuration.apps.map { ($0, try $0.gatewayKind.credentials()) })
        let browsers = try BrowserRuntime(
            configuration, key: key, stores: stores, connectionIDs: connectionIDs, logger: logger)
        live.replace(
            configuration, topics: apps.topics, sessions: try await TokenVerifier.configured(configuration))
        let certificate = try configuration.http.tls.map {
            try ServerCertificate(certificate: $0.certificate, key: $0.key)
        }
        let watch = DispatchWatch(apps: { apps.all.map(\.watched) }, metrics: stores.metrics)
        let parts = RunningParts(
            runningApps: apps, browserRuntime: browsers, log: log, upkeep: stores.upkeep, watch: watch)
        let server = ChatServer(
            ChatServerConfiguration(
                host: configuration.http.host, port: configuration.http.port, certificate: certificate,
                maxConnections: FileLimit.connections,
                history: DatabaseFile.resolved(configuration.database.path) + ".figures"),
            ChatEnvironment(
                stores: stores, configuration: live, relay: parts,
                build: RelayBuild(version: Build.version, commit: Build.commit), logger: logger),
            supervised: { vital.vital($0) }, onListening: { announce(port: $0, logger) })
        // The services are in the order of dependency. They start in this order and stop in reverse.
        var services = additionalServices + upkeep(of: stores.upkeep, live, logger) + [watch]
        let browsing = browsers.services(startsInDoubt: backlog.apps.contains(.web), showsTokens: showsTokens)
        let upstream = UpstreamSender(
            store: stores.pollRequests, server: { live.current.upstreamServer }, logger: logger)
        let broadcasts = BroadcastClient { name in apps.all.first { $0.name == name }?.broadcastTarget }
        let activities = ActivitySender(
            activities: stores.activities, notifications: stores.notifications, broadcasts: broadcasts,
            format: { live.format(of: $0) },
            logger: logger)
        let clock = MessageClock(changes: stores.changes, logger: logger)
        let webhooks = WebhookSender(
            store: stores.webhooks, rooms: stores.rooms,
            transport: WebhookClient(rules: { live.current.webhookRules }), logger: logger)
        let concurrent: [any Service] = [apps, server, upstream, activities, clock, webhooks]
        services.append(
            ConcurrentServices(
                services: concurrent.map { vital.vital($0) }
                    + browsing.map { vital.vital($0, app: AppName.web.text) }))
        if reloads {
            services.append(
                Reloader(
                    sources: sources, live: live, apps: apps, browsers: browsers, certificate: certificate, log: log,
                    signals: await UnixSignalsSequence(trapping: .sighup), logger: logger))
        }
        var failure: (any Error)?
        do {
            try await vital.run(services)
        } catch {
            failure = error
        }
        await broadcasts.close()
        if let failure { throw failure }
    }

    /// Returns the background work that needs no gateway.
    private func upkeep(of store: any StoreUpkeep, _ live: LiveConfiguration, _ logger: Logger) -> [any Service] {
        [
            StoreMaintenance(upkeep: store), MemoryTrimmer(logger: logger),
            Housekeeping(
                isSynchronized: { KernelClock.isSynchronized },
                evidence: { limit throws(ChatError) in try await store.clockEvidence(upTo: limit) },
                sweep: { () async throws(ChatError) in try await sweep(store, live.current) }, logger: logger),
        ]
    }

    /// Logs that the relay listens, and writes its address for other programs.
    private func announce(port: Int, _ logger: Logger) {
        var metadata: Logger.Metadata = ["host": "\(configuration.http.host)", "port": "\(port)"]
        metadata["public_url"] = configuration.http.publicURL.map { "\($0)" }
        logger.info("listening", metadata: metadata)
        if let addressFile {
            var listening = configuration
            listening.http.port = port
            do {
                try Data("\(listening.localAddress)\n".utf8).write(to: URL(filePath: addressFile), options: .atomic)
            } catch {
                logger.warning(
                    "the relay's address was not written", metadata: ["error": "\(error.localizedDescription)"])
            }
        }
        onListening(port)
    }

    /// Opens the database. Waits while the database is locked, the disk is full or the server is unavailable, because
    /// these conditions are temporary.
    private func openStorage(
        _ live: LiveConfiguration, _ logger: Logger
    ) async throws -> (Storage, VAPIDKey, StoreBacklog) {
        while true {
            do {
                let storage = try await Storage.open(
                    configuration.database, settings: { live.storeSettings }, logger: logger)
                do {
                    let key = try await VAPIDKey.load(from: storage.ports)
                    // Set this before any payload is made, because the store continues with messages of an earlier
                    // process.
                    live.nameRooms(by: key.threads)
                    return (storage, key, try await storage.ports.upkeep.prepare())
                } catch {
                    try? await storage.close()
                    throw error
                }
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
            RetentionAges(
                messages: configuration.messages.retention, queue: configuration.queue.retention,
                moderation: configuration.moderation.retention, webhooks: configuration.webhooks.retention))
        guard result != RetentionResult() else { return [:] }
        return [
            "messages": "\(result.messages)", "pushes": "\(result.pushes)", "feedback": "\(result.feedback)",
            "notifications": "\(result.notifications)", "moderation": "\(result.moderation)",
        ]
    }
}

extension Configuration {
    /// The server that tells ntfy's app on iPhones about new messages. `nil` if none is configured.
    fileprivate var upstreamServer: UpstreamServer? {
        guard let upstream = ntfy.upstream, let baseURL = ntfyBaseURL else { return nil }
        return UpstreamServer(
            url: upstream, token: ntfy.upstreamToken?.text, baseURL: baseURL, userAgent: "pushchat/\(Build.version)")
    }
}

/// The background work of the store, as a service.
private struct StoreMaintenance: Service {
    let upkeep: any StoreUpkeep

    func run() async throws {
        await cancelWhenGracefulShutdown { await upkeep.watch() }
    }
}

/// The limits on the files and connections that the process may have open.
enum FileLimit {
    /// The maximum number of connections, whatever the limit on files. Each open event stream takes about twenty
    /// kilobytes.
    static let maxConnections = 16_384

    /// Raises the soft limit, often 1,024, to the hard limit, because each connection needs a descriptor.
    static func raise() {
        guard var limit = current else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }

    /// The minimum number of connections, for limits below the reserve.
    static let minConnections = 8

    /// The maximum number of clients that may be connected.
    static var connections: Int {
        connections(of: Int(clamping: current?.rlim_cur ?? 1024), eventLoops: NIOCore.System.coreCount)
    }

    /// Returns the maximum number of connections for a limit on files. A quarter of the limit, and at least 40 files,
    /// are reserved for the database, the log and the gateways. An idle relay with SQLite has about thirty files open,
    /// and three for each of SwiftNIO's event loops. Clients must not get the last files, because libdispatch ends the
    /// process when it cannot open one.
    static func connections(of limit: Int, eventLoops: Int) -> Int {
        let reserve = max(limit / 4, 40 + 4 * eventLoops)
        return min(maxConnections, max(minConnections, limit - reserve))
    }

    private static var current: rlimit? {
        var limit = rlimit()
        return getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 ? limit : nil
    }
}

import APNSGateway
import ArgumentParser
import ChatDispatch
import ChatDomain
import Foundation
import Logging
import ServiceLifecycle
import Synchronization

/// Sends pushes straight to an app's gateway, with the relay's own dispatcher and gateway client. These retry as the
/// gateway requests.
struct DirectSending {
    let app: AppConfiguration
    let content: NotificationContent
    let composed: ComposedNotification
    let tokens: [DeviceToken]
    let timeLimit: Duration

    /// Sends the pushes and waits for their outcomes.
    ///
    /// - Throws: ``Failure`` if the gateway cannot be reached or rejects the credentials.
    func run(clock: some Clock<Duration> = ContinuousClock()) async throws -> [DirectResult] {
        let credentials = try Failure.catching { try app.gatewayKind.credentials() }
        if let retirement = app.gatewayKind.retirement { Output.note("warning: " + retirement) }
        do {
            try await credentials.push?.probe()
        } catch {
            throw Failure(error.description)
        }
        let deadline = clock.now.advanced(by: timeLimit)
        let queue = DirectQueue(content, composed, to: tokens)
        let (connectionIDs, keys) = (ConnectionIDs(), MemoryTokenStore())
        // A gateway may close while it has pushes that it did not accept. The next gateway then sends these pushes.
        while queue.hasWaiting, clock.now < deadline {
            let gateway = app.gatewayKind.gateway(
                credentials, tokens: keys, connectionIDs: connectionIDs, logger: Self.warnings)
            let silent = Logger(label: "direct") { _ in SwiftLogNoOpLogHandler() }
            let dispatcher = Dispatcher(
                app: app.name, queue: queue, gateway: gateway, lifeCycle: DirectQueue.lifeCycle, logger: silent)
            let services = ServiceGroup(services: [dispatcher], logger: silent)
            async let work: Void = services.run()
            await wait(for: queue, until: deadline, clock)
            await services.triggerGracefulShutdown()
            try await work
        }
        return queue.results
    }

    /// Waits until every push has an outcome, or until the deadline. If silence means acceptance, waits only until every
    /// push is written: closing the connection waits for the outcomes.
    private func wait<C: Clock>(for queue: DirectQueue, until deadline: C.Instant, _ clock: C) async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                for await _ in queue.arrivals(of: app.name) {
                    let isDone = app.gateway.kind.confirmsPushes ? queue.isSettled : !queue.hasWaiting
                    if isDone { break }
                }
            }
            group.addTask { try? await clock.sleep(until: deadline, tolerance: nil) }
            await group.next()
            group.cancelAll()
        }
    }

    /// Logs to standard error why the gateway cannot be reached, while the dispatcher retries.
    private static var warnings: Logger {
        let settings = LogSettings(level: .warning, format: .text)
        return Logger(label: LogRecord.relay) { LineLogHandler(label: $0, settings: settings) }
    }
}

/// Keeps provider tokens in memory while a command runs.
private final class MemoryTokenStore: ProviderTokenStore {
    private let token = Mutex<IssuedToken?>(nil)

    func providerToken(
        for key: ProviderKeyName, refused: String?, sign: @escaping @Sendable (Timestamp) throws -> String
    ) throws(ChatError) -> IssuedToken {
        if let token = token.withLock({ $0 }) { return token }
        let now = Timestamp.now()
        do {
            let made = IssuedToken(text: try sign(now), issuedAt: now)
            token.withLock { $0 = made }
            return made
        } catch {
            throw ChatError(.unavailable, "the key cannot sign: \(error)")
        }
    }
}

/// Flags for an app's settings, to reach a gateway without a relay.
struct DirectOptions: ParsableArguments {
    @Flag(help: "Send straight to the gateway, without a relay, and print its response. Stores nothing.") var direct =
        false

    @Option(
        help: .value(
            "file", "PKCS#12 (.p12) or PEM.",
            discussion: "Without it, --key and --service-account, the credentials of a configured app."),
        completion: .file(extensions: ["p12", "pem"]))
    var certificate: String?

    @Option(
        help: .value("file", "PEM with the certificate's key, if it is in a separate file."),
        completion: .file(extensions: ["pem"]))
    var certificateKey: String?

    @Option(
        parsing: .unconditional,
        help: .value(
            "text", "The file's passphrase. Other users of this machine can see it; --passphrase-file is safer."))
    var passphrase: String?

    @Option(help: .value("file", "A file that contains only the passphrase."), completion: .file())
    var passphraseFile: String?

    @Option(
        help: .value("file", "A provider token key (.p8), instead of a certificate."),
        completion: .file(extensions: ["p8"]))
    var key: String?

    @Option(help: .value("id", "The key's id; by default from the name AuthKey_….p8.")) var keyID: String?
    @Option(help: .value("id", "The key's team.")) var teamID: String?
    @Option(help: .value("id", "The app's bundle id; a certificate may name it.")) var topic: String?
    @Option(
        help: .value("file", "Google's service account (JSON), for Android; implies --gateway fcm."),
        completion: .file(extensions: ["json"]))
    var serviceAccount: String?

    @Option(help: .value("name", "http2, binary or fcm."), completion: .list(["http2", "binary", "fcm"]))
    var gateway: String?
    @Option(help: .value("host", "The gateway, if it is not Apple's.")) var host: String?
    @Option(help: .value("port", "Its port.")) var port: String?

    @Option(
        help: .value("file", "PEM with an additional authority to trust, for a sandbox."),
        completion: .file(extensions: ["pem"]))
    var trust: String?

    /// The settings that were given, each with its value and its flag.
    private var settings: [(name: String, value: String, flag: String)] {
        [
            ("certificate", certificate, "--certificate"),
            ("certificate_key", certificateKey, "--certificate-key"),
            ("passphrase", passphrase, "--passphrase"), ("passphrase_file", passphraseFile, "--passphrase-file"),
            ("key", key, "--key"), ("key_id", keyID, "--key-id"), ("team_id", teamID, "--team-id"),
            ("topic", topic, "--topic"),
            ("gateway", gateway ?? serviceAccount.map { _ in "fcm" }, "--gateway"), ("host", host, "--host"),
            ("port", port, "--port"), ("trust", trust, "--trust"),
            ("service_account", serviceAccount, "--service-account"),
        ].compactMap { name, value, flag in value.map { (name, $0, flag) } }
    }

    /// The first of these flags that was given. `nil` if none was. They all require `--direct`.
    var given: String? { settings.first?.flag }

    /// Returns the settings of a configured app, overridden by the flags. If the flags contain credentials, only the
    /// flags count.
    ///
    /// - Parameter name: The app's name. `nil` selects the default app of the configuration.
    /// - Throws: ``Failure``, or a ``ValidationError`` for flags that contradict each other.
    func app(named name: String?, _ relay: RelayOptions) throws -> AppConfiguration {
        let isWhole = certificate != nil || key != nil || serviceAccount != nil
        if isWhole, relay.source.config != nil {
            throw ValidationError(
                "--config is for a configured app: leave out --certificate, --key and --service-account.")
        }
        let variables = ProcessInfo.processInfo.environment
        let name = try name ?? (isWhole ? AppName.default.text : relay.configuration().defaultApp.text)
        guard AppName.isValid(name) else { throw ValidationError("--app \(name): is not a valid name of an app") }
        let flags =
            relay.flags
            + settings.map { ConfigurationFlag("apps.\(name).\($0.name)", $0.value, name: $0.flag) }
        let sources =
            isWhole
            ? ConfigurationSources(
                flags: flags, variables: variables.filter { ConfigurationVariables.ofEnvironment.contains($0.key) },
                searched: [])
            : ConfigurationSources(file: relay.source.config, flags: flags)
        let configuration = try Configuration.loaded(sources)
        guard let app = configuration.app(AppName(name)) else {
            throw Failure(
                "no app \(name) is configured: give --certificate, --key or --service-account, or name another with --app"
            )
        }
        guard app.gatewayKind.hasCredentials else {
            throw Failure(
                "app \(name) has no credentials: give --certificate, --key or --service-account, or name a configuration "
                    + "that has them with --config")
        }
        return app
    }
}

import APNSGateway
import ChatHTTP
import ChatSession
import Logging
import ServiceLifecycle
import UnixSignals

/// Reloads configuration and credentials on SIGHUP. If anything in them is wrong, nothing changes.
struct Reloader: Service {
    let sources: ConfigurationSources
    let live: LiveConfiguration
    let apps: [AppRuntime]
    let browsers: BrowserRuntime
    let certificate: ServerCertificate?
    let log: LogSettings
    /// SIGHUP; held for as long as the process runs, since it would end the process when nobody listens.
    let signals: UnixSignalsSequence
    let logger: Logger

    func run() async throws {
        await cancelWhenGracefulShutdown {
            await HangupSignal.forEach(signals) { await reload() }
        }
    }

    func reload() async {
        do {
            let running = live.current
            let wanted = try Configuration.load(sources)
            guard wanted.environment == running.environment else {
                throw Failure("environment is now \(wanted.environment.rawValue), which needs a restart")
            }
            let new = running.adopting(wanted)
            let credentials = try apps.compactMap { app in
                try new.app(app.name).map { (app, $0, try $0.gatewayKind.credentials()) }
            }
            let sessions = try await TokenVerifier.configured(new)
            try certificate?.reload()
            let changes = running.changes(to: wanted)
            try browsers.reconfigure(new)
            log.set(level: new.log.level, format: new.log.format)
            // Connections that drain are not waited for: the new settings, a new admin token say, count from now on.
            for (app, configuration, credentials) in credentials {
                app.reconfigure(configuration, credentials: credentials)
            }
            live.replace(new, topics: RelayProcess.topics(apps), sessions: sessions)
            logger.notice(
                "configuration reloaded", metadata: ["changes": "\(changes.map(\.setting).joined(separator: " "))"])
            let pending = changes.filter(\.needsRestart).map(\.setting)
            if !pending.isEmpty {
                logger.warning(
                    "takes effect only after a restart", metadata: ["settings": "\(pending.joined(separator: " "))"])
            }
        } catch {
            logger.error(
                "configuration could not be reloaded, the old one stays in force", metadata: ["error": "\(error)"])
        }
    }
}

import APNSGateway
import ChatHTTP
import ChatSession
import Logging
import ServiceLifecycle
import UnixSignals

/// Reads configuration and credentials anew on SIGHUP. If anything in them is wrong, all stays as it was.
struct Reloader: Service {
    let sources: ConfigurationSources
    let live: LiveConfiguration
    let apps: [AppRuntime]
    let certificate: ServerCertificate?
    let log: LogSettings
    let logger: Logger

    func run() async throws {
        await cancelWhenGracefulShutdown {
            for await _ in await UnixSignalsSequence(trapping: .sighup) {
                await reload()
            }
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
            var credentials: [(AppRuntime, AppConfiguration, AppCredentials)] = []
            for app in apps {
                guard let configuration = new.app(app.name) else { continue }
                credentials.append((app, configuration, try configuration.credentials()))
            }
            let sessions = try await TokenVerifier.configured(new)
            try certificate?.reload()
            let changes = running.changes(to: wanted)
            log.set(level: new.log.level, format: new.log.format)
            // Side by side: a gateway that takes its time to drain holds up no other app.
            await withTaskGroup(of: Void.self) { group in
                for (app, configuration, credentials) in credentials {
                    group.addTask { await app.reconfigure(configuration, credentials: credentials) }
                }
            }
            live.replace(new, topics: RelayProcess.topics(apps), sessions: sessions)
            logger.notice(
                "configuration read anew", metadata: ["changes": "\(changes.map(\.setting).joined(separator: " "))"])
            let waiting = changes.filter(\.needsRestart).map(\.setting)
            if !waiting.isEmpty {
                logger.warning(
                    "takes effect only after a restart", metadata: ["settings": "\(waiting.joined(separator: " "))"])
            }
        } catch {
            logger.error("configuration could not be read anew, the old one stays", metadata: ["error": "\(error)"])
        }
    }
}

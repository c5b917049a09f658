import APNSGateway
import ChatHTTP
import ChatSession
import Foundation
import Logging
import ServiceLifecycle
import UnixSignals

/// Reloads configuration and credentials on SIGHUP. If anything in them is wrong, nothing changes.
struct Reloader: Service {
    let sources: ConfigurationSources
    let live: LiveConfiguration
    let apps: RunningApps
    let browsers: BrowserRuntime
    let certificate: ServerCertificate?
    let log: LogSettings
    /// SIGHUP; held for as long as the process runs, since it would end the process when nobody listens.
    let signals: UnixSignalsSequence
    let logger: Logger

    func run() async throws {
        let database = live.current.database.path
        await cancelWhenGracefulShutdown {
            var report = ReloadReport(process: getpid())
            await ReloadSignal.forEach(signals) {
                report.begun += 1
                write(report, database)
                await reload(&report)
                report.ended += 1
                write(report, database)
            }
        }
    }

    private func write(_ report: ReloadReport, _ database: String) {
        do {
            try report.write(for: database)
        } catch {
            logger.warning("`pushchat reload` cannot be answered", metadata: ["error": "\(error.localizedDescription)"])
        }
    }

    private func reload(_ report: inout ReloadReport) async {
        (report.error, report.changes, report.needsRestart) = (nil, [], [])
        do {
            let running = live.current
            let wanted = try Configuration.load(sources)
            guard wanted.environment == running.environment else {
                throw Failure("environment is now \(wanted.environment.rawValue), which needs a restart")
            }
            let new = running.adopting(wanted)
            let credentials = try new.apps.map { (configuration: $0, credentials: try $0.gatewayKind.credentials()) }
            let sessions = try await TokenVerifier.configured(new)
            let changes = running.changes(to: wanted)
            let sender = try browsers.sender(new)
            // Nothing after this fails.
            try certificate?.reload()
            browsers.reconfigure(new, sender)
            log.set(level: new.log.level, format: new.log.format)
            // Connections that drain are not waited for: the new settings, a new admin token say, count from now on.
            await apps.update(credentials)
            live.replace(new, topics: apps.topics, sessions: sessions)
            report.changes = changes.map(\.setting)
            report.needsRestart = changes.filter(\.needsRestart).map(\.setting)
            logger.notice(
                "configuration reloaded", metadata: ["changes": "\(report.changes.joined(separator: " "))"])
            if !report.needsRestart.isEmpty {
                logger.warning(
                    "takes effect only after a restart",
                    metadata: ["settings": "\(report.needsRestart.joined(separator: " "))"])
            }
        } catch {
            report.error = "\(error)"
            logger.error(
                "configuration could not be reloaded, the old one stays in force", metadata: ["error": "\(error)"])
        }
    }
}

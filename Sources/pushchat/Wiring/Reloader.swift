import APNSGateway
import ChatHTTP
import Foundation
import Logging
import ServiceLifecycle
import UnixSignals

/// Reloads configuration and credentials on SIGHUP. If there is any error in them, nothing changes.
struct Reloader: Service {
    let sources: ConfigurationSources
    let live: LiveConfiguration
    let apps: RunningApps
    let browsers: BrowserRuntime
    let certificate: ServerCertificate?
    let log: LogSettings
    /// The SIGHUP signals. Kept as long as the process runs, because without a listener the signal would end the
    /// process.
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
            logger.warning("reload report not written", metadata: ["error": "\(error.localizedDescription)"])
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
            // No call after this one throws.
            try certificate?.reload()
            browsers.reconfigure(new, sender)
            log.set(level: new.log.level, format: new.log.format)
            // Do not wait for connections to drain. The new settings, for example a new admin token, take effect now.
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
                "configuration not reloaded, the old one stays in force", metadata: ["error": "\(error)"])
        }
    }
}

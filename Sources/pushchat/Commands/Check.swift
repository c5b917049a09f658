import APNSGateway
import ArgumentParser
import ChatHTTP
import ChatSession
import ChatStore
import Foundation

/// `pushchat check`
struct Check: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Say what is right and what is wrong: configuration, database, certificates, gateways.",
        discussion: "One line each; the status is 1 if any fails.")

    @OptionGroup var options: ConfigurationOptions

    /// Days before its end at which a certificate is worth a warning: renewing one takes people time.
    private static let fewDays = 30

    private enum Result: String {
        case ok = "ok  "
        case warning = "warn"
        case failed = "FAIL"
    }

    func run() async throws {
        var failures = 0
        func report(_ result: Result, _ subject: String, _ text: String) {
            if result == .failed { failures += 1 }
            print("\(result.rawValue)  \(subject): \(text)")
        }

        let configuration: Configuration
        do {
            configuration = try Configuration.load(options.sources)
        } catch {
            for problem in error.problems { report(.failed, "configuration", problem.description) }
            throw ExitCode(1)
        }
        report(
            .ok, "configuration",
            "\(configuration.file ?? "no file, defaults"), \(configuration.environment.rawValue)")
        if let tls = configuration.http.tls { checkServer(tls.certificate, tls.key, report) }
        do {
            report(.ok, "database", try DatabaseFile(path: configuration.database.path).inspect())
        } catch {
            report(.failed, "database", "\(error)")
        }
        if configuration.registration == .session {
            do {
                _ = try await TokenVerifier.configured(configuration)
                report(.ok, "sessions", "tokens can be checked")
            } catch {
                report(.failed, "sessions", "\(error)")
            }
        }
        if configuration.environment == .production, configuration.admin.token == nil {
            report(.warning, "admin", "no admin.token: nobody may call /v1, and `pushchat send` cannot")
        }
        for app in configuration.apps {
            let subject = "app \(app.name)"
            guard app.hasCredentials else {
                report(.warning, subject, AppConfiguration.noCredentials)
                continue
            }
            do {
                let credentials = try app.credentials()
                if let key = credentials.key {
                    report(
                        .ok, "\(subject) key",
                        "key id \(key.keyID), team id \(key.teamID), topic \(app.topic ?? "none")")
                }
                if let certificate = credentials.certificate {
                    check(certificate, of: app, in: configuration.environment, subject, report)
                }
                if app.isRetired { report(.warning, "\(subject) gateway", AppConfiguration.retirement) }
                await probe("\(subject) gateway", credentials.push, report) {
                    (endpoint) async throws(GatewayUnreachable) in try await endpoint.probe()
                }
                if app.feedbackInterval != nil {
                    // No further than TCP: the service would hand out its list, and forget it.
                    await probe("\(subject) feedback", credentials.feedback, report) {
                        (endpoint) async throws(GatewayUnreachable) in try await endpoint.reach()
                    }
                }
            } catch {
                report(.failed, "\(subject) \(app.key == nil ? "certificate" : "key")", "\(error)")
            }
        }
        if failures > 0 { throw ExitCode(1) }
    }

    /// The certificate that the relay shows its own clients.
    private func checkServer(_ certificate: String, _ key: String, _ report: (Result, String, String) -> Void) {
        do {
            _ = try ServerCertificate(certificate: certificate, key: key)
            let end = try ClientCredentials(certificate: certificate, key: key).summary
            let days = end.daysLeft(at: Date())
            let text = "\(end.commonName), \(days) days left"
            if days < 0 {
                report(.failed, "http certificate", text + ": it has expired")
            } else {
                report(days < Self.fewDays ? .warning : .ok, "http certificate", text)
            }
        } catch {
            report(.failed, "http certificate", "\(error)")
        }
    }

    private func check(
        _ certificate: CertificateSummary, of app: AppConfiguration, in environment: Configuration.Environment,
        _ subject: String, _ report: (Result, String, String) -> Void
    ) {
        let days = certificate.daysLeft(at: Date())
        let topics = certificate.topics.isEmpty ? "none" : certificate.topics.joined(separator: " ")
        let isOfOtherEnvironment =
            switch certificate.environment {
            case .development: environment == .production
            case .production: environment == .development
            case .both, .unstated: false
            }
        let text =
            "\(certificate.commonName), topics \(topics), \(certificate.environment.rawValue), \(days) days left"
        if certificate.notBefore > Date() || days < 0 {
            report(.failed, "\(subject) certificate", text + (days < 0 ? ": it has expired" : ": it is not valid yet"))
        } else if let wanted = app.topic, !certificate.topics.isEmpty, !certificate.topics.contains(wanted) {
            report(.failed, "\(subject) certificate", text + ": the configured topic is \(wanted)")
        } else if isOfOtherEnvironment {
            report(.warning, "\(subject) certificate", text + ": the relay runs in \(environment.rawValue)")
        } else {
            report(days < Self.fewDays ? .warning : .ok, "\(subject) certificate", text)
        }
    }

    private func probe(
        _ subject: String, _ endpoint: GatewayEndpoint?, _ report: (Result, String, String) -> Void,
        _ test: (GatewayEndpoint) async throws(GatewayUnreachable) -> Void
    ) async {
        guard let endpoint else { return }
        do throws(GatewayUnreachable) {
            try await test(endpoint)
            report(.ok, subject, "\(endpoint.host):\(endpoint.port) answers")
        } catch {
            report(.failed, subject, error.description)
        }
    }
}

import APNSGateway
import ArgumentParser
import ChatDomain
import ChatHTTP
import Foundation
import PushWire

/// `pushchat check`
struct Check: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract:
            "Check the configuration, the database, certificates, gateways and the public address.",
        discussion: "Prints a line for each finding. The status is 1 if any check fails.")

    @Flag(help: "Also test the credentials of each app with one push to a token that no device has.") var send = false
    @Flag(help: "Only ask the running relay whether it is ready, for health checks.") var ready = false
    @OptionGroup var options: ConfigurationOptions

    func validate() throws {
        if ready, send { throw ValidationError("--ready cannot go together with --send") }
    }

    func run() async throws {
        if ready { return try await checkReadiness() }
        var report = CheckReport(sends: send)
        do {
            var configuration = try Configuration.load(options.sources)
            if configuration.file == nil, let relay = DevFolder.address {
                Output.note("checking the defaults of pushchat serve; pushchat dev at \(relay) has other settings")
            }
            if configuration.database.url == nil { configuration.database.path = configuration.databasePath() }
            await report.check(configuration)
        } catch {
            for problem in error.problems { report.add(.failed, "configuration", problem.description) }
        }
        if report.hasFailure { throw ExitCode(1) }
    }

    /// Calls `/readyz` of the relay on this machine.
    private func checkReadiness() async throws {
        let configuration = try options.load()
        var report = CheckReport(sends: false)
        do {
            let relay = try configuration.client(token: nil)
            _ = try await relay.call(.GET, "/readyz", isRepeatable: false)
            report.add(.ok, "relay", "\(relay.base) is ready")
        } catch {
            report.add(.failed, "relay", "\(error)")
            throw ExitCode(1)
        }
    }
}

/// Prints one line for each finding.
struct CheckReport {
    enum Result: String, Sendable {
        case ok = "ok  "
        case warning = "warn"
        case failed = "FAIL"
    }

    /// The number of days before its expiry at which a certificate gets a warning, because people need time to renew
    /// it.
    private static let warningDays = 30

    /// Whether to prove the credentials of each app with a push to a token that no device has.
    let sends: Bool
    private(set) var hasFailure = false

    init(sends: Bool) {
        self.sends = sends
    }

    mutating func add(_ result: Result, _ subject: String, _ text: String) {
        if result == .failed { hasFailure = true }
        print("\(result.rawValue)  \(subject): \(text)")
    }

    /// Prints the text that `work` returns, or the error that it throws.
    private mutating func check(_ subject: String, _ work: () async throws -> String) async {
        do {
            add(.ok, subject, try await work())
        } catch {
            add(.failed, subject, "\(error)")
        }
    }

    mutating func check(_ configuration: Configuration) async {
        add(
            .ok, "configuration",
            "\(configuration.file ?? "no file, defaults"), \(configuration.environment.rawValue)")
        if let secret = configuration.secretsInFile.first, let file = configuration.file,
            ReadableFile.isReadableByAll(file)
        {
            add(
                .warning, "configuration",
                "\(file) holds a secret (\(secret)) and every user of this machine can read it; chmod 600 \(file)")
        }
        for warning in configuration.warnings { add(.warning, "configuration", warning) }
        checkSecretFiles(configuration)
        if let tls = configuration.http.tls { checkServer(tls.certificate, tls.key) }
        let waiting = await checkDatabase(configuration)
        if configuration.registration == .session {
            await check("sessions") {
                _ = try await TokenVerifier.configured(configuration)
                return "tokens can be verified"
            }
        }
        if configuration.environment == .production, configuration.admin.tokens.isEmpty {
            add(.warning, "admin", "no admin.token: no client may call /v1, not even `pushchat send`")
        }
        for (index, token) in configuration.admin.tokens.enumerated() {
            let bits = TokenStrength.bits(of: token.text)
            guard bits < TokenStrength.enough else { continue }
            let which = configuration.admin.tokens.count > 1 ? "token \(index + 1) of admin.token" : "admin.token"
            add(
                .warning, "admin",
                "\(which) can be guessed: it has at most \(Int(bits)) bits, and needs \(Int(TokenStrength.enough)); "
                    + "`openssl rand -hex 32` prints a good one")
        }
        for app in configuration.apps {
            await check(app, configuration.environment, waiting: waiting[app.name] ?? 0)
        }
        checkBrowsers(configuration)
        if var address = PublicAddressCheck(configuration) {
            for line in await address.run() { add(line.result, line.subject, line.text) }
        }
    }

    private mutating func checkBrowsers(_ configuration: Configuration) {
        do {
            let sender = try BrowserRuntime.sender(configuration, VAPIDKey())
            if let host = sender.subject.flatMap(VAPIDContact.init)?.privateHost {
                let source =
                    configuration.push.contact == nil
                    ? "http.public_url is also the contact for push services, because push.contact is not set"
                    : "push.contact is \(sender.subject ?? "")"
                add(
                    .warning, "browsers",
                    "\(source): no public host has the name \(host), so Apple's push service rejects all pushes; "
                        + "set push.contact to an address of yours")
            }
            if sender.subject == nil {
                add(
                    .warning, "browsers",
                    "no push.contact and no http.public_url: Apple's push service rejects all pushes; other services accept them"
                )
            } else if configuration.http.publicURL == nil {
                add(.warning, "browsers", "no http.public_url: a click on a notification works only if a page is open")
            } else {
                add(.ok, "browsers", "\(sender.subject ?? "")")
            }
        } catch {
            add(.failed, "browsers", "\(error)")
        }
    }

    /// - Returns: The number of pushes that wait, for each app.
    private mutating func checkDatabase(_ configuration: Configuration) async -> [AppName: Int] {
        do {
            let found = try await Storage.inspect(configuration.database)
            add(.ok, "database", found.text)
            for problem in found.problems { add(.warning, "database", problem) }
            // The relay treats pushes and members of the app `default` as those of the default app.
            let known = Set(configuration.apps.map(\.name) + [.default])
            for app in Set(found.pushesToSend.keys).union(found.members.keys).subtracting(known).sorted() {
                let (pushes, members) = (found.pushesToSend[app] ?? 0, found.members[app] ?? 0)
                add(
                    .warning, "app \(JSONValue.string(app.text))",
                    "is not configured; pushes that wait for it: \(pushes), members: \(members)")
            }
            for pause in found.pauses {
                let reason = pause.reason.map { ": \($0)" } ?? ""
                let waiting = found.pushesToSend[pause.app] ?? 0
                add(
                    .warning, "app \(pause.app)",
                    "is paused since \(pause.since.rfc3339) by \(pause.actor)\(reason); pushes that wait: \(waiting); "
                        + "`pushchat queue resume \(pause.app)` ends the pause")
            }
            if configuration.registration == .session, found.credentialsWithoutUser > 0 {
                add(
                    .warning, "sessions",
                    "members' credentials for other apps without a user: \(found.credentialsWithoutUser). Each gets its user "
                        + "at its member's next call, or ends after session.credential_lifetime; `pushchat credential list` "
                        + "shows them")
            }
            if found.scheduled.held > 0 {
                add(
                    .warning, "scheduled messages",
                    "held: \(found.scheduled.held). They were due before a restore. Change their time, or delete them")
            }
            if found.scheduled.overdue > 0 {
                add(
                    .warning, "scheduled messages",
                    "overdue: \(found.scheduled.overdue). The relay posts them when it starts")
            }
            for (count, problem) in [
                (found.webhooks.failing, "failing: their receivers have not accepted the last requests"),
                (found.webhooks.paused, "paused: their receivers failed, or an operator paused them"),
                (found.webhooks.ended, "ended: their receivers answered 410 Gone"),
            ] where count > 0 {
                add(.warning, "webhooks", "\(count) \(problem); `pushchat webhooks` lists them")
            }
            if found.webhooks.held > 0 {
                add(
                    .warning, "webhooks",
                    "held events: \(found.webhooks.held). They waited in a backup; `pushchat webhooks redeliver` sends them"
                )
            }
            return found.pushesToSend
        } catch {
            add(.failed, "database", "\(error)")
            return [:]
        }
    }

    /// Checks the certificate that the relay presents to its own clients.
    private mutating func checkServer(_ certificate: String, _ key: String) {
        let subject = "http certificate"
        do {
            _ = try ServerCertificate(certificate: certificate, key: key)
            let summary = try ClientCredentials(certificate: certificate, key: key).summary
            let days = summary.daysLeft(at: Date())
            add(days, subject, "\(summary.commonName), \(days) days left")
        } catch {
            add(.failed, subject, "\(error)")
        }
    }

    /// Adds a line for a certificate that has no other fault. The number of days left determines the result.
    private mutating func add(_ days: Int, _ subject: String, _ text: String) {
        if days < 0 {
            add(.failed, subject, text + ": it has expired")
        } else {
            add(days < Self.warningDays ? .warning : .ok, subject, text)
        }
    }

    /// - Parameter waiting: The number of the app's pushes that wait.
    private mutating func check(
        _ app: AppConfiguration, _ environment: Configuration.Environment, waiting: Int
    ) async {
        let subject = "app \(app.name)"
        let kind = app.gatewayKind
        guard kind.hasCredentials else {
            let needsNone = kind.isForBrowsersOnly && waiting == 0
            return needsNone
                ? add(.ok, subject, AppConfiguration.onlyBrowsers) : add(.warning, subject, app.noCredentials)
        }
        let credentials: AppCredentials
        do {
            credentials = try kind.credentials()
        } catch {
            return add(.failed, "\(subject) \(kind.credentialName)", "\(error)")
        }
        if let key = credentials.key {
            add(
                .ok, "\(subject) key", "key id \(key.keyID), team id \(key.teamID), topic \(app.topic ?? "none")")
        }
        if let certificate = credentials.certificate { check(certificate, of: app, environment) }
        if let account = credentials.account {
            await check("\(subject) \(kind.credentialName)") { try await account.proof() }
        }
        if let retirement = kind.retirement { add(.warning, "\(subject) gateway", retirement) }
        if let gateway = credentials.push {
            await check("\(subject) gateway") {
                try await gateway.probe()
                return "\(gateway.host):\(gateway.port) answers"
            }
            if sends { await prove(app) }
        }
        if let feedback = credentials.feedback, app.feedbackInterval != nil {
            await check("\(subject) feedback") {
                // Connect with TCP only. After a TLS handshake the service would send its list and clear it.
                try await feedback.reach()
                return "\(feedback.host):\(feedback.port) answers"
            }
        }
    }

    private mutating func prove(_ app: AppConfiguration) async {
        let subject = "app \(app.name) push"
        do {
            switch try await CredentialProof(app: app).run() {
            case .proven(let text): add(.ok, subject, text)
            case .inconclusive(let text): add(.warning, subject, text)
            case .refused(let text): add(.failed, subject, text)
            }
        } catch {
            add(.failed, subject, "\(error)")
        }
    }

    private mutating func check(
        _ certificate: CertificateSummary, of app: AppConfiguration, _ environment: Configuration.Environment
    ) {
        let subject = "app \(app.name) certificate"
        let days = certificate.daysLeft(at: Date())
        let topics = certificate.topics.isEmpty ? "none" : certificate.topics.joined(separator: " ")
        let text =
            "\(certificate.commonName), topics \(topics), \(certificate.environment.rawValue), \(days) days left"
        let isOfOtherEnvironment =
            switch certificate.environment {
            case .development: environment == .production
            case .production: environment == .development
            case .both, .unstated: false
            }
        if certificate.notBefore > Date() {
            add(.failed, subject, text + ": it is not valid yet")
        } else if days >= 0, let wanted = app.topic, !certificate.topics.isEmpty, !certificate.topics.contains(wanted) {
            add(.failed, subject, text + ": the configured topic is \(wanted)")
        } else if days >= 0, isOfOtherEnvironment {
            add(.warning, subject, text + ": the relay runs in \(environment.rawValue)")
        } else {
            add(days, subject, text)
        }
    }

    /// Warns of files that contain a secret and that every user of the machine can read.
    mutating func checkSecretFiles(_ configuration: Configuration) {
        let files = configuration.secretFiles + configuration.keyFiles
        for (setting, path) in files where ReadableFile.isReadableByAll(path) {
            add(
                .warning, "\(setting)",
                "\(path) holds a secret, and every user of this machine can read it; chmod o-r \(path)")
        }
    }
}

extension Configuration {
    /// The files that contain a private key, each with the setting that names it.
    fileprivate var keyFiles: [(setting: SettingKey, path: String)] {
        let server = http.tls.map { [(SettingKey(name: http.key == nil ? "http.certificate" : "http.key"), $0.key)] }
        return (server ?? [])
            + apps.flatMap { app in
                app.keyFiles.compactMap { name, path in path.map { (SettingKey(app: app.name, name: name), $0) } }
            }
    }
}

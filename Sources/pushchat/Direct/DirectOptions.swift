import ArgumentParser
import ChatDomain
import Foundation

/// The way to a gateway without a relay: an app's settings, as flags.
struct DirectOptions: ParsableArguments {
    @Flag(help: "Straight to the gateway, with no relay running; prints its answer. Nothing is stored.")
    var direct = false

    @Option(
        help: ArgumentHelp(
            "PKCS#12 (.p12) or PEM.", discussion: "Without it and --key: those of a configured app.", valueName: "file"),
        completion: .file(extensions: ["p12", "pem"]))
    var certificate: String?

    @Option(
        help: ArgumentHelp("PEM with its key, where that stands apart.", valueName: "file"),
        completion: .file(extensions: ["pem"]))
    var certificateKey: String?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("Of the file. Others on this machine see it; better: --passphrase-file.", valueName: "text"))
    var passphrase: String?

    @Option(help: ArgumentHelp("A file with nothing but the passphrase.", valueName: "file"), completion: .file())
    var passphraseFile: String?

    @Option(
        help: ArgumentHelp("A provider token key (.p8), instead of a certificate.", valueName: "file"),
        completion: .file(extensions: ["p8"]))
    var key: String?

    @Option(help: ArgumentHelp("The key's id; unless given, from the name AuthKey_….p8.", valueName: "id"))
    var keyID: String?

    @Option(help: ArgumentHelp("The key's team.", valueName: "id"))
    var teamID: String?

    @Option(help: ArgumentHelp("The app's bundle id; a certificate may name it.", valueName: "id"))
    var topic: String?

    @Option(help: ArgumentHelp("http2 or binary.", valueName: "name"), completion: .list(["http2", "binary"]))
    var gateway: String?

    @Option(help: ArgumentHelp("The gateway, if it is not Apple's.", valueName: "host"))
    var host: String?

    @Option(help: ArgumentHelp("Its port.", valueName: "port"))
    var port: String?

    @Option(
        help: ArgumentHelp("PEM with an authority to trust beside the system's, for a sandbox.", valueName: "file"),
        completion: .file(extensions: ["pem"]))
    var trust: String?

    /// The settings of an app that were given: the name, the value, the flag.
    private var settings: [(name: String, value: String, flag: String)] {
        [
            ("certificate", certificate, "--certificate"),
            ("certificate_key", certificateKey, "--certificate-key"),
            ("passphrase", passphrase, "--passphrase"), ("passphrase_file", passphraseFile, "--passphrase-file"),
            ("key", key, "--key"), ("key_id", keyID, "--key-id"), ("team_id", teamID, "--team-id"),
            ("topic", topic, "--topic"), ("gateway", gateway, "--gateway"), ("host", host, "--host"),
            ("port", port, "--port"), ("trust", trust, "--trust"),
        ].compactMap { name, value, flag in value.map { (name, $0, flag) } }
    }

    /// The first flag that makes no sense without `--direct`.
    var given: String? { settings.first?.flag }

    /// The settings of a configured app with the flags laid over them, or the flags alone where they say what to log in with.
    /// - Parameter name: nil for the app that the configuration makes the default.
    /// - Throws: ``Failure``.
    func app(named name: String?, _ relay: RelayOptions) throws -> AppConfiguration {
        let isWhole = certificate != nil || key != nil
        if isWhole, relay.source.config != nil {
            throw ValidationError("--config is for a configured app: leave out --certificate and --key.")
        }
        let variables = ProcessInfo.processInfo.environment
        let name = try name ?? (isWhole ? AppName.default.text : relay.configuration().defaultApp.text)
        guard AppName.isValid(name) else { throw ValidationError("--app \(name): is no name of an app") }
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
            throw Failure("no app \(name) is configured: give --certificate or --key, or name another with --app")
        }
        guard app.hasCredentials else {
            throw Failure(
                "app \(name) has no certificate and no key: give --certificate or --key, or the configuration that has "
                    + "one with --config")
        }
        return app
    }
}

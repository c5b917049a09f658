import ArgumentParser
import ChatDomain
import Foundation
import Logging
import PushSandbox
import ServiceLifecycle

/// `pushchat sandbox`
struct SandboxCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sandbox",
        abstract:
            "Run a local stand-in for the push services of Apple, browsers and FCM, with an inbox.",
        discussion: """
            Point your provider at it instead of Apple, or at its browsers (POST /browsers),
            or its Android phones (POST /installations).
            The first start writes certificates into its folder.
            In tests: --free-ports --ready-file FILE --end-with-parent.
            The inbox:        curl http://127.0.0.1:2198/notifications
            The control API:  curl http://127.0.0.1:2198/
            """)

    @OptionGroup var ports: SandboxPorts
    @Flag(help: "Listen on free ports, in place of the ports above.") var freePorts = false

    @Option(
        help: .value("file", "A JSON file with ports, URLs and credentials, which exists while the sandbox listens."),
        completion: .file())
    var readyFile: String?

    @Flag(help: "End when the parent process ends.") var endWithParent = false
    @Option(help: .value("folder", "The folder for certificates.")) var directory = ".pushchat/sandbox"
    @Option(help: .value("address", "The address to listen on.")) var host = "127.0.0.1"

    @Option(help: .value("name", "Another name under which clients may call the control API; repeatable."))
    var allowHost: [String] = []

    @Option(help: .value("bundle id", "The app that the client certificate names."))
    var topic = SandboxConfiguration.defaultTopic

    @Flag(help: "Reject tokens that POST /devices did not create, payloads that are not JSON, HTTP/2 without ALPN.")
    var strict = false

    @Option(help: .value("bytes", "Payload limit in bytes of the binary protocol: 2048, or 256 as before iOS 8."))
    var payloadLimit = 2048

    @Option(help: .value("response", "Response to a frame that cannot be read: 128, 255 or close."))
    var malformed = SandboxConfiguration.MalformedResponse.protocolError

    @Option(
        help: .value(
            "response", "Response to a probe (a frame with an empty token): answer, unidentified, close or silence."))
    var probe = SandboxConfiguration.ProbeResponse.answer

    @Option(help: .value("count", "The number of open streams that an HTTP/2 connection may have.")) var streamLimit =
        1000
    @Option(
        help: .value(
            "answer",
            "Whether apps may broadcast: on, or the reason of the refusal: FeatureNotEnabled or BroadcastFeatureNotEnabled."
        ))
    var broadcasts = SandboxConfiguration.Broadcasts.on

    @Option(help: .value("count", "The number of broadcast channels that an app may have."))
    var channelLimit = 10_000

    @Option(help: .value("count", "Respond with 429 to more HTTP/2 pushes per second to one device.")) var deviceRate:
        Int?
    @Option(help: .value("count", "The number of notifications that the inbox keeps.")) var inboxLimit = 100_000

    @Flag(help: "Clear the feedback list as soon as it is sent, even if the client disconnects early.")
    var clearFeedbackOnHandshake = false

    @Option(
        name: .customLong("simctl"),
        help: .value("folder", "Write each accepted push as a file for `xcrun simctl push`."), completion: .directory)
    var simulatorFolder: String?

    @Flag(help: "Print the configuration of a relay that uses this sandbox, and end.") var printConfig = false

    @Option(help: "The protocol for --print-config: http2 or binary.")
    var gateway = AppConfiguration.Gateway.http2

    @OptionGroup var log: LogOptions

    func validate() throws {
        guard !topic.isEmpty, topic.utf8.count <= 255 else { throw ValidationError("--topic must have 1 to 255 bytes") }
        try Self.check([
            ("--payload-limit", payloadLimit, 64...5120), ("--stream-limit", streamLimit, 1...10_000),
            ("--channel-limit", channelLimit, 0...10_000),
            ("--device-rate", deviceRate ?? 1, 1...1_000_000), ("--inbox-limit", inboxLimit, 1...10_000_000),
        ])
    }

    fileprivate static func check(_ numbers: [(name: String, value: Int, range: ClosedRange<Int>)]) throws {
        for (name, value, range) in numbers where !range.contains(value) {
            throw ValidationError("\(name) must be \(range.lowerBound) to \(range.upperBound)")
        }
    }

    func run() async throws {
        // Create this before anything else, because the parent may end at any time.
        let parent = ParentWatch()
        if let readyFile { unlink(readyFile) }
        defer { if let readyFile { unlink(readyFile) } }
        FileLimit.raise()
        LogSettings(level: printConfig ? .warning : log.logLevel, format: log.logFormat).bootstrap()
        let logger = Logger(label: "sandbox")
        do {
            var settings = SandboxConfiguration(directory: FilePath.absolute(directory))
            ports.apply(to: &settings, areFree: freePorts)
            settings.host = host
            settings.allowedHosts = Set(allowHost)
            settings.topic = topic
            settings.strict = strict
            settings.payloadLimit = payloadLimit
            settings.malformedResponse = malformed
            settings.probeResponse = probe
            settings.http2StreamLimit = streamLimit
            settings.broadcasts = broadcasts
            settings.channelLimit = channelLimit
            settings.deviceRate = deviceRate
            settings.inboxLimit = inboxLimit
            settings.simulatorFolder = simulatorFolder.map { FilePath.absolute($0) }
            settings.clearFeedbackOnHandshake = clearFeedbackOnHandshake
            if printConfig {
                // A wildcard address is for listening, not for connecting.
                let host = ["0.0.0.0", "::"].contains(host) ? "127.0.0.1" : host
                let addresses = SandboxAddresses(host: host, ports: settings.ports)
                let credentials = try await settings.credentials(logger: logger)
                try await credentials.prepareServiceAccount(fcm: addresses[.fcm])
                let relay = SandboxAppSettings(gateway: gateway, addresses: addresses, credentials: credentials)
                print(relay.yaml, terminator: "")
                return
            }
            let sandbox = Sandbox(configuration: settings, logger: logger)
            let addresses = try await sandbox.start()
            let text =
                """
                PushChat sandbox \(Build.version)
                  binary   \(addresses[.binary])      (TLS, client certificate)
                  feedback \(addresses[.feedback])      (TLS, client certificate)
                  http2    \(addresses[.http2])      (TLS, provider token or client certificate)
                  channels \(addresses[.channels])      (TLS, manages broadcast channels)
                  webpush  \(addresses[.webPush])      (TLS, VAPID)
                  fcm      \(addresses[.fcm])      (TLS, service account)
                  proxy    \(addresses[.proxy])      (HTTPS_PROXY=http://\(addresses[.proxy]))
                  control  http://\(addresses[.control])/
                  folder   \(settings.directory)/
                Stop with Ctrl-C.
                """
            let readiness = SandboxReadiness(
                text: text, file: readyFile, addresses: addresses,
                credentials: try await settings.credentials(logger: logger))
            var services: [ServiceGroupConfiguration.ServiceConfiguration] = [
                .init(service: sandbox), .init(service: readiness),
            ]
            if endWithParent {
                services.append(.init(service: parent, successTerminationBehavior: .gracefullyShutdownGroup))
            }
            try await ServiceGroup(
                configuration: .init(
                    services: services, gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
            ).run()
        } catch let error as SandboxError {
            throw Failure(error.description)
        }
    }
}

/// The sandbox's ports, for `sandbox` and `dev`.
struct SandboxPorts: ParsableArguments {
    @Option(help: .value("port", "The sandbox's port for the binary protocol; 0 for any free port."))
    var binaryPort = SandboxPort.binary.standard

    @Option(help: .value("port", "The sandbox's port for the feedback service.")) var feedbackPort = SandboxPort
        .feedback.standard
    @Option(help: .value("port", "The sandbox's port for the HTTP/2 provider API.")) var http2Port = SandboxPort.http2
        .standard
    @Option(help: .value("port", "The sandbox's port for the management of broadcast channels."))
    var channelsPort = SandboxPort.channels.standard

    @Option(help: .value("port", "The sandbox's port for the inbox and the control API.")) var controlPort = SandboxPort
        .control.standard

    @Option(name: .customLong("webpush-port"), help: .value("port", "The sandbox's port for browsers' push service."))
    var webPushPort = SandboxPort.webPush.standard

    @Option(
        name: .customLong("fcm-port"), help: .value("port", "The sandbox's port for FCM and Google's access tokens."))
    var fcmPort = SandboxPort.fcm.standard

    @Option(help: .value("port", "The sandbox's port for the proxy that leads clients of push services to it."))
    var proxyPort = SandboxPort.proxy.standard

    private var ports: [SandboxPort: Int] {
        [
            .binary: binaryPort, .feedback: feedbackPort, .http2: http2Port, .channels: channelsPort,
            .control: controlPort, .webPush: webPushPort, .fcm: fcmPort, .proxy: proxyPort,
        ]
    }

    func validate() throws {
        try SandboxCommand.check(
            SandboxPort.allCases.map { ("--\($0.rawValue)-port", ports[$0] ?? $0.standard, 0...65_535) })
    }

    func apply(to configuration: inout SandboxConfiguration, areFree: Bool = false) {
        configuration.ports = areFree ? SandboxPort.free : ports
    }
}

/// A service that ends when the parent process ends.
private struct ParentWatch: Service {
    private static let interval = Duration.milliseconds(200)
    private let parent = getppid()

    func run() async throws {
        await cancelWhenGracefulShutdown {
            while getppid() == parent, (try? await Task.sleep(for: Self.interval)) != nil {}
        }
    }
}

/// Prints that the sandbox is listening, and writes the ready file for tests (docs/sandbox.md). This is a service,
/// because a signal that arrives after the announcement must lead to a graceful shutdown.
private struct SandboxReadiness: Service {
    let text: String
    let file: String?
    let addresses: SandboxAddresses
    let credentials: SandboxCredentials

    func run() async throws {
        print(text)
        fflush(nil)
        if let file {
            do {
                try write(to: file)
            } catch {
                throw Failure("--ready-file \(file) cannot be written: \(error.localizedDescription)")
            }
        }
        try await gracefulShutdown()
    }

    private var json: JSONValue {
        .object([
            "version": .string(Build.version), "process": .number(Int(getpid())),
            "control": .string("http://\(addresses[.control])"), "host": .string(addresses[.http2].host),
            "ports": .object(
                SandboxPort.allCases.reduce(into: [:]) { $0[$1.rawValue] = .number(addresses[$1].port) }),
            "topic": .string(credentials.topic), "directory": .string(credentials.directory),
            "authority": .string(credentials.authorityFile), "certificate": .string(credentials.clientFile),
            "key": .string(credentials.providerKeyFile), "key_id": .string(credentials.keyID),
            "team_id": .string(credentials.teamID), "service_account": .string(credentials.serviceAccountFile),
        ])
    }

    /// Writes the file atomically, so that a reader never sees a part of it.
    private func write(to file: String) throws {
        try Data((json.indented + "\n").utf8).write(to: URL(filePath: file), options: .atomic)
    }
}

extension SandboxConfiguration.MalformedResponse: ExpressibleByArgument {}
extension SandboxConfiguration.Broadcasts: ExpressibleByArgument {}
extension SandboxConfiguration.ProbeResponse: ExpressibleByArgument {}
extension AppConfiguration.Gateway: ExpressibleByArgument {}

/// The settings of an app that uses a sandbox as its gateway.
struct SandboxAppSettings: Sendable {
    let gateway: AppConfiguration.Gateway
    let addresses: SandboxAddresses
    let credentials: SandboxCredentials

    var settings: NamedValues {
        [("gateway", gateway.rawValue)] + gateway.kind.settings(to: addresses, credentials)
    }

    /// The settings that let a relay reach the sandbox's browsers.
    var webPush: NamedValues {
        let hosts = ["localhost", addresses[.webPush].host].map {
            "\(SandboxAddress(host: $0, port: addresses[.webPush].port))"
        }
        return [("hosts", hosts.joined(separator: ", ")), ("trust", credentials.authorityFile)]
    }

    /// The other apps, which send to the sandbox's phones.
    var others: [(app: String, settings: NamedValues)] {
        AppConfiguration.Gateway.allCases.filter { $0 != gateway }.compactMap { other in
            other.kind.sandboxApp.map {
                ($0, Self(gateway: other, addresses: addresses, credentials: credentials).settings)
            }
        }
    }

    /// A complete configuration file.
    var yaml: String {
        """
        # A relay that pushes to the sandbox on this machine: pushchat serve --config THIS_FILE
        environment: development
        webpush:

        """ + webPush.map { "  \($0.name): \"\($0.value)\"\n" }.joined() + "apps:\n"
            + (others + [("default", settings)]).map { "  \($0.app):\n" + Self.lines($0.settings) }.joined()
    }

    private static func lines(_ settings: NamedValues) -> String {
        settings.map { "    \($0.name): \(Int($0.value) == nil ? "\"\($0.value)\"" : $0.value)\n" }.joined()
    }
}

import APNSSandbox
import ArgumentParser
import Foundation
import Logging
import ServiceLifecycle

/// `pushchat sandbox`
struct SandboxCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sandbox",
        abstract: "Run the local gateway that plays Apple: binary protocol, feedback service, inbox.",
        discussion: """
            Point your provider at it instead of Apple.
            The first start writes certificates into its folder.
            What arrived:     curl http://127.0.0.1:2198/notifications
            What it can do:   curl http://127.0.0.1:2198/
            """)

    @OptionGroup var ports: SandboxPorts

    @Option(help: ArgumentHelp("Where certificates are kept.", valueName: "folder"))
    var directory = ".pushchat/sandbox"

    @Option(help: ArgumentHelp("The address to listen on.", valueName: "address"))
    var host = "127.0.0.1"

    @Option(help: ArgumentHelp("The app that the client certificate names.", valueName: "bundle id"))
    var topic = SandboxConfiguration.defaultTopic

    @Flag(help: "Refuse tokens that were not made by POST /devices, and payloads that are no JSON.")
    var strict = false

    @Option(help: ArgumentHelp("Bytes of a payload: 2048, or 256 as before iOS 8.", valueName: "bytes"))
    var payloadLimit = 2048

    @Option(help: ArgumentHelp("Answer to a frame that cannot be read: 128, 255 or close.", valueName: "answer"))
    var malformed = SandboxConfiguration.MalformedAnswer.protocolError

    @Option(help: ArgumentHelp("Notifications that the inbox keeps.", valueName: "count"))
    var inboxLimit = 100_000

    @Flag(help: "Clear the feedback list when it is handed out, even if its reader dies midway.")
    var clearFeedbackOnHandshake = false

    @Flag(help: "Print the relay configuration that points at this sandbox, and end.")
    var printConfig = false

    @Option(help: ArgumentHelp("trace, debug, info, notice, warning or error.", valueName: "level"))
    var logLevel = Logger.Level.info

    @Option(help: ArgumentHelp("text or json.", valueName: "format"))
    var logFormat = LogFormat.text

    func validate() throws {
        guard !topic.isEmpty, topic.utf8.count <= 255 else { throw ValidationError("--topic must have 1 to 255 bytes") }
        guard (64...5120).contains(payloadLimit) else { throw ValidationError("--payload-limit must be 64 to 5120") }
        guard (1...10_000_000).contains(inboxLimit) else {
            throw ValidationError("--inbox-limit must be 1 to 10000000")
        }
    }

    func run() async throws {
        FileLimit.raise()
        LogSettings(level: printConfig ? .warning : logLevel, format: logFormat).bootstrap()
        let logger = Logger(label: "sandbox")
        do {
            var settings = SandboxConfiguration(
                directory: FilePath.absolute(directory, in: FileManager.default.currentDirectoryPath))
            ports.apply(to: &settings)
            settings.host = host
            settings.topic = topic
            settings.strict = strict
            settings.payloadLimit = payloadLimit
            settings.malformedAnswer = malformed
            settings.inboxLimit = inboxLimit
            settings.clearFeedbackOnHandshake = clearFeedbackOnHandshake
            if printConfig {
                // A wildcard is no address to connect to.
                let host = ["0.0.0.0", "::"].contains(host) ? "127.0.0.1" : host
                let addresses = SandboxAddresses(
                    binary: .init(host: host, port: settings.binaryPort),
                    feedback: .init(host: host, port: settings.feedbackPort),
                    control: .init(host: host, port: settings.controlPort))
                let credentials = try await settings.credentials(logger: logger)
                print(SandboxRelay.yaml(addresses: addresses, credentials: credentials), terminator: "")
                return
            }
            let sandbox = Sandbox(configuration: settings, logger: logger)
            let addresses = try await sandbox.start()
            print(
                """
                PushChat sandbox \(Pushchat.version)
                  binary   \(addresses.binary)      (TLS, client certificate)
                  feedback \(addresses.feedback)      (TLS, client certificate)
                  control  http://\(addresses.control)/
                  folder   \(settings.directory)/
                Stop with Ctrl-C.
                """)
            fflush(nil)
            try await ServiceGroup(
                services: [sandbox], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger
            ).run()
        } catch let error as SandboxError {
            throw Failure(error.description)
        }
    }
}

/// The sandbox's ports, for `sandbox` and `dev`.
struct SandboxPorts: ParsableArguments {
    @Option(help: ArgumentHelp("The sandbox's port of the binary protocol; 0 for any that is free.", valueName: "port"))
    var binaryPort = 2195

    @Option(help: ArgumentHelp("The sandbox's port of the feedback service.", valueName: "port"))
    var feedbackPort = 2196

    @Option(help: ArgumentHelp("The sandbox's port of the inbox and the control API.", valueName: "port"))
    var controlPort = 2198

    func validate() throws {
        for (name, port) in [
            ("--binary-port", binaryPort), ("--feedback-port", feedbackPort), ("--control-port", controlPort),
        ]
        where !(0...65_535).contains(port) {
            throw ValidationError("\(name) must be 0 to 65535")
        }
    }

    func apply(to configuration: inout SandboxConfiguration) {
        configuration.binaryPort = binaryPort
        configuration.feedbackPort = feedbackPort
        configuration.controlPort = controlPort
    }
}

extension SandboxConfiguration.MalformedAnswer: ExpressibleByArgument {}

import APNSSandbox

/// The settings of an app whose gateway is a sandbox.
enum SandboxRelay {
    struct Setting: Sendable {
        let name: String
        let value: String
    }

    static func settings(addresses: SandboxAddresses, credentials: SandboxCredentials) -> [Setting] {
        [
            Setting(name: "topic", value: credentials.topic),
            Setting(name: "host", value: addresses.binary.host),
            Setting(name: "port", value: String(addresses.binary.port)),
            Setting(name: "feedback_host", value: addresses.feedback.host),
            Setting(name: "feedback_port", value: String(addresses.feedback.port)),
            Setting(name: "feedback_interval", value: "10s"),
            Setting(name: "certificate", value: credentials.clientFile),
            Setting(name: "trust", value: credentials.authorityFile),
            // Nothing lies between: an answer that has not come after a second does not come.
            Setting(name: "settle", value: "1s"),
        ]
    }

    /// A whole configuration file.
    static func yaml(addresses: SandboxAddresses, credentials: SandboxCredentials) -> String {
        """
        # A relay that pushes to the sandbox on this machine: pushchat serve --config THIS_FILE
        environment: development
        apps:
          default:
            gateway: binary

        """
            + settings(addresses: addresses, credentials: credentials)
            .map { "    \($0.name): \(Int($0.value) == nil ? "\"\($0.value)\"" : $0.value)\n" }.joined()
    }
}

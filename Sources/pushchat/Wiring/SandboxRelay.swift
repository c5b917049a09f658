import APNSSandbox

/// The settings of an app whose gateway is a sandbox.
struct SandboxRelay: Sendable {
    struct Setting: Sendable {
        let name: String
        let value: String
    }

    let gateway: AppConfiguration.Gateway
    let addresses: SandboxAddresses
    let credentials: SandboxCredentials

    var settings: [Setting] {
        let own =
            switch gateway {
            case .http2:
                [
                    Setting(name: "host", value: addresses.http2.host),
                    Setting(name: "port", value: String(addresses.http2.port)),
                    Setting(name: "key", value: credentials.providerKeyFile),
                    Setting(name: "key_id", value: credentials.keyID),
                    Setting(name: "team_id", value: credentials.teamID),
                    // Nothing lies between: an answer that has not come after five seconds does not come.
                    Setting(name: "answer_timeout", value: "5s"),
                ]
            case .binary:
                [
                    Setting(name: "host", value: addresses.binary.host),
                    Setting(name: "port", value: String(addresses.binary.port)),
                    Setting(name: "feedback_host", value: addresses.feedback.host),
                    Setting(name: "feedback_port", value: String(addresses.feedback.port)),
                    Setting(name: "feedback_interval", value: "10s"),
                    Setting(name: "certificate", value: credentials.clientFile),
                    // The same: what has not been refused after a second is not refused.
                    Setting(name: "settle", value: "1s"),
                ]
            }
        return [
            Setting(name: "gateway", value: gateway.rawValue), Setting(name: "topic", value: credentials.topic),
            Setting(name: "trust", value: credentials.authorityFile),
        ] + own
    }

    /// A whole configuration file.
    var yaml: String {
        """
        # A relay that pushes to the sandbox on this machine: pushchat serve --config THIS_FILE
        environment: development
        apps:
          default:

        """
            + settings.map { "    \($0.name): \(Int($0.value) == nil ? "\"\($0.value)\"" : $0.value)\n" }.joined()
    }
}

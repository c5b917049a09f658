import ArgumentParser

/// The flags that select a configuration.
struct ConfigurationChoice: ParsableArguments {
    @Option(
        help: .value(
            "file", "The relay's configuration file.",
            discussion: "Without it: ./pushchat.yaml, /etc/pushchat/pushchat.yaml, or the defaults."),
        completion: .file(extensions: ["yaml", "yml"]))
    var config: String?

    @Option(help: .value("name", "development or production."), completion: .list(["development", "production"]))
    var environment: String?

    var flags: [ConfigurationFlag] {
        environment.map { [ConfigurationFlag("environment", $0, name: "--environment")] } ?? []
    }
}

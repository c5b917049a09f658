import ArgumentParser

/// Which configuration: of commands that need to know of a relay, and do not run one.
struct ConfigurationChoice: ParsableArguments {
    @Option(
        help: ArgumentHelp("The relay's configuration file.", valueName: "file"),
        completion: .file(extensions: ["yaml", "yml"]))
    var config: String?

    @Option(
        help: ArgumentHelp("development or production.", valueName: "name"),
        completion: .list(["development", "production"]))
    var environment: String?

    var flags: [ConfigurationFlag] {
        environment.map { [ConfigurationFlag("environment", $0, name: "--environment")] } ?? []
    }
}

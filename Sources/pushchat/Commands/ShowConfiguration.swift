import ArgumentParser

/// `pushchat config`
struct ShowConfiguration: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config",
        abstract: "Show every setting in force and where it came from; secrets are hidden.")

    @OptionGroup var options: ConfigurationOptions

    @Flag(help: "As JSON.")
    var json = false

    @Flag(help: "The table of all settings, as Markdown.")
    var reference = false

    func run() throws {
        if reference {
            print(SettingsTable.markdown())
            return
        }
        let configuration = try options.load()
        print(json ? try configuration.describeAsJSON() : configuration.describeAsText())
    }
}

import ArgumentParser
import ChatDomain

/// `pushchat config`
struct ShowConfiguration: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config",
        abstract: "Show every setting in force and its source, without secrets.")

    @OptionGroup var options: ConfigurationOptions
    @Flag(help: "As JSON.") var json = false
    @Flag(help: "The table of all settings, as Markdown.") var reference = false

    func run() throws {
        if reference {
            print(SettingsTable.markdown())
            return
        }
        let settings = try options.load().describe()
        if json {
            Output.print(json: .array(settings.map(\.json)))
        } else {
            var table = OutputTable(SettingReport.header, inColumns: true)
            for setting in settings { table.add(setting.row) }
            table.end()
        }
    }
}

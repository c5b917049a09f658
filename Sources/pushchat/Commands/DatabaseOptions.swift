import ArgumentParser
import Foundation

/// Which database: of commands that work on the file itself, beside a running relay or without one.
struct DatabaseOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("The database file; unless given, as the configuration says it.", valueName: "file"),
        completion: .file(extensions: ["db"]))
    var database: String?

    @OptionGroup var source: ConfigurationChoice

    /// Where `pushchat dev` keeps it.
    private static let ofDev = ".pushchat/pushchat.db"

    /// - Throws: ``Failure``.
    func path() throws -> String {
        let flags = source.flags + (database.map { [ConfigurationFlag("database.path", $0, name: "--database")] } ?? [])
        let configuration = try Configuration.loaded(ConfigurationSources(file: source.config, flags: flags))
        let path = configuration.database.path
        let isSaid = configuration.file != nil || configuration.origins[SettingKey(name: "database.path")] != nil
        if !isSaid, access(path, F_OK) != 0, access(Self.ofDev, F_OK) == 0 {
            Output.note("using \(Self.ofDev), of pushchat dev")
            return FilePath.absolute(Self.ofDev, in: FileManager.default.currentDirectoryPath)
        }
        return path
    }
}

import ArgumentParser
import Foundation

/// Which database: of commands that work on the file itself, beside a running relay or without one.
struct DatabaseOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("The database file; unless given, as the configuration says it.", valueName: "file"),
        completion: .file(extensions: ["db"]))
    var database: String?

    @Option(
        help: ArgumentHelp("The relay's configuration file.", valueName: "file"),
        completion: .file(extensions: ["yaml", "yml"]))
    var config: String?

    @Option(
        help: ArgumentHelp("development or production.", valueName: "name"),
        completion: .list(["development", "production"]))
    var environment: String?

    /// Where `pushchat dev` keeps it.
    private static let ofDev = ".pushchat/pushchat.db"

    /// - Throws: ``Failure``.
    func path() throws -> String {
        let flags = [
            environment.map { ConfigurationFlag("environment", $0, name: "--environment") },
            database.map { ConfigurationFlag("database.path", $0, name: "--database") },
        ].compactMap { $0 }
        let configuration = try Configuration.loaded(ConfigurationSources(file: config, flags: flags))
        let path = configuration.database.path
        let isSaid = configuration.file != nil || configuration.origins[SettingKey(name: "database.path")] != nil
        if !isSaid, access(path, F_OK) != 0, access(Self.ofDev, F_OK) == 0 {
            Output.note("using \(Self.ofDev), of pushchat dev")
            return FilePath.absolute(Self.ofDev, in: FileManager.default.currentDirectoryPath)
        }
        return path
    }
}

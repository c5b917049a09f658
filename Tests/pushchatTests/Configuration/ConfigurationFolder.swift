import Foundation

@testable import pushchat

/// A temporary folder to read a configuration from. It is removed with this object.
final class ConfigurationFolder {
    let path: String

    init() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("pushchat-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        path = folder.path
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    @discardableResult
    func write(_ text: String, to name: String) throws -> String {
        try write(Array(text.utf8), to: name)
    }

    @discardableResult
    func write(_ bytes: [UInt8], to name: String) throws -> String {
        let file = URL(fileURLWithPath: path).appendingPathComponent(name)
        try FileManager.default.createDirectory(
            at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data(bytes).write(to: file)
        return file.path
    }

    /// Loads a configuration with this folder as the working directory. It reads nothing else of the machine.
    func load(
        _ yaml: String? = nil, variables: [String: String] = [:], flags: [ConfigurationFlag] = [], file: String? = nil
    ) throws -> Configuration {
        if let yaml { try write(yaml, to: "pushchat.yaml") }
        return try Configuration.load(
            ConfigurationSources(
                file: file, flags: flags, variables: variables, workingDirectory: path, searched: ["pushchat.yaml"]))
    }

    /// The lines of the error. Empty if there was no error.
    func problems(
        _ yaml: String? = nil, variables: [String: String] = [:], flags: [ConfigurationFlag] = [], file: String? = nil
    ) throws -> [String] {
        do {
            _ = try load(yaml, variables: variables, flags: flags, file: file)
            return []
        } catch let error as ConfigurationError {
            return error.problems.map(\.description)
        }
    }
}

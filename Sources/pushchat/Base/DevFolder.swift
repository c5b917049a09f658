import ChatStore
import Foundation

/// The files of `pushchat dev` that other commands look for in the working directory.
enum DevFolder {
    /// The folder unless `--directory` names another one.
    static let standard = ".pushchat"
    static let database = database(in: standard)

    static func database(in folder: String) -> String { folder + "/pushchat.db" }

    /// The file with the relay's URL. It exists while the relay listens.
    static func addressFile(in folder: String) -> String { folder + "/address" }

    /// The URL of the relay that `pushchat dev` runs in the working directory. `nil` if none runs there: a killed one
    /// leaves its file.
    static var address: String? {
        guard let text = try? String(contentsOfFile: addressFile(in: standard), encoding: .utf8),
            (try? DatabaseLock.holder(of: database)) != nil
        else { return nil }
        return text.trimmingCharacters(in: .whitespacesAndNewlines)
    }
}

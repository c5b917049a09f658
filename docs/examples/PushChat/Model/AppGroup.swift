import Foundation
import PushChatKit

/// The data that the app and its extension share. The values come from `Settings.xcconfig`, by way of `Info.plist`.
struct AppGroup: Sendable {
    /// The relay's address.
    let relay: URL
    private let folder: URL

    /// `nil` if a setting is missing or wrong, or if the entitlements do not name the group.
    init?(_ bundle: Bundle) {
        guard let relay = (bundle.object(forInfoDictionaryKey: "RelayURL") as? String).flatMap(URL.init(string:)),
            let group = bundle.object(forInfoDictionaryKey: "AppGroup") as? String,
            let folder = Self.folder(of: group)
        else { return nil }
        self.init(relay: relay, folder: folder)
    }

    init(relay: URL, folder: URL) {
        self.relay = relay
        self.folder = folder
    }

    /// The room, and the messages that wait for the relay.
    var storage: FileStorage { FileStorage(url: folder.appendingPathComponent("room.json")) }
    /// The messages that the app shows.
    var messages: MessageFile { MessageFile(url: folder.appendingPathComponent("messages.json")) }

    /// Forgets the room.
    func clear() {
        for url in [storage.url, messages.url] { try? FileManager.default.removeItem(at: url) }
    }

    private static func folder(of group: String) -> URL? {
        #if canImport(Darwin)
        FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: group)
        #else
        FileManager.default.temporaryDirectory.appendingPathComponent(group)
        #endif
    }
}

/// The newest messages of the room, in a file.
struct MessageFile: Sendable {
    static let limit = 500

    let url: URL

    func load() -> [ChatMessage] {
        (try? JSONDecoder().decode([ChatMessage].self, from: Data(contentsOf: url))) ?? []
    }

    func save(_ messages: [ChatMessage]) throws {
        try JSONEncoder().encode(Array(messages.suffix(Self.limit))).write(to: url, options: .atomic)
    }
}

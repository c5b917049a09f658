public import Foundation

/// Keeps the state of a room between runs of the app.
public protocol ChatStorage: Sendable {
    /// Returns what was saved last. `nil` if nothing was saved.
    func load() async throws -> Data?
    /// Replaces the saved state. When the call returns, the state survives the end of the process.
    func save(_ data: Data) async throws
}

/// Keeps the state in a file, which the app should exclude from backups of other devices.
public struct FileStorage: ChatStorage {
    public let url: URL

    /// - Parameter url: The file. Its folder must exist.
    public init(url: URL) {
        self.url = url
    }

    public func load() async throws -> Data? {
        do {
            return try Data(contentsOf: url)
        } catch CocoaError.fileReadNoSuchFile {
            return nil
        }
    }

    public func save(_ data: Data) async throws {
        #if os(iOS)
        // The app may run in the background before the user has unlocked the phone for the first time.
        try data.write(to: url, options: [.atomic, .completeFileProtectionUntilFirstUserAuthentication])
        #else
        try data.write(to: url, options: .atomic)
        #endif
    }
}

/// Keeps the state in memory, for previews and tests.
public actor MemoryStorage: ChatStorage {
    private var data: Data?

    public init(_ data: Data? = nil) {
        self.data = data
    }

    public func load() -> Data? { data }

    public func save(_ data: Data) { self.data = data }
}

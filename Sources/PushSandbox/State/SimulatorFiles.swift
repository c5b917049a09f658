import Foundation
import Logging
import PushWire

/// Writes each accepted push of an app into a file that `xcrun simctl push DEVICE FILE` delivers to a simulator.
///
/// The inbox's ids are the names of the files. They start at 1 with each start of the sandbox, so the files of an
/// earlier run are removed first.
struct SimulatorFiles: Sendable {
    /// The number of newest files that stay in the folder.
    static let limit = 100
    /// The time until the next look at the inbox, if it cannot be awaited.
    private static let pause = Duration.seconds(1)

    let folder: URL
    private let logger: Logger

    /// Creates the folder, or removes the files of an earlier run from it.
    ///
    /// - Throws: ``SandboxError`` if the folder cannot be used.
    init(folder: String, logger: Logger) throws(SandboxError) {
        self.folder = URL(filePath: folder, directoryHint: .isDirectory)
        self.logger = logger
        let files = FileManager.default
        do {
            try files.createDirectory(at: self.folder, withIntermediateDirectories: true)
            for name in try files.contentsOfDirectory(atPath: folder)
            where name.wholeMatch(of: /push-\d{9}\.apns/) != nil {
                try files.removeItem(at: self.folder.appending(path: name))
            }
        } catch {
            throw .simulatorFolder(path: folder, reason: error.localizedDescription)
        }
    }

    /// Writes the pushes of an inbox until the task is cancelled.
    func follow(_ state: SharedState) async throws {
        let accepted = InboxFilter(answer: InboxEntry.Response.accepted.name)
        var (seen, names) = (0, [String]())
        while !Task.isCancelled {
            let (entries, next) = state.withLock { [seen] in
                $0.inbox.page(since: seen, filter: accepted, limit: Self.limit)
            }
            seen = next
            for entry in entries {
                guard let content = Self.content(of: entry) else { continue }
                let digits = String(entry.id)
                names.append("push-" + String(repeating: "0", count: max(0, 9 - digits.count)) + digits + ".apns")
                write(content, to: names.last ?? "")
            }
            while names.count > Self.limit { remove(names.removeFirst()) }
            guard entries.count < Self.limit else { continue }
            do {
                try await state.wait(for: 1, since: seen, filter: accepted)
            } catch {
                // Many clients wait for notifications. Look again soon.
                try await Task.sleep(for: Self.pause)
            }
        }
    }

    /// Returns the payload with the name of the app. `nil` for pushes that a simulator cannot show: messages to
    /// browsers and Android phones, broadcasts, pushes of other types than `alert` and `background`, and payloads other
    /// than a JSON object.
    static func content(of entry: InboxEntry) -> String? {
        guard entry.details.isForSimulator, let topic = entry.topic,
            (try? JSONSerialization.jsonObject(with: Data(entry.payload))) is [String: Any],
            let start = entry.payload.firstIndex(of: UInt8(ascii: "{"))
        else { return nil }
        let rest = String(decoding: entry.payload[(start + 1)...], as: UTF8.self)
        let isEmpty = rest.first { !$0.isWhitespace } == "}"
        guard let name = try? JSONEncoder().encode(topic) else { return nil }
        return #"{"Simulator Target Bundle":"# + String(decoding: name, as: UTF8.self) + (isEmpty ? "" : ",") + rest
    }

    private func write(_ content: String, to name: String) {
        do {
            // A program that watches the folder never sees a part of a file.
            try Data(content.utf8).write(to: folder.appending(path: name), options: .atomic)
        } catch {
            logger.warning("Cannot write a file for the simulator", metadata: ["file": "\(name)", "error": "\(error)"])
        }
    }

    private func remove(_ name: String) {
        try? FileManager.default.removeItem(at: folder.appending(path: name))
    }
}

import Foundation
import PushChatKit
import PushChatNotificationService

/// A member of a room, outside the relay's package. It prints the events of the room, and posts each line of its input.
/// Arguments: the relay's URL, the file of its state, and at the first start `join`. With `notify ID` instead, it prints
/// the notification of a message, as an extension completes it.
@main
struct App {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count > 2, let relay = URL(string: arguments[1]) else { return say("usage: URL FILE [join]") }
        let (api, storage) = (PushChatAPI(url: relay), FileStorage(url: URL(filePath: arguments[2])))
        if arguments.contains("notify") {
            return await notify(NotificationCompleter(api: api, storages: [storage]), Int64(arguments[4]))
        }
        let room = try await ChatRoom.open("kitchen", as: "Ann", api: api, storage: storage)
        if arguments.contains("join") {
            try await room.join()
            say("joined \(await room.member.text)")
        }
        // Blocks a separate thread, because a read of standard input cannot be cancelled.
        let lines = AsyncStream<String> { lines in
            Thread.detachNewThread {
                while let line = readLine() { lines.yield(line) }
                lines.finish()
            }
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await room.run() }
            group.addTask {
                for await line in lines {
                    try await room.post(line)
                    say("waiting \(line)")
                }
            }
            for try await event in room.events { show(event) }
            try await group.waitForAll()
        }
    }

    private static func notify(_ completer: NotificationCompleter, _ message: Int64?) async {
        let (contents, delivered) = AsyncStream.makeStream(of: PushContent.self)
        let delivery = completer.start(PushContent(body: "Bob: …", threadID: "room"), PushDetails(message: message)) {
            delivered.yield($0)
            delivered.finish()
        }
        for await content in contents {
            say("\(content.title): \(content.body), badge \(content.badge ?? 0), from \(content.sender?.name ?? "")")
        }
        delivery.expire()
    }

    private static func show(_ event: ChatEvent) {
        switch event {
        case .message(let message): say("message \(message.id) \(message.text)")
        case .sent(let message): say("sent \(message.text)")
        case .rejected(let message, let rejection): say("rejected \(message.text): \(rejection.message)")
        case .disconnected: say("disconnected")
        case .connected: say("connected")
        case .databaseReplaced: say("database replaced")
        default: break
        }
    }

    /// Unlike `print`, writes at once if standard output is a file.
    private static func say(_ line: String) {
        FileHandle.standardOutput.write(Data((line + "\n").utf8))
    }
}

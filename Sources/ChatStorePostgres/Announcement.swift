#if PostgreSQL
import Foundation
import Synchronization

/// What a commit brought, for whoever waits for it in any relay.
struct Announcement: Sendable, Hashable {
    /// Somebody missed something: look at all.
    var everything = false
    /// There may be due pushes of these apps.
    var apps: Set<String> = []
    /// Rooms with new messages.
    var messages: Set<String> = []
    /// Rooms that somebody has entered or left.
    var memberships: Set<String> = []
    /// Who has entered or left; of them those who did not leave by themselves; rooms whose members were all removed.
    var members: Set<String> = []
    var removed: Set<String> = []
    var closed: Set<String> = []
    /// Messages that were deleted, by their rooms.
    var deleted: [String: [Int64]] = [:]
    /// Rooms whose members have fetched something.
    var read: Set<String> = []
    /// Background work was written down.
    var jobs = false
    /// An API token was revoked.
    var tokens = false

    static let everything = {
        var announcement = Announcement()
        announcement.everything = true
        return announcement
    }()

    var isEmpty: Bool { self == Announcement() }

    /// The same in two parts of about the same size; nil where there is nothing to divide.
    fileprivate var halves: [Announcement]? {
        var (first, second) = (self, self)
        var isDivided = false
        for path in [\Announcement.apps, \.messages, \.memberships, \.members, \.removed, \.closed, \.read] {
            let names = Array(self[keyPath: path])
            isDivided = isDivided || names.count > 1
            first[keyPath: path] = Set(names.prefix(names.count / 2))
            second[keyPath: path] = Set(names.dropFirst(names.count / 2))
        }
        let rooms = Array(deleted.keys)
        isDivided = isDivided || rooms.count > 1
        let firstRooms = Set(rooms.prefix(rooms.count / 2))
        first.deleted = deleted.filter { firstRooms.contains($0.key) }
        second.deleted = deleted.filter { !firstRooms.contains($0.key) }
        return isDivided ? [first, second] : nil
    }
}

/// How announcements travel: by NOTIFY at the end of a transaction, in a channel that names the schema.
struct AnnouncementChannel: Sendable {
    static let sql = "SELECT pg_notify($1::text, $2::text)"
    /// The server takes less than 8000 bytes.
    static let longestPayload = 7000
    /// In which one transaction's announcement travels; with more it is ``Announcement/everything``.
    static let mostPayloads = 8

    /// Tells one's own from others': who sent it has told its listeners already.
    private final class Sender: Sendable {
        let name = Mutex(Sender.new)

        static var new: String { String(UInt64.random(in: .min ... .max), radix: 36) }
    }

    let name: String
    private let sender = Sender()

    init(schema: String) {
        // The server takes less than 64 bytes.
        name = "pushchat_" + String(schema.unicodeScalars.prefix(50).map { $0.isASCII ? Character($0) : "_" })
    }

    /// What was sent before is another's from now on: nobody was told of a commit that is in doubt.
    func forgetOwn() { sender.name.withLock { $0 = Sender.new } }

    /// Of ``sql``, for each time that it is to be run.
    func values(_ announcement: Announcement) -> [[PostgresValue]] {
        var (payloads, rest) = ([String](), [announcement])
        while let next = rest.popLast() {
            let text = payload(next)
            if text.utf8.count <= Self.longestPayload {
                payloads.append(text)
            } else {
                rest += next.halves ?? [.everything]
            }
            guard payloads.count + rest.count <= Self.mostPayloads else {
                payloads = [payload(.everything)]
                break
            }
        }
        return payloads.map { [.text(name), .text($0)] }
    }

    private struct Payload: Codable {
        var from: String
        var all: Bool?
        var apps: Set<String>?
        var messages: Set<String>?
        var memberships: Set<String>?
        var members: Set<String>?
        var removed: Set<String>?
        var closed: Set<String>?
        var deleted: [String: [Int64]]?
        var read: Set<String>?
        var jobs: Bool?
        var tokens: Bool?
    }

    func payload(_ announcement: Announcement) -> String {
        func named<Names: Collection>(_ names: Names) -> Names? { names.isEmpty ? nil : names }
        let own = sender.name.withLock { $0 }
        let payload = Payload(
            from: own, all: announcement.everything ? true : nil, apps: named(announcement.apps),
            messages: named(announcement.messages), memberships: named(announcement.memberships),
            members: named(announcement.members), removed: named(announcement.removed),
            closed: named(announcement.closed), deleted: named(announcement.deleted), read: named(announcement.read),
            jobs: announcement.jobs ? true : nil, tokens: announcement.tokens ? true : nil)
        // Strings, numbers and flags always can be.
        return (try? JSONEncoder().encode(payload)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
    }

    /// Reads a payload; ``Announcement/everything`` where it is not one. Nil of one's own.
    func announcement(_ payload: String) -> Announcement? {
        guard let read = try? JSONDecoder().decode(Payload.self, from: Data(payload.utf8)) else { return .everything }
        guard read.from != sender.name.withLock({ $0 }) else { return nil }
        var announcement = Announcement()
        announcement.everything = read.all ?? false
        announcement.apps = read.apps ?? []
        announcement.messages = read.messages ?? []
        announcement.memberships = read.memberships ?? []
        announcement.members = read.members ?? []
        announcement.removed = read.removed ?? []
        announcement.closed = read.closed ?? []
        announcement.deleted = read.deleted ?? [:]
        announcement.read = read.read ?? []
        announcement.jobs = read.jobs ?? false
        announcement.tokens = read.tokens ?? false
        return announcement
    }
}
#endif

import ChatSQL
import Crypto
import Foundation
import Synchronization

/// Sends announcements by NOTIFY at the end of a transaction, on a channel that names the schema.
///
/// PostgreSQL lets every role that may connect listen on any channel and notify on it. An announcement is therefore
/// encrypted and authenticated. Only roles that can read the relay's tables can have the key:
///
///     payload = "v2" "." sender "." base64(nonce (12), AES-256-GCM of the JSON, tag (16))
///     key     = HKDF-SHA256(queue_state.channel_key, salt: sender, info: "pushchat announcement" channel)
///
/// The sender is a random name of a process, so that no key encrypts more announcements than random nonces are safe
/// for. Older relays send plain JSON. Old and new relays treat each other's payloads as ``Announcement/everything``.
struct AnnouncementChannel: Sendable {
    static let sql = "SELECT pg_notify($1::text, $2::text)"
    /// PostgreSQL accepts less than 8000 bytes.
    static let longestPayload = 7000
    /// The maximum number of payloads for one transaction's announcement. With more, it is ``Announcement/everything``.
    static let mostPayloads = 10
    private static let version = "v2"

    /// Distinguishes this process's payloads from others'. The process sends its own announcements to its listeners
    /// directly.
    private final class Sender: Sendable {
        struct State {
            let name: String
            let key: SymmetricKey
        }

        private let makeKey: @Sendable (_ sender: String) -> SymmetricKey
        private let state: Mutex<State>

        init(_ makeKey: @escaping @Sendable (_ sender: String) -> SymmetricKey) {
            self.makeKey = makeKey
            state = Mutex(Self.new(makeKey))
        }

        var current: State { state.withLock { $0 } }

        func change() { state.withLock { $0 = Self.new(makeKey) } }

        private static func new(_ makeKey: (_ sender: String) -> SymmetricKey) -> State {
            let name = String(UInt64.random(in: .min ... .max), radix: 36)
            return State(name: name, key: makeKey(name))
        }
    }

    let name: String
    private let key: @Sendable (_ sender: String) -> SymmetricKey
    private let sender: Sender

    /// - Parameter secret: `queue_state.channel_key`.
    init(schema: String, secret: [UInt8]) {
        // PostgreSQL accepts less than 64 bytes.
        let name = "pushchat_" + String(schema.unicodeScalars.prefix(50).map { $0.isASCII ? Character($0) : "_" })
        let secret = SymmetricKey(data: secret)
        let info = Data("pushchat announcement \(name)".utf8)
        key = { sender in
            HKDF<SHA256>.deriveKey(
                inputKeyMaterial: secret, salt: Data(sender.utf8), info: info, outputByteCount: 32)
        }
        self.name = name
        sender = Sender(key)
    }

    /// Treats earlier payloads as another process's from now on: the listeners were not notified of a commit that is in
    /// doubt.
    func forgetOwn() { sender.change() }

    /// The parameters of ``sql``, one list per execution.
    func values(_ announcement: Announcement) -> [[SQLValue]] {
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
        var all: Bool?
        var apps: Set<String>?
        var messages: Set<String>?
        var topics: Set<String>?
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
        let payload = Payload(
            all: announcement.everything ? true : nil, apps: named(announcement.apps),
            messages: named(announcement.messages), topics: named(announcement.topics),
            memberships: named(announcement.memberships), members: named(announcement.members),
            removed: named(announcement.removed), closed: named(announcement.closed),
            deleted: named(announcement.deleted), read: named(announcement.read),
            jobs: announcement.jobs ? true : nil, tokens: announcement.tokens ? true : nil)
        let own = sender.current
        // Cannot fail: strings, numbers and flags can always be encoded, and a key of 256 bits is always valid.
        guard let text = try? JSONEncoder().encode(payload),
            let box = try? AES.GCM.seal(text, using: own.key).combined
        else { return "" }
        return "\(Self.version).\(own.name).\(box.base64EncodedString())"
    }

    /// Reads a payload. `nil` for this process's own; ``Announcement/everything`` for a payload that no relay of this
    /// version sent.
    func announcement(_ payload: String) -> Announcement? {
        let parts = payload.split(separator: ".", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, parts[0] == Self.version else { return .everything }
        if parts[1] == sender.current.name { return nil }
        guard let sealed = Data(base64Encoded: String(parts[2])), let box = try? AES.GCM.SealedBox(combined: sealed),
            let text = try? AES.GCM.open(box, using: key(String(parts[1]))),
            let read = try? JSONDecoder().decode(Payload.self, from: text)
        else { return .everything }
        var announcement = Announcement()
        announcement.everything = read.all ?? false
        announcement.apps = read.apps ?? []
        announcement.messages = read.messages ?? []
        announcement.topics = read.topics ?? []
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

extension Announcement {
    /// The same announcement in two parts of about the same size. `nil` if it cannot be divided.
    fileprivate var halves: [Announcement]? {
        var (first, second) = (self, self)
        var isDivided = false
        for path in [
            \Announcement.apps, \.messages, \.topics, \.memberships, \.members, \.removed, \.closed, \.read,
        ] {
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

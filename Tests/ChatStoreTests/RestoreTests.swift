import ChatDomain
import Foundation
import GRDB
import Testing

@testable import ChatStore
@testable import TestStores

/// The records that a restore takes over from the replaced database. ``DatabaseCopyTests`` tests the files.
@Suite("Restore: revoked tokens and bans") struct RestoreTests {
    private typealias Item = CarriedOver.Item

    private let fixture: StoreFixture
    private var copy: String { fixture.directory.path + "/copy.db" }

    init() throws {
        fixture = try StoreFixture()
    }

    private func token(_ name: String, _ scopes: String = #"["post","read"]"#) throws {
        _ = try fixture.query(
            "INSERT INTO api_tokens (name, hash, scopes) VALUES (?, randomblob(32), ?)", [name, scopes])
    }

    private func ban(_ nickname: String?, room: String? = "room", member: Int? = nil, until: String? = nil) throws {
        let udid = try member.map { try StoreFixture.member($0).text }
        _ = try fixture.query(
            "INSERT INTO bans (secret_code, udid, nickname, time_ends) VALUES (?, ?, ?, ?)",
            [room, udid, nickname, until])
    }

    private func names() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: fixture.directory.path)
    }

    private func texts(_ sql: String) throws -> [String] { try fixture.query(sql).map { $0[0] } }

    private func refuses(_ part: String, _ copy: String? = nil) throws {
        #expect {
            _ = try DatabaseCopy.restore(copy ?? self.copy, to: fixture.path)
        } throws: {
            "\($0)".contains(part) && "\($0)".contains("--without-carrying")
        }
    }

    private func damage() throws {
        try fixture.connection().writeWithoutTransaction { _ = try $0.checkpoint(.truncate) }
        let handle = try #require(FileHandle(forWritingAtPath: fixture.path))
        try handle.seek(toOffset: 4096)
        try handle.write(contentsOf: Data(repeating: 0xFF, count: 4096 * 100))
        try handle.close()
        for name in ["-wal", "-shm"] { unlink(fixture.path + name) }
    }

    @Test("A revoked token stays revoked, a narrowed one stays narrow, and newer tokens are named")
    func tokens() throws {
        try fixture.open().close()
        for name in ["kept", "revoked", "narrowed", "recreated"] { try token(name) }
        try DatabaseCopy.make(of: fixture.path, to: copy)
        _ = try fixture.query("DELETE FROM api_tokens WHERE name IN ('revoked', 'recreated')")
        _ = try fixture.query(
            """
            UPDATE api_tokens SET scopes = '["read"]', room = 'room', time_expires = '2030-01-01 00:00:00.000'
            WHERE name = 'narrowed'
            """)
        _ = try fixture.query("UPDATE api_tokens SET time_used = '2029-01-01 00:00:00.000' WHERE name = 'kept'")
        for name in ["recreated", "newer"] { try token(name) }

        let restored = try DatabaseCopy.restore(copy, to: fixture.path)
        let carried = try #require(restored.carried)
        #expect(carried.revoked == [Item(id: 2, name: "revoked"), Item(id: 4, name: "recreated")])
        #expect(carried.changed == [Item(id: 3, name: "narrowed")])
        #expect(carried.gone == [Item(id: 5, name: "recreated"), Item(id: 6, name: "newer")])
        #expect(carried.bans.isEmpty && carried.lifted.isEmpty && carried.removedMembers == 0)
        #expect(!restored.mayRepeatNumbers)
        #expect(
            try texts("SELECT name || scopes || coalesce(room || time_expires || '', '') FROM api_tokens ORDER BY 1")
                == [#"kept["post","read"]"#, #"narrowed["read"]room2030-01-01 00:00:00.000"#])
        #expect(try fixture.value("SELECT time_used IS NOT NULL FROM api_tokens WHERE name = 'kept'") == 1)
        // The ids of revoked and newer tokens are not reused.
        try token("next")
        #expect(try fixture.value("SELECT max(token_id) FROM api_tokens") == 7)
    }

    @Test("A credential that was revoked or whose owner is gone stays invalid; newer credentials are named")
    func credentials() async throws {
        var store = try fixture.open()
        var secrets: [String: String] = [:]
        func create(_ name: String, _ owner: CredentialOwner) async throws {
            secrets[name] = try await store.clients.createCredential(AccessToken.name(name), for: owner).secret
        }
        func valid() async throws -> [String] {
            var valid: [String] = []
            for (name, secret) in secrets where try await store.clients.credential(of: secret) != nil {
                valid.append(name)
            }
            return valid.sorted()
        }
        for number in 1...4 { try await store.rooms.join(StoreFixture.join(number)) }
        for (number, name) in ["kept", "left", "deleted", "banned"].enumerated() {
            try await create(name, .member(StoreFixture.member(number + 1)))
        }
        try await create("revoked", .member(StoreFixture.member(1)))
        let token = try await store.tokens.create(
            AccessToken.name("t"), AccessGrant(scopes: [.read]), expiresAt: nil
        ).token
        let other = try await store.tokens.create(
            AccessToken.name("o"), AccessGrant(scopes: [.read]), expiresAt: nil
        ).token
        try await create("of a revoked token", .token(token.id))
        try await create("of a token", .token(other.id))
        try store.close()
        try DatabaseCopy.make(of: fixture.path, to: copy)

        store = try fixture.open()
        _ = try await store.rooms.leave(StoreFixture.member(2))
        try await store.rooms.join(StoreFixture.join(2))
        try await create("newer", .member(StoreFixture.member(2)))
        #expect(try await store.clients.revokeCredential(5, of: nil)?.text == "revoked")
        _ = try await store.tokens.revoke(token.id, by: .commandLine)
        store.clients.usedCredential(1, from: "192.0.2.1")
        try await store.clients.flush()
        _ = try await store.moderation.ban(
            BanRequest(.udid(StoreFixture.member(4), room: nil)), by: Moderator(name: "admin", address: nil))
        try store.close()
        // A script that does not know the foreign keys.
        try await fixture.connection().writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA foreign_keys = OFF; DELETE FROM active_users WHERE nickname = 'name3'")
        }
        let carried = try #require(try DatabaseCopy.restore(copy, to: fixture.path).carried)
        #expect(
            carried.endedCredentials == [
                Item(id: 2, name: "left"), Item(id: 3, name: "deleted"), Item(id: 4, name: "banned"),
                Item(id: 5, name: "revoked"), Item(id: 6, name: "of a revoked token"),
            ])
        #expect(carried.goneCredentials == [Item(id: 8, name: "newer")])
        #expect(carried.revoked == [Item(id: 1, name: "t")])
        store = try fixture.open()
        #expect(try await valid() == ["kept", "of a token"])
        #expect(
            try await store.clients.credentials(of: .member(StoreFixture.member(1))).map(\.lastUsedFrom)
                == ["192.0.2.1"])
        // Ids of credentials are not reused: what an ended client has hidden is stored under its id.
        try await create("next", .member(StoreFixture.member(1)))
        #expect(try fixture.value("SELECT max(credential_id) FROM credentials") == 9)
        try store.close()
        // The way back. Also the row without an owner is gone.
        let back = try #require(try DatabaseCopy.restore(fixture.path + ".replaced-1", to: fixture.path).carried)
        #expect(
            back.endedCredentials.map(\.name) == ["deleted", "newer"] && back.goneCredentials.map(\.name) == ["next"])
    }

    @Test("Newer bans stay in force and their members are removed; lifted bans stay lifted")
    func bans() async throws {
        let store = try fixture.open()
        for number in 1...6 { try await store.ports.rooms.join(StoreFixture.join(number)) }
        for number in 7...8 { try await store.ports.rooms.join(StoreFixture.join(number, "closed")) }
        try await store.ports.rooms.join(StoreFixture.join(9, "other"))
        try store.close()
        try ban("lifted", member: 11)
        try ban("shortened", member: 12)
        try ban("the same", member: 13)
        try DatabaseCopy.make(of: fixture.path, to: copy)
        _ = try fixture.query("UPDATE bans SET time_ends = '2026-01-01 00:00:00.000' WHERE nickname = 'lifted'")
        _ = try fixture.query("UPDATE bans SET time_ends = '2098-01-01 00:00:00.000' WHERE nickname = 'shortened'")
        try ban("newer", member: 1)
        try ban("everywhere", room: nil, member: 9)
        try ban("over", member: 2, until: "2026-01-01 00:00:00.000")
        try ban("elsewhere", room: "nowhere", member: 3)
        try ban(nil, room: "closed")
        _ = try fixture.query(
            """
            INSERT INTO moderation (action, secret_code, subject, actor, device_token, last_push)
            VALUES ('ban', 'room', 'newer', 'admin', 'aa', 5)
            """)

        let carried = try #require(try DatabaseCopy.restore(copy, to: fixture.path).carried)
        #expect(
            carried.bans == [
                Item(id: 2, name: "shortened"), Item(id: 4, name: "newer"), Item(id: 5, name: "everywhere"),
                Item(id: 7, name: "elsewhere"), Item(id: 8, name: nil),
            ])
        #expect(carried.lifted == [Item(id: 1, name: "lifted")] && carried.incomplete.isEmpty)
        #expect(carried.removedMembers == 4)
        #expect(
            try texts("SELECT nickname FROM active_users ORDER BY member_id")
                == ["name2", "name3", "name4", "name5", "name6"])
        #expect(try fixture.value("SELECT count(*) FROM bans") == 8)
        #expect(try texts("SELECT subject FROM moderation") == ["newer"])
        #expect(try fixture.value("SELECT last_push FROM moderation") == 5)
        // A second restore takes over the same records. A file that has them already takes over nothing.
        let again = try #require(try DatabaseCopy.restore(copy, to: fixture.path).carried)
        #expect(again.bans.count == 5 && again.removedMembers == 4)
        let same = try DatabaseCopy.restore(fixture.path + ".replaced-2", to: fixture.path)
        #expect(try #require(same.carried) == CarriedOver.nothing)

        // The relay enforces the bans.
        let reopened = try fixture.open()
        defer { try? reopened.close() }
        await #expect(throws: ChatError.self) { try await reopened.ports.rooms.join(StoreFixture.join(1)) }
        await #expect(throws: ChatError.self) { try await reopened.ports.rooms.join(StoreFixture.join(9)) }
        await #expect(throws: ChatError.self) { try await reopened.ports.rooms.join(StoreFixture.join(4, "closed")) }
        try await reopened.ports.rooms.join(StoreFixture.join(2))
        try await reopened.ports.rooms.join(StoreFixture.join(11))
    }

    @Test(
        "A restore holds scheduled messages that are due, in whatever state the replaced database is",
        arguments: ["whole", "damaged", "missing", "without carrying"])
    func scheduledMessages(database: String) async throws {
        var store = try fixture.open()
        let start = fixture.time.now
        for (text, minutes) in [("posted since", 1), ("due at the restore", 2), ("later", 3)] {
            let request = PostRequest(
                member: .administrator,
                program: PostRequest.Program(nickname: Nickname(stored: "admin"), room: SecretCode(stored: "room")),
                content: try MessageContent(parsing: text))
            let due = start + .seconds(60 * Int64(minutes))
            _ = try await store.changes.post(KeyedPost(request, notBefore: due))
        }
        try store.close()
        try DatabaseCopy.make(of: fixture.path, to: copy)
        store = try fixture.open()
        fixture.advance(.seconds(60))
        while try await store.changes.performDue() {}
        #expect(try texts("SELECT text FROM messages") == ["posted since"])
        try store.close()
        if database == "damaged" { try damage() }
        if database == "missing" { for suffix in ["", "-wal", "-shm"] { unlink(fixture.path + suffix) } }
        fixture.advance(.seconds(60))
        let restored = try DatabaseCopy.restore(
            copy, to: fixture.path, carrying: database == "whole", now: fixture.time.now)
        #expect(restored.held == 2)
        store = try fixture.open()
        fixture.advance(.seconds(3600))
        while try await store.changes.performDue() {}
        #expect(try texts("SELECT text FROM messages") == ["later"])
        let held = try await store.changes.scheduled(
            in: SecretCode(stored: "room"), author: nil, after: nil, limit: 9)
        #expect(held.items.map(\.content.text.text) == ["posted since", "due at the restore"])
        #expect(held.items.map(\.isHeld) == [true, true])
        try store.close()
        #expect(try DatabaseFile(path: fixture.path).inspect().scheduled.held == 2)
    }

    @Test(
        "Events that waited in an old copy are listed, not sent, and its webhooks are paused, also those deleted since")
    func webhooks() async throws {
        var store = try fixture.open()
        let moderator = Moderator(name: "ann", address: nil)
        var ids: [Int64] = []
        for name in ["kept", "deleted"] {
            let settings = try WebhookSettings(url: "https://example.org/\(name)", events: [.joined])
            ids.append(try await store.webhooks.create(settings, secret: .random(), by: moderator).id)
        }
        try await store.rooms.join(StoreFixture.join(1))
        try store.close()
        try DatabaseCopy.make(of: fixture.path, to: copy)
        store = try fixture.open()
        #expect(try await store.webhooks.delete(ids[1], by: moderator))
        #expect(try await store.webhooks.lease().count == 1)
        try store.close()
        // Longer than the retention.
        fixture.advance(.seconds(8 * 86_400))
        _ = try DatabaseCopy.restore(copy, to: fixture.path, now: fixture.time.now)
        store = try fixture.open()
        _ = try await store.upkeep.prepare()
        try await store.rooms.join(StoreFixture.join(2))
        try await store.webhooks.dropExcess()
        _ = try await store.upkeep.applyRetention(RetentionAges(messages: .seconds(9e8), queue: .seconds(60)))
        #expect(try await store.webhooks.lease().isEmpty)
        for id in ids {
            let webhook = try #require(try await store.webhooks.webhook(id))
            #expect(webhook.state == .paused && webhook.reason == "restored from a copy")
            let events = try await store.webhooks.deliveries(of: id, in: nil, before: nil, limit: 9).items
            #expect(events.map(\.state) == [.waiting, .held])
        }
        // An operator resumes one of them, and asks for the event.
        let settings = try #require(try await store.webhooks.webhook(ids[0])).settings
        _ = try await store.webhooks.change(ids[0], to: WebhookEdit(settings: settings, state: .active), by: moderator)
        #expect(try await store.webhooks.redeliver(.all(.held), of: ids[0]) == 1)
        #expect(try await store.webhooks.lease().map(\.event.webhook) == [ids[0]])
        try store.close()
    }

    @Test("A missing, damaged or different database has nothing to carry over; restoring needs the option that says so")
    func impossible() throws {
        try fixture.open().close()
        try token("revoked")
        try DatabaseCopy.make(of: fixture.path, to: copy)
        _ = try fixture.query("DELETE FROM api_tokens")
        let suffixes = ["", "-wal", "-shm"]
        // The damaged file stays beside the restored one.
        try damage()
        #expect(FileManager.default.createFile(atPath: fixture.path + "-wal", contents: Data("log".utf8)))
        try refuses("cannot be read")
        #expect(try names().filter { $0.contains("replaced") || $0.contains("restoring") } == [])
        let damaged = try DatabaseCopy.restore(copy, to: fixture.path, carrying: false)
        #expect(damaged.replaced == fixture.path + ".replaced-1" && damaged.carried == nil && damaged.mayRepeatNumbers)
        #expect(try texts("SELECT name FROM api_tokens") == ["revoked"])

        for suffix in suffixes { unlink(fixture.path + suffix) }
        try refuses("does not exist")
        #expect(!FileManager.default.fileExists(atPath: fixture.path))
        #expect(try DatabaseCopy.restore(copy, to: fixture.path, carrying: false).replaced == nil)

        for suffix in suffixes { unlink(fixture.path + suffix) }
        try fixture.open().close()
        try refuses("another one")
        let other = try DatabaseCopy.restore(copy, to: fixture.path, carrying: false)
        #expect(other.replaced != nil && other.carried == nil && !other.mayRepeatNumbers)
    }

    @Test("Rows take over the columns that both schema versions have")
    func versions() throws {
        // A version that this program does not know, with a ban that only that version understands.
        try fixture.open().close()
        try token("revoked")
        try DatabaseCopy.make(of: fixture.path, to: copy)
        _ = try fixture.query("DELETE FROM api_tokens")
        _ = try fixture.query("ALTER TABLE bans ADD COLUMN flavour TEXT")
        _ = try fixture.query("ALTER TABLE api_tokens ADD COLUMN flavour TEXT")
        try ban("both", member: 1)
        try ban("with it", member: 2)
        try ban("only it")
        _ = try fixture.query("UPDATE bans SET flavour = 'sour' WHERE nickname <> 'both'")
        let carried = try #require(try DatabaseCopy.restore(copy, to: fixture.path).carried)
        #expect(carried.revoked == [Item(id: 1, name: "revoked")])
        #expect(carried.bans == [Item(id: 1, name: "both"), Item(id: 2, name: "with it")])
        #expect(carried.incomplete == [Item(id: 2, name: "with it"), Item(id: 3, name: "only it")])
        // The room is not closed.
        #expect(try texts("SELECT nickname FROM bans ORDER BY ban_id") == ["both", "with it"])
    }

    @Test("A copy without a table of bans is refused while bans are in force")
    func older() throws {
        try fixture.createFile(ofVersion: 3)
        try DatabaseCopy.make(of: fixture.path, to: copy)
        try fixture.open().close()
        try token("newer")
        _ = try fixture.query(
            "INSERT INTO credentials (name, hash, token) VALUES ('newer client', randomblob(32), 1)")
        try ban("banned", member: 1)
        try refuses("has no bans, and 1 are in force")
        #expect(try fixture.value("SELECT count(*) FROM bans") == 1)
        _ = try fixture.query("UPDATE bans SET time_ends = '2026-01-01 00:00:00.000'")
        let carried = try #require(try DatabaseCopy.restore(copy, to: fixture.path).carried)
        #expect(carried.gone == [Item(id: 1, name: "newer")])
        #expect(carried.goneCredentials == [Item(id: 1, name: "newer client")])
        #expect(try fixture.value("PRAGMA user_version") == 3)
    }
}

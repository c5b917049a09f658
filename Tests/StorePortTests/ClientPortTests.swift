import ChatDomain
import Testing

@testable import TestStores

/// Tests the port for clients of other servers over every store: credentials, aliases of rooms, hidden messages.
@Suite("Clients of other servers, in every store", .timeLimit(.minutes(2)))
struct ClientPortTests {
    private static let room = SecretCode(stored: "room")
    private static let moderator = Moderator(name: "admin", address: nil)

    private func name(_ text: String) throws -> Nickname { try Credential.name(text) }

    /// Creates a credential of a member, and returns its secret.
    private func create(of number: Int, _ text: String = "phone", in store: TestedStore) async throws -> String {
        try await store.stores.clients.createCredential(name(text), for: .member(StoreFixture.member(number))).secret
    }

    private func found(_ secret: String, in store: TestedStore) async throws -> Credential? {
        try await store.stores.clients.credential(of: secret)
    }

    private func token(
        _ text: String, in store: TestedStore, room: SecretCode? = nil, expiresIn: Duration? = nil
    ) async throws -> AccessToken {
        try await store.stores.tokens.create(
            AccessToken.name(text), AccessGrant(scopes: [.read], room: room),
            expiresAt: expiresIn.map { store.now() + $0 }
        ).token
    }

    private func post(_ texts: [String], by number: Int = 1, in store: TestedStore) async throws -> [MessageID] {
        var ids: [MessageID] = []
        for text in texts { ids.append(try await store.stores.rooms.post(StoreFixture.post(number, text)).message) }
        return ids
    }

    /// The texts of the messages that a client may read, the newest first.
    private func texts(
        _ client: String, room: SecretCode? = nil, after: MessageID = 0, before: MessageID? = nil, limit: Int = 100,
        in store: TestedStore
    ) async throws -> [String] {
        try await store.stores.clients.messages(
            ClientReading(room: room, after: after, client: client), before: before, limit: limit
        ).map(\.message.text)
    }

    // MARK: - Credentials

    @Test("A member's credential names the stay and the room", arguments: StoreKind.allCases)
    func ofMember(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        await #expect { try await create(of: 1, in: store) } throws: { ($0 as? ChatError)?.code == .notJoined }
        try await store.stores.rooms.join(StoreFixture.join(2))
        _ = try await post(["before"], by: 2, in: store)
        try await store.stores.rooms.join(StoreFixture.join(1))
        let member = try StoreFixture.member(1)
        let (credential, secret) = try await clients.createCredential(name("phone"), for: .member(member))
        #expect(secret.wholeMatch(of: #/pcc_[A-Za-z0-9_-]{43}/#) != nil)
        #expect(try await clients.credential(of: secret) == credential)
        #expect(try await clients.credential(of: secret.dropLast() + "!") == nil)
        guard case .member(let owner) = credential.owner else { throw ChatError.notJoined() }
        #expect(owner.member == member && owner.nickname.text == "name1" && owner.room == Self.room)
        #expect(try owner.id == Int64(store.value("SELECT member_id FROM active_users WHERE nickname = 'name1'")))
        #expect(try await owner.historyFrom == store.stores.feed.position(of: member).historyFrom)
        #expect(owner.historyFrom > 0)
        #expect(credential.createdAt == store.now() && credential.lastUsedAt == nil)
        #expect(try await clients.credentials(of: .member(member)) == [credential])
        #expect(try await clients.credentials(of: .member(StoreFixture.member(2))) == [])
        #expect(try store.value("SELECT count(*) FROM credentials WHERE length(hash) = 32") == 1)
    }

    @Test("A token's credential has the token's rights, and ends with it", arguments: StoreKind.allCases)
    func ofToken(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        await #expect { try await clients.createCredential(name("a"), for: .token(1)) } throws: {
            ($0 as? ChatError)?.code == .notFound
        }
        let (first, short) = (
            try await token("first", in: store, room: Self.room),
            try await token("short", in: store, expiresIn: .seconds(60))
        )
        let (credential, secret) = try await clients.createCredential(name("a"), for: .token(first.id))
        #expect(credential.owner == .token(first))
        #expect(try await clients.credential(of: secret) == credential)
        let other = try await clients.createCredential(name("b"), for: .token(short.id)).secret
        #expect(try await clients.credentials(of: .token(short.id)).map(\.name.text) == ["b"])
        store.advance(.seconds(59))
        #expect(try await found(other, in: store) != nil)
        store.advance(.seconds(1))
        #expect(try await found(other, in: store) == nil)
        await #expect { try await clients.createCredential(name("c"), for: .token(short.id)) } throws: {
            ($0 as? ChatError)?.code == .notFound
        }
        #expect(try await store.stores.tokens.revoke(first.id, by: .commandLine) == first.name)
        #expect(try await found(secret, in: store) == nil)
        #expect(try await clients.credentials(of: .token(first.id)) == [])
        #expect(try store.value("SELECT count(*) FROM credentials") == 1)
    }

    @Test("A member's credential ends some time after its user's last session", arguments: StoreKind.allCases)
    func sessions(kind: StoreKind) async throws {
        let lifetime = Duration.seconds(30 * 86_400)
        let store = try await kind.make(credentialLifetime: lifetime)
        let (clients, member) = (store.stores.clients, try StoreFixture.member(1))
        let (alice, bob) = (UserReference(stored: "alice"), UserReference(stored: "bob"))
        func sweep() async throws {
            _ = try await store.stores.upkeep.applyRetention(messages: lifetime * 100, queue: lifetime)
        }
        try await store.stores.rooms.join(StoreFixture.join(1))
        let token = try await token("t", in: store)
        let ofToken = try await clients.createCredential(name("t"), for: .token(token.id)).secret
        let (first, secret) = try await clients.createCredential(name("a"), for: .member(member), by: .session(alice))
        #expect(first.user == alice && first.sessionAt == store.now())
        store.advance(lifetime / 2)
        // An app that makes another credential does not prolong its own.
        let copy = try await clients.createCredential(name("b"), for: .member(member), by: .credential(first.id))
        #expect(copy.credential.user == alice && copy.credential.sessionAt == first.sessionAt)
        // Another user's session does not prolong it either.
        clients.hadSession(member, of: bob)
        try await store.flush()
        #expect(try await found(secret, in: store)?.sessionAt == first.sessionAt)
        clients.hadSession(member, of: alice)
        try await store.flush()
        #expect(try await found(secret, in: store)?.sessionAt == store.now())
        #expect(try await found(copy.secret, in: store)?.sessionAt == store.now())
        store.advance(lifetime - .seconds(1))
        try await sweep()
        #expect(try await found(secret, in: store) != nil)
        store.advance(.seconds(1))
        #expect(try await found(secret, in: store) == nil)
        // Once it has ended, a session does not bring it back.
        clients.hadSession(member, of: alice)
        try await store.flush()
        #expect(try await found(secret, in: store) == nil)
        // A longer lifetime does not bring it back either, because it is deleted. No call has asked for the other one.
        #expect(try await clients.credentials(of: .member(member)).map(\.id) == [copy.credential.id])
        try await sweep()
        #expect(try await clients.credentials(of: .member(member)).isEmpty)
        #expect(try await found(ofToken, in: store) != nil)
        await #expect {
            try await clients.createCredential(name("c"), for: .member(member), by: .credential(first.id))
        } throws: { ($0 as? ChatError)?.code == .notFound }
    }

    @Test("A credential from before sessions gets its member's user, or ends", arguments: StoreKind.allCases)
    func beforeSessions(kind: StoreKind) async throws {
        let lifetime = Duration.seconds(30 * 86_400)
        let store = try await kind.make(credentialLifetime: lifetime)
        let clients = store.stores.clients
        for number in 1...2 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        let (one, two) = (try await create(of: 1, in: store), try await create(of: 2, in: store))
        store.advance(lifetime * 2)
        #expect(try store.value(Credential.countWithoutUserSQL) == 2)
        #expect(try await found(one, in: store) != nil, "no app goes silent because of an upgrade")
        _ = try await store.stores.upkeep.applyRetention(messages: lifetime * 100, queue: lifetime)
        store.advance(lifetime / 2)
        clients.hadSession(try StoreFixture.member(1), of: UserReference(stored: "alice"))
        try await store.flush()
        #expect(try store.value(Credential.countWithoutUserSQL) == 1)
        store.advance(lifetime / 2)
        #expect(try await found(one, in: store)?.user == UserReference(stored: "alice"))
        #expect(try await found(two, in: store) == nil)
    }

    @Test("All credentials of a user end when the operator revokes the user", arguments: StoreKind.allCases)
    func ofUser(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        var secrets: [String] = []
        for (number, user) in [(1, "alice"), (2, "bob"), (3, "alice")] {
            try await store.stores.rooms.join(StoreFixture.join(number))
            secrets.append(
                try await clients.createCredential(
                    name("phone"), for: .member(StoreFixture.member(number)),
                    by: .session(UserReference(stored: user))
                ).secret)
        }
        #expect(try await clients.revokeCredentials(ofUser: UserReference(stored: "alice")) == 2)
        #expect(try await clients.revokeCredentials(ofUser: UserReference(stored: "alice")) == 0)
        for (secret, isValid) in zip(secrets, [false, true, false]) {
            #expect(try await (found(secret, in: store) != nil) == isValid)
        }
    }

    @Test(
        "Revoking a user ends also a credential that becomes the user's by a pending session",
        arguments: StoreKind.allCases)
    func pendingSession(kind: StoreKind) async throws {
        let store = try await kind.make(credentialLifetime: .seconds(86_400))
        let (clients, alice) = (store.stores.clients, UserReference(stored: "alice"))
        try await store.stores.rooms.join(StoreFixture.join(1))
        let secret = try await create(of: 1, in: store)
        clients.hadSession(try StoreFixture.member(1), of: alice)
        #expect(try await clients.revokeCredentials(ofUser: alice) == 1)
        #expect(try await found(secret, in: store) == nil)
    }

    @Test("A member and a token have limited numbers of credentials", arguments: StoreKind.allCases)
    func limits(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        for number in 1...2 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        let token = try await token("t", in: store)
        let member = CredentialOwner.member(try StoreFixture.member(1))
        for (owner, limit) in [(member, Credential.perMember), (.token(token.id), Credential.perToken)] {
            // Also if they are created at the same time.
            let created = await withTaskGroup(of: ChatError.Code?.self) { group in
                for number in 1...limit + 5 {
                    group.addTask {
                        do {
                            _ = try await clients.createCredential(Credential.name("c\(number)"), for: owner)
                            return nil
                        } catch {
                            return (error as? ChatError)?.code ?? .internalError
                        }
                    }
                }
                return await group.reduce(into: [:]) { $0[$1, default: 0] += 1 }
            }
            #expect(created == [nil: limit, .conflict: 5])
            let all = try await clients.credentials(of: owner)
            #expect(all.count == limit && all.map(\.id) == all.map(\.id).sorted())
            #expect(try await clients.revokeCredential(all[0].id, of: owner) == all[0].name)
            _ = try await clients.createCredential(name("again"), for: owner)
        }
        _ = try await create(of: 2, in: store)
    }

    @Test(
        "A credential ends when its member leaves, is removed or banned, or the room is closed",
        arguments: StoreKind.allCases)
    func ends(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, moderation) = (store.stores.rooms, store.stores.moderation)
        func id(_ number: Int) throws -> Int64 {
            Int64(try store.value("SELECT member_id FROM active_users WHERE nickname = 'name\(number)'"))
        }
        let ends: [() async throws -> Void] = [
            { _ = try await rooms.leave(StoreFixture.member(1)) },
            { try await rooms.join(StoreFixture.join(1, "elsewhere")) },
            // With another app, the member enters again.
            { try await rooms.join(StoreFixture.join(1, app: "other")) },
            { try await moderation.remove(id(1), by: Self.moderator) },
            // Another program, or another relay.
            { _ = try store.query("DELETE FROM active_users WHERE nickname = 'name1'") },
            {
                let ban = try await moderation.ban(
                    BanRequest(.member(id(1), everywhere: false)), by: Self.moderator)
                try await moderation.endBan(ban.id, by: Self.moderator)
            },
            {
                let ban = try await moderation.ban(BanRequest(.room(Self.room)), by: Self.moderator)
                try await moderation.endBan(ban.id, by: Self.moderator)
            },
        ]
        for end in ends {
            for number in 1...2 { try await rooms.join(StoreFixture.join(number)) }
            let (mine, other) = (try await create(of: 1, in: store), try await create(of: 2, in: store))
            try await end()
            #expect(try await found(mine, in: store) == nil)
            let isOpen = try store.value("SELECT count(*) FROM active_users WHERE nickname = 'name2'") == 1
            #expect(try await (found(other, in: store) != nil) == isOpen)
            // A member that comes back has no credentials.
            try await rooms.join(StoreFixture.join(1))
            #expect(try await found(mine, in: store) == nil)
            #expect(try await store.stores.clients.credentials(of: .member(StoreFixture.member(1))) == [])
            _ = try await rooms.leave(StoreFixture.member(1))
            _ = try await rooms.leave(StoreFixture.member(2))
        }
        #expect(try store.value("SELECT count(*) FROM credentials") == 0)
    }

    @Test(
        "A member that joins its room again, or gets another name, keeps its credentials",
        arguments: StoreKind.allCases)
    func staysOn(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await store.stores.rooms.join(StoreFixture.join(1))
        let secret = try await create(of: 1, in: store)
        let before = try #require(try await found(secret, in: store))
        try await store.stores.rooms.join(StoreFixture.join(1, name: "renamed", token: 9))
        let after = try #require(try await found(secret, in: store))
        guard case .member(let old) = before.owner, case .member(let new) = after.owner else {
            throw ChatError.notJoined()
        }
        #expect(new.id == old.id && new.nickname.text == "renamed" && new.historyFrom == old.historyFrom)
        try await store.restart()
        #expect(try await found(secret, in: store) == after)
    }

    @Test("Credentials, alias and hidden messages follow a room to its new code", arguments: StoreKind.allCases)
    func recoded(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (clients, code) = (store.stores.clients, SecretCode(stored: "new"))
        try await store.stores.rooms.join(StoreFixture.join(1))
        let (secret, alias) = (try await create(of: 1, in: store), try await clients.alias(of: Self.room))
        let token = try await token("t", in: store, room: Self.room)
        let ofToken = try await clients.createCredential(name("b"), for: .token(token.id)).secret
        let ids = try await post(["a", "b", "c"], in: store)
        try await clients.hideAll(upTo: ids[0], in: Self.room, from: "admin")
        try await clients.hide(ids[1], from: "admin")
        let id = try await clients.room(Self.room).id
        _ = try await store.stores.moderation.recode(Self.room, to: code, by: Self.moderator)
        guard case .member(let member) = try await found(secret, in: store)?.owner,
            case .token(let moved) = try await found(ofToken, in: store)?.owner
        else { throw ChatError.notJoined() }
        #expect(member.room == code && moved.grant.room == code)
        #expect(try await clients.room(aliased: alias) == code)
        #expect(try await clients.room(code) == clients.room(id: id))
        #expect(try await clients.room(id: id)?.alias == alias)
        #expect(try await texts("admin", room: code, in: store) == ["c"])
        #expect(try await texts("admin", in: store) == ["c"])
        #expect(try await texts("admin", room: Self.room, in: store) == [])
    }

    @Test("A credential is revoked once, and by its owner only", arguments: StoreKind.allCases)
    func revoked(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        for number in 1...2 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        let token = try await token("t", in: store)
        let (mine, other) = (try StoreFixture.member(1), try StoreFixture.member(2))
        let secret = try await create(of: 1, in: store)
        let id = try #require(try await found(secret, in: store)).id
        try await clients.hide(5, from: "credential:\(id)")
        try await clients.hideAll(upTo: 4, in: nil, from: "credential:\(id)")
        for owner in [.member(other), .token(token.id)] as [CredentialOwner] {
            #expect(try await clients.revokeCredential(id, of: owner) == nil)
        }
        #expect(try await clients.revokeCredential(id + 1, of: nil) == nil)
        #expect(try await found(secret, in: store) != nil)
        #expect(try await clients.revokeCredential(id, of: .member(mine)) == name("phone"))
        #expect(try await clients.revokeCredential(id, of: .member(mine)) == nil)
        #expect(try await found(secret, in: store) == nil)
        for table in ["hidden_messages", "hidden_history"] {
            #expect(try store.value("SELECT count(*) FROM \(table)") == 0)
        }
        let ofToken = try await clients.createCredential(name("b"), for: .token(token.id)).credential
        #expect(ofToken.id > id)
        #expect(try await clients.revokeCredential(ofToken.id, of: .member(mine)) == nil)
        #expect(try await clients.revokeCredential(ofToken.id, of: nil) == ofToken.name)
    }

    @Test("Credentials are listed in pages, all or those of a room's members", arguments: StoreKind.allCases)
    func listed(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        for number in 1...2 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        try await store.stores.rooms.join(StoreFixture.join(3, "elsewhere"))
        let token = try await token("t", in: store, room: Self.room)
        for number in [1, 3, 2, 1] { _ = try await create(of: number, "c\(number)", in: store) }
        _ = try await clients.createCredential(name("t"), for: .token(token.id))
        func list(_ room: SecretCode?, _ limit: Int) async throws -> [[String]] {
            var (pages, cursor) = ([[String]](), Int64?.none)
            repeat {
                let page = try await clients.credentials(ofMembersOf: room, after: cursor, limit: limit)
                pages.append(page.items.map(\.name.text))
                cursor = page.next
            } while cursor != nil
            return pages
        }
        #expect(try await list(nil, 2) == [["c1", "c3"], ["c2", "c1"], ["t"]])
        #expect(try await list(nil, 5) == [["c1", "c3", "c2", "c1", "t"]])
        #expect(try await list(Self.room, 2).flatMap { $0 } == ["c1", "c2", "c1"])
        #expect(try await list(SecretCode(stored: "elsewhere"), 9) == [["c3"]])
        #expect(try await list(SecretCode(stored: "nowhere"), 9) == [[]])
        // More credentials than one page examines.
        func hash(_ text: String) -> String {
            kind == .sqlite ? "randomblob(32)" : "decode(repeat(md5(\(text)), 2), 'hex')"
        }
        _ = try store.query(
            """
            WITH RECURSIVE n (i) AS (SELECT 6 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
            INSERT INTO credentials (credential_id, name, hash, token)
            SELECT i, 'many', \(hash("CAST(i AS text)")), \(token.id) FROM n
            """)
        _ = try store.query(
            """
            INSERT INTO credentials (credential_id, name, hash, member)
            SELECT 6001, 'last', \(hash("'last'")), member_id FROM active_users WHERE nickname = 'name2'
            """)
        #expect(try await list(Self.room, 100).flatMap { $0 } == ["c1", "c2", "c1", "last"])
        #expect(try await list(nil, 1000).flatMap { $0 }.count == 6001)
    }

    @Test("Uses are recorded, the latest wins, and an ended credential is left out", arguments: StoreKind.allCases)
    func used(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        try await store.stores.rooms.join(StoreFixture.join(1))
        let secret = try await create(of: 1, in: store)
        let id = try #require(try await found(secret, in: store)).id
        store.advance(.seconds(5))
        let time = store.now()
        clients.usedCredential(99, from: nil)
        clients.usedCredential(id, from: "192.0.2.1")
        try await store.flush()
        var used = try #require(try await found(secret, in: store))
        #expect(used.lastUsedAt == time && used.lastUsedFrom == "192.0.2.1")
        // Another relay has recorded a later use.
        _ = try store.query("UPDATE credentials SET time_used = \(store.time(time + .seconds(60)))")
        clients.usedCredential(id, from: "192.0.2.2")
        try await store.flush()
        used = try #require(try await found(secret, in: store))
        #expect(used.lastUsedAt == time + .seconds(60) && used.lastUsedFrom == "192.0.2.1")
    }

    // MARK: - Rooms

    @Test("A room has one number and one alias, whoever asks first", arguments: StoreKind.allCases)
    func rooms(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        try await store.stores.rooms.join(StoreFixture.join(1))
        // A script's member is in a room without a row.
        _ = try store.query(
            "INSERT INTO active_users (udid, nickname, secret_code) VALUES ('\(StoreFixture.member(2).text)', 'n', 'b')"
        )
        let code = SecretCode(stored: "b")
        let rooms = try await withThrowingTaskGroup(of: ClientRoom.self) { group in
            for _ in 1...8 { group.addTask { try await clients.room(code) } }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }
        let room = try #require(rooms.first)
        #expect(rooms.count == 1 && room.code == code && room.alias == nil && room.createdAt == store.now())
        #expect(try await room.id == clients.room(Self.room).id + 1)
        for code in [Self.room, code, SecretCode(stored: "c")] {
            let aliases = try await withThrowingTaskGroup(of: RoomAlias.self) { group in
                for _ in 1...8 { group.addTask { try await clients.alias(of: code) } }
                return try await group.reduce(into: Set()) { $0.insert($1) }
            }
            let alias = try #require(aliases.first)
            #expect(aliases.count == 1 && alias.text.wholeMatch(of: #/[A-Za-z0-9_-]{22}/#) != nil)
            #expect(try await clients.room(aliased: alias) == code)
            #expect(try await clients.room(code).alias == alias)
        }
        #expect(try await clients.room(aliased: RoomAlias(stored: "nothing")) == nil)
        for id in [0, -1, 99, Int64(Int32.max) + 1, .max, .min] { #expect(try await clients.room(id: id) == nil) }
        #expect(try await clients.room(id: room.id)?.code == code)
        // Asking again uses up no number.
        _ = try await clients.room(SecretCode(stored: "d"))
        #expect(try store.value("SELECT max(room_id) FROM rooms") == 4)
    }

    @Test("Rooms are listed in pages", arguments: StoreKind.allCases)
    func roomPages(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        for name in ["a", "b", "c"] { _ = try await clients.room(SecretCode(stored: name)) }
        let first = try await clients.rooms(after: nil, limit: 2)
        #expect(first.items.map(\.code.text) == ["a", "b"])
        let second = try await clients.rooms(after: first.next, limit: 2)
        #expect(second.items.map(\.code.text) == ["c"] && second.next == nil)
        #expect(try await clients.rooms(after: .max, limit: 2).items == [])
    }

    @Test(
        "When all numbers of rooms are used up, a new room has no number and no alias",
        arguments: StoreKind.allCases)
    func noNumber(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        _ = try await clients.room(Self.room)
        _ = try store.query("UPDATE rooms SET room_id = 2147483647")
        _ = try store.query(
            kind == .sqlite
                ? "UPDATE sqlite_sequence SET seq = 2147483647 WHERE name = 'rooms'"
                : "SELECT setval(pg_get_serial_sequence('rooms', 'room_id'), 2147483647)")
        let new = SecretCode(stored: "new")
        let calls: [() async throws -> Void] = [
            { _ = try await clients.room(new) }, { _ = try await clients.alias(of: new) },
        ]
        for call in calls {
            await #expect { try await call() } throws: { ($0 as? ChatError)?.code == .unavailable }
        }
        #expect(try await clients.room(Self.room).id == 2_147_483_647)
        _ = try await clients.alias(of: Self.room)
    }

    // MARK: - Messages

    @Test("A client reads the newest messages first, of one room or of all", arguments: StoreKind.allCases)
    func messages(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        try await store.stores.rooms.join(StoreFixture.join(1))
        try await store.stores.rooms.join(StoreFixture.join(2, "other"))
        var ids = try await post(["1", "2"], in: store)
        ids += try await post(["3"], by: 2, in: store)
        ids += try await post(["4"], in: store)
        let room = Self.room
        #expect(try await texts("admin", in: store) == ["4", "3", "2", "1"])
        #expect(try await texts("admin", room: room, in: store) == ["4", "2", "1"])
        #expect(try await texts("admin", before: ids[3], limit: 2, in: store) == ["3", "2"])
        #expect(try await texts("admin", room: room, before: ids[3], limit: 1, in: store) == ["2"])
        #expect(try await texts("admin", room: room, after: ids[1], in: store) == ["4"])
        #expect(try await texts("admin", after: ids[3], in: store) == [])
        let program = PostRequest.Program(nickname: Nickname(stored: "cron"), room: room)
        let content = try MessageContent(
            parsing: "done", title: "T", link: "https://example.com/", priority: 5, sound: "")
        let last = try await store.stores.rooms.post(
            PostRequest(member: .administrator, program: program, content: content)
        ).message
        let reading = ClientReading(room: nil, after: 0, client: "admin")
        let record = try #require(try await clients.message(last, reading))
        let known = try await store.stores.records.messages(of: room, .oldestFirst(after: ids[3]), limit: 1).items
        #expect([record] == known && record.message.content == content)
        func exists(_ id: MessageID, in room: SecretCode?, after: MessageID = 0) async throws -> Bool {
            try await clients.message(id, ClientReading(room: room, after: after, client: "admin")) != nil
        }
        #expect(try await exists(ids[2], in: nil))
        #expect(try await !exists(ids[2], in: room))
        #expect(try await !exists(ids[1], in: room, after: ids[1]))
        #expect(try await !exists(.max, in: nil))
    }

    @Test("A client does not see what it has hidden, and others do", arguments: StoreKind.allCases)
    func hidden(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        try await store.stores.rooms.join(StoreFixture.join(1))
        try await store.stores.rooms.join(StoreFixture.join(2, "other"))
        func all(_ client: String) async throws -> [[String]] {
            [
                try await texts(client, in: store), try await texts(client, room: Self.room, in: store),
                try await texts(client, room: SecretCode(stored: "other"), in: store),
            ]
        }
        var ids = try await post(["1", "2"], in: store)
        ids += try await post(["3"], by: 2, in: store)
        ids += try await post(["4", "5"], in: store)
        for _ in 1...2 { try await clients.hide(ids[1], from: "token:1") }
        #expect(try await all("token:1") == [["5", "4", "3", "1"], ["5", "4", "1"], ["3"]])
        #expect(try await clients.message(ids[1], ClientReading(room: nil, client: "token:1")) == nil)
        #expect(try await clients.message(ids[1], ClientReading(room: nil, client: "token:2")) != nil)
        #expect(try await all("token:2") == [["5", "4", "3", "2", "1"], ["5", "4", "2", "1"], ["3"]])

        try await clients.hideAll(upTo: ids[3], in: Self.room, from: "token:1")
        #expect(try await all("token:1") == [["5", "3"], ["5"], ["3"]])
        // An earlier end changes nothing.
        try await clients.hideAll(upTo: ids[0], in: Self.room, from: "token:1")
        #expect(try await all("token:1") == [["5", "3"], ["5"], ["3"]])
        #expect(try await clients.message(ids[3], ClientReading(room: Self.room, client: "token:1")) == nil)
        #expect(try await clients.message(ids[3], ClientReading(room: nil, client: "token:1")) == nil)
        #expect(try store.value("SELECT count(*) FROM hidden_messages") == 0)
        try await clients.hideAll(upTo: ids[4], in: SecretCode(stored: "nowhere"), from: "token:1")
        #expect(try await all("token:1") == [["5", "3"], ["5"], ["3"]])

        try await clients.hide(ids[4], from: "token:1")
        try await clients.hideAll(upTo: ids[3], in: nil, from: "token:1")
        #expect(try await all("token:1") == [[], [], []])
        #expect(try store.query("SELECT room_id, hidden_to FROM hidden_history") == [["0", "\(ids[3])"]])
        _ = try await post(["6"], in: store)
        #expect(try await all("token:1") == [["6"], ["6"], []])
        #expect(try await texts("token:1", limit: 1, in: store) == ["6"])
    }

    @Test(
        "A client that has hidden very many messages loses its older history at once",
        arguments: StoreKind.allCases)
    func mostHidden(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        let most = type(of: clients).mostHidden
        try await store.stores.rooms.join(StoreFixture.join(1))
        let first = try await post(["seen", "hidden first"], in: store)
        _ = try store.query(
            """
            WITH RECURSIVE n (i) AS (SELECT \(first[1]) UNION ALL SELECT i + 1 FROM n WHERE i < \(first[1]) + \(most - 2))
            INSERT INTO hidden_messages (client, message_id) SELECT 'token:1', i FROM n
            """)
        _ = try store.query(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(most))
            INSERT INTO messages (secret_code, udid, nickname, text) SELECT 'room', 'u', 'n', 'm' || i FROM n
            """)
        func hide(_ index: Int) async throws {
            let id = first[1] + Int64(most + index)
            try await clients.hide(id, from: "token:1")
        }
        try await hide(-1)
        #expect(try store.value("SELECT count(*) FROM hidden_messages") == most)
        #expect(try await texts("token:1", in: store) == ["m\(most)", "seen"])
        try await hide(0)
        #expect(try await texts("token:1", in: store) == [])
        #expect(try store.value("SELECT count(*) FROM hidden_messages") == most)
        #expect(
            try store.query("SELECT client, room_id, hidden_to FROM hidden_history")
                == [["token:1", "0", "\(first[1])"]])
        #expect(try await texts("token:2", limit: 2, in: store) == ["m\(most)", "m\(most - 1)"])
    }

    // MARK: - Retention

    @Test(
        "Retention deletes what ended clients have hidden, and the alias of a room without data",
        arguments: StoreKind.allCases)
    func retention(kind: StoreKind) async throws {
        let store = try await kind.make()
        let clients = store.stores.clients
        let ages = RetentionAges(messages: .seconds(3600), queue: .seconds(3600), moderation: .seconds(3600))
        try await store.stores.rooms.join(StoreFixture.join(1))
        try await store.stores.rooms.join(StoreFixture.join(2, "gone"))
        let token = try await token("t", in: store)
        let old = try await post(["old"], in: store)[0]
        store.advance(.seconds(3000))
        let new = try await post(["new"], in: store)[0]
        let (mine, other) = (try await create(of: 1, in: store), try await create(of: 2, in: store))
        let kept = "credential:\(try #require(try await found(mine, in: store)).id)"
        let ended = "credential:\(try #require(try await found(other, in: store)).id)"
        let alias = try await clients.alias(of: SecretCode(stored: "gone"))
        let living = try await clients.alias(of: Self.room)
        for client in [kept, ended, "admin", "token:\(token.id)", "token:99", "credential:99"] {
            for message in [old, new] { try await clients.hide(message, from: client) }
            try await clients.hideAll(upTo: new, in: Self.room, from: client)
            try await clients.hide(new, from: client)
        }
        _ = try await store.stores.rooms.leave(StoreFixture.member(2))
        _ = try await store.stores.upkeep.applyRetention(ages)
        func hidden(_ table: String) throws -> [String] {
            try store.query("SELECT client FROM \(table) ORDER BY client").map { $0[0] }
        }
        let clientsLeft = ["admin", kept, "token:\(token.id)"]
        #expect(try hidden("hidden_messages") == clientsLeft && hidden("hidden_history") == clientsLeft)
        #expect(try await clients.room(aliased: alias) == nil)
        #expect(try await clients.room(aliased: living) == Self.room)
        #expect(try store.query("SELECT name FROM credentials") == [["phone"]])
        #expect(try await texts(kept, in: store) == [])
        // The messages are deleted, and a newer one is left.
        store.advance(.seconds(3000))
        _ = try await post(["newest"], in: store)
        store.advance(.seconds(2000))
        _ = try await store.stores.upkeep.applyRetention(ages)
        #expect(try hidden("hidden_messages") == [] && hidden("hidden_history") == [])
        #expect(try await texts(kept, in: store) == ["newest"])
        // The room gets another number: the old one is never reused.
        #expect(try await clients.room(SecretCode(stored: "gone")).id == 3)
    }
}

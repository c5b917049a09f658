import ChatDomain
import Synchronization

/// Credentials, rooms, aliases and messages in memory.
final class FakeClients: ClientStore {
    struct State {
        var credentials: [String: Credential] = [:]
        var rooms: [ClientRoom] = []
        var messages: [MessageRecord] = []
        var hidden: [String: Set<MessageID>] = [:]
        /// The message up to which a client has hidden all, by room. `nil` for all rooms.
        var hiddenTo: [String: [SecretCode?: MessageID]] = [:]
        /// The members who make credentials.
        var members: [MemberID: CredentialMember] = [:]
        var tokens: [Int64: AccessToken] = [:]
        var uses: [Int64] = []
        /// The authority of each credential that was made.
        var makers: [CredentialMaker] = []
        var sessions: [MemberID: UserReference] = [:]
        var last: Int64 = 0
    }

    let state: Mutex<State>
    private let now: TimeSource

    init(_ state: State = State(), now: @escaping TimeSource = { Timestamp(seconds: 1_800_000_000) }) {
        self.state = Mutex(state)
        self.now = now
    }

    func createCredential(
        _ name: Nickname, for owner: CredentialOwner, by maker: CredentialMaker
    ) async throws(ChatError) -> (credential: Credential, secret: String) {
        let made: (Credential, String)? = state.withLock { state in
            let found: Credential.Owner? =
                switch owner {
                case .member(let member): state.members[member].map { .member($0) }
                case .token(let id): state.tokens[id].map { .token($0) }
                }
            guard let found else { return nil }
            state.last += 1
            state.makers.append(maker)
            let credential = Credential(id: state.last, name: name, owner: found, createdAt: now())
            let secret = "\(Credential.prefix)\(state.last)"
            state.credentials[secret] = credential
            return (credential, secret)
        }
        guard let made else {
            if case .member = owner { throw ChatError.notJoined() }
            throw ChatError.notFound("token")
        }
        return (made.0, made.1)
    }

    func credential(of secret: String) async throws(ChatError) -> Credential? {
        state.withLock { $0.credentials[secret] }
    }

    private static func isOwned(_ credential: Credential, by owner: CredentialOwner) -> Bool {
        switch (credential.owner, owner) {
        case (.member(let member), .member(let id)): member.member == id
        case (.token(let token), .token(let id)): token.id == id
        default: false
        }
    }

    func credentials(of owner: CredentialOwner) async throws(ChatError) -> [Credential] {
        state.withLock { $0.credentials.values.filter { Self.isOwned($0, by: owner) }.sorted { $0.id < $1.id } }
    }

    func credentials(
        ofMembersOf room: SecretCode?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Credential> {
        let all = state.withLock { $0.credentials.values.sorted { $0.id < $1.id } }.filter { credential in
            guard let room else { return true }
            if case .member(let member) = credential.owner { return member.room == room }
            return false
        }
        let rest = all.filter { $0.id > cursor ?? 0 }
        return Page(
            items: Array(rest.prefix(limit)), next: rest.count > limit ? rest[limit - 1].id : nil)
    }

    func revokeCredential(_ id: Int64, of owner: CredentialOwner?) async throws(ChatError) -> Nickname? {
        state.withLock { state in
            let found = state.credentials.first { $0.value.id == id }
            guard let found, owner.map({ Self.isOwned(found.value, by: $0) }) ?? true else { return nil }
            state.credentials[found.key] = nil
            return found.value.name
        }
    }

    func revokeCredentials(ofUser user: UserReference) async throws(ChatError) -> Int {
        state.withLock { state in
            let count = state.credentials.count
            state.credentials = state.credentials.filter { $0.value.user != user }
            return count - state.credentials.count
        }
    }

    func hadSession(_ member: MemberID, of user: UserReference) { state.withLock { $0.sessions[member] = user } }

    func usedCredential(_ id: Int64, from address: String?) { state.withLock { $0.uses.append(id) } }

    func room(_ code: SecretCode) async throws(ChatError) -> ClientRoom { state.withLock { Self.room(code, in: &$0) } }

    private static func room(_ code: SecretCode, in state: inout State) -> ClientRoom {
        if let room = state.rooms.first(where: { $0.code == code }) { return room }
        let room = ClientRoom(
            id: Int64(state.rooms.count + 1), code: code, alias: nil, createdAt: Timestamp(seconds: 1_800_000_000))
        state.rooms.append(room)
        return room
    }

    func room(id: Int64) async throws(ChatError) -> ClientRoom? { state.withLock { $0.rooms.first { $0.id == id } } }

    func rooms(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ClientRoom> {
        let rest = state.withLock { $0.rooms.filter { $0.id > cursor ?? 0 } }
        return Page(
            items: Array(rest.prefix(limit)), next: rest.count > limit ? rest[limit - 1].id : nil)
    }

    func alias(of room: SecretCode) async throws(ChatError) -> RoomAlias {
        state.withLock { state in
            let found = Self.room(room, in: &state)
            if let alias = found.alias { return alias }
            let alias = RoomAlias(stored: "alias-of-room-number-\(found.id)")
            state.rooms[Int(found.id) - 1] = ClientRoom(
                id: found.id, code: found.code, alias: alias, createdAt: found.createdAt)
            return alias
        }
    }

    func room(aliased alias: RoomAlias) async throws(ChatError) -> SecretCode? {
        state.withLock { $0.rooms.first { $0.alias == alias }?.code }
    }

    func messages(
        _ reading: ClientReading, before: MessageID?, limit: Int
    ) async throws(ChatError) -> [MessageRecord] {
        let found = state.withLock { state in
            state.messages.filter { Self.isVisible($0, reading, state) && $0.message.id < before ?? .max }
        }
        return Array(found.sorted { $0.message.id > $1.message.id }.prefix(limit))
    }

    private static func isVisible(_ record: MessageRecord, _ reading: ClientReading, _ state: State) -> Bool {
        let (id, hiddenTo) = (record.message.id, state.hiddenTo[reading.client] ?? [:])
        return (reading.room == nil || reading.room == record.room) && id > reading.after
            && state.hidden[reading.client]?.contains(id) != true
            && id > (hiddenTo[nil] ?? 0) && id > (hiddenTo[record.room] ?? 0)
    }

    func message(_ id: MessageID, _ reading: ClientReading) async throws(ChatError) -> MessageRecord? {
        state.withLock { state in
            state.messages.first { $0.message.id == id && Self.isVisible($0, reading, state) }
        }
    }

    func hide(_ message: MessageID, from client: String) async throws(ChatError) {
        state.withLock { _ = $0.hidden[client, default: []].insert(message) }
    }

    func hideAll(upTo last: MessageID, in room: SecretCode?, from client: String) async throws(ChatError) {
        state.withLock { $0.hiddenTo[client, default: [:]][room] = last }
    }
}

import ChatDomain
import Synchronization
import Testing

/// Rooms in memory whose events the test controls. A request for a member or a room that the test did not create fails
/// the test.
final class FakeFeed: RoomFeed {
    private struct State {
        /// The room of each member. `nil` if the member is in no room.
        var rooms: [MemberID: SecretCode?] = [:]
        var messages: [SecretCode: [Message]] = [:]
        /// The last change of each changed message.
        var lastChanges: [SecretCode: [MessageChange]] = [:]
        var handedOut: [MemberID: MessageID] = [:]
        var receipts: [MemberID: Receipt] = [:]
        var next: MessageID = 1
        var changes = RoomChanges()
        /// The id of the last message before the members entered their rooms.
        var historyFrom: MessageID = 0
        var completeTo: MessageID?
        var isBroken = false
        var readMessages = 0
        var failedReads = 0
        var positionLookups = 0
        /// The new codes of rooms, by their old ones.
        var codes: [SecretCode: SecretCode] = [:]
        var titles: [SecretCode: RoomTitle] = [:]

        func last(in code: SecretCode) -> MessageID {
            max(messages[code]?.last?.id ?? 0, lastChanges[code]?.last?.id ?? 0)
        }
    }

    private let state = Mutex(State())
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// The number of messages that were read.
    var readMessages: Int { state.withLock { $0.readMessages } }
    var failedReads: Int { state.withLock { $0.failedReads } }
    /// The number of times that a member's position was looked up.
    var positionLookups: Int { state.withLock { $0.positionLookups } }
    /// The last message that each member received.
    var handedOut: [MemberID: MessageID] { state.withLock { $0.handedOut } }

    func join(_ member: MemberID, _ code: SecretCode) {
        change { state in
            let old = state.rooms.updateValue(code, forKey: member) ?? nil
            state.changes.members.insert(member)
            state.changes.memberships.formUnion([code, old].compactMap(\.self))
            state.messages[code, default: []] += []
        }
    }

    /// Reports a topic of UnifiedPush with a new push.
    func pushed(to topic: UnifiedPushTopic) {
        change { $0.changes.topics.insert(topic) }
    }

    /// Removes a member from its room. The member need not have joined.
    func leave(_ member: MemberID) {
        change { state in
            let code = state.rooms.updateValue(nil, forKey: member) ?? nil
            state.changes.members.insert(member)
            state.changes.memberships.formUnion([code].compactMap(\.self))
        }
    }

    /// - Parameter isLocal: Whether this process wrote the message, rather than another one.
    func post(_ text: String, by member: MemberID, isLocal: Bool = true) {
        change { state in
            guard let code = state.rooms[member] ?? nil else {
                Issue.record("\(member) is in no room")
                return
            }
            state.messages[code, default: []].append(
                Message(
                    id: state.next, sender: member, nickname: "n", content: MessageContent(stored: text),
                    sentAt: Timestamp(seconds: 1_780_000_000)
                ))
            state.next += 1
            if isLocal { state.changes.messages.insert(code) } else { state.changes.isUnknown = true }
        }
    }

    /// Adds a message of any writer.
    func add(_ message: Message, to code: SecretCode) {
        change { state in
            state.messages[code, default: []].append(message)
            state.next = message.id + 1
            state.changes.messages.insert(code)
        }
    }

    /// Sets the id of the last message before the members entered their rooms.
    func setHistoryFrom(_ message: MessageID) {
        state.withLock { $0.historyFrom = message }
    }

    /// Sets ``RoomChanges/completeTo`` of the next changes.
    func setCompleteTo(_ message: MessageID) {
        state.withLock { $0.completeTo = message }
    }

    /// A moderator removes a member.
    func remove(_ member: MemberID) {
        change { state in
            let code = state.rooms.updateValue(nil, forKey: member) ?? nil
            state.changes.members.insert(member)
            state.changes.removed.insert(member)
            state.changes.memberships.formUnion([code].compactMap(\.self))
        }
    }

    func close(_ code: SecretCode) {
        change { state in
            for member in state.rooms.keys where state.rooms[member] == code { state.rooms[member] = .some(nil) }
            state.changes.closed.insert(code)
        }
    }

    /// Gives a room a new code. The named member is banned and removed.
    /// - Parameter isLocal: Whether this process changed the code, rather than another one.
    func recode(_ code: SecretCode, to new: SecretCode, without banned: MemberID, isLocal: Bool = true) {
        change { state in
            for member in state.rooms.keys where state.rooms[member] == code {
                state.rooms[member] = .some(member == banned ? nil : new)
            }
            state.messages[new] = state.messages.removeValue(forKey: code)
            state.messages[code] = []
            state.codes[code] = new
            guard isLocal else { return state.changes.isUnknown = true }
            state.changes.members.insert(banned)
            state.changes.removed.insert(banned)
            state.changes.closed.insert(code)
        }
    }

    /// - Parameter isLocal: Whether this process deleted the message, rather than another one.
    func delete(_ message: MessageID, in code: SecretCode, isLocal: Bool = true) {
        change(.deleted, message, in: code, isLocal: isLocal)
    }

    /// Changes a message.
    ///
    /// - Parameters:
    ///   - text: The new text. `nil` to keep the text.
    ///   - isLocal: Whether this process changed the message, rather than another one.
    func change(
        _ kind: MessageChange.Kind, _ id: MessageID, to text: String? = nil, in code: SecretCode, isLocal: Bool = true
    ) {
        change { state in
            var messages = state.messages[code] ?? []
            guard let index = messages.firstIndex(where: { $0.id == id }) else {
                Issue.record("The room has no message \(id)")
                return
            }
            let old = messages.remove(at: index)
            if kind != .deleted {
                let content = text.map { MessageContent(stored: $0) } ?? old.content
                messages.insert(
                    Message(id: id, sender: old.sender, nickname: old.nickname, content: content, sentAt: old.sentAt),
                    at: index)
            }
            state.messages[code] = messages
            let change = MessageChange(
                id: state.next, kind: kind, message: id, author: old.sender, revision: 2, time: old.sentAt)
            state.next += 1
            state.lastChanges[code, default: []].removeAll { $0.message == id }
            state.lastChanges[code, default: []].append(change)
            guard isLocal else { return state.changes.isUnknown = true }
            state.changes.messages.insert(code)
            if kind == .deleted { state.changes.deleted[code, default: []].append(id) }
        }
    }

    /// Deletes all messages, as retention does.
    func deleteAll() {
        state.withLock { state in
            for code in state.messages.keys { state.messages[code] = [] }
        }
    }

    /// Makes every member enter its room now.
    func enterAll() {
        state.withLock { $0.historyFrom = $0.next - 1 }
    }

    /// Sets whether reads fail.
    func setBroken(_ isBroken: Bool) {
        state.withLock { $0.isBroken = isBroken }
    }

    private func change(_ body: (inout State) -> Void) {
        state.withLock { body(&$0) }
        signal.continuation.yield()
    }

    /// Performs one read. Counts it as failed while the feed is broken.
    private func read<Value>(_ body: (inout State) -> Value?) throws(ChatError) -> Value {
        let result = state.withLock { state -> Result<Value?, ChatError> in
            guard !state.isBroken else {
                state.failedReads += 1
                return .failure(.unavailable(cause: "broken"))
            }
            return .success(body(&state))
        }
        guard let value = try result.get() else {
            Issue.record("The feed has no data for this call")
            throw ChatError(.internalError, "not told")
        }
        return value
    }

    func position(of member: MemberID) async throws(ChatError) -> RoomPosition {
        let position = try read { state -> RoomPosition?? in
            state.positionLookups += 1
            return state.rooms[member].map { code in
                code.map {
                    RoomPosition(code: $0, historyFrom: state.historyFrom, last: state.last(in: $0))
                }
            }
        }
        guard let position else { throw .notJoined() }
        return position
    }

    func messages(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [Message] {
        try read { state in
            let found = state.messages[room].map { Array($0.filter { $0.id > after }.prefix(limit)) }
            state.readMessages += found?.count ?? 0
            return found
        }
    }

    func entries(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [RoomEntry] {
        try read { state in
            guard let messages = state.messages[room] else { return nil }
            let changes = (state.lastChanges[room] ?? []).map { change in
                RoomEntry.change(change, messages.first { $0.id == change.message })
            }
            let entries = (messages.map { .message($0) } + changes).filter { $0.id > after }.sorted { $0.id < $1.id }
            state.readMessages += min(entries.count, limit)
            return Array(entries.prefix(limit))
        }
    }

    func lastEntry(in room: SecretCode) async throws(ChatError) -> MessageID {
        try read { state in state.last(in: room) }
    }

    /// Sets the receipt of a member's last message.
    /// - Parameter isRead: Whether the hub must read the receipt because a member read in the room.
    func setReceipt(_ receipt: Receipt, of member: MemberID, isRead: Bool = true) {
        change { state in
            state.receipts[member] = receipt
            if isRead, let code = state.rooms[member] ?? nil { state.changes.reads.insert(code) }
        }
    }

    func receipts(in room: SecretCode, for members: Set<MemberID>) async throws(ChatError) -> [MemberID: Receipt] {
        try read { state in state.receipts.filter { members.contains($0.key) && state.rooms[$0.key] == room } }
    }

    func hasMoved(_ room: SecretCode, to code: SecretCode) async throws(ChatError) -> Bool {
        try read { state in state.codes[room] == code }
    }

    /// The operator gives a room a title.
    func setTitle(_ title: String?, of code: SecretCode) {
        change { state in
            state.titles[code] = title.map(RoomTitle.init(stored:))
            state.changes.memberships.insert(code)
        }
    }

    func summary(of room: SecretCode) async throws(ChatError) -> RoomSummary {
        try read { state in
            state.messages[room].map { _ in
                RoomSummary(members: state.rooms.values.count { $0 == room }, title: state.titles[room])
            }
        }
    }

    func handedOut(_ message: MessageID, to member: MemberID) {
        state.withLock { $0.handedOut[member] = message }
    }

    func roomChanges() -> AsyncStream<Void> { signal.stream }

    func endChanges() { signal.continuation.finish() }

    func takeRoomChanges() -> RoomChanges {
        state.withLock { state in
            defer { state.changes = RoomChanges() }
            state.changes.completeTo = state.completeTo
            return state.changes
        }
    }
}

public import Foundation

/// A member's place in a room: receives the room's events, sends the outbox, and keeps the device's push token current.
///
/// ```swift
/// let room = try await ChatRoom.open(
///     "kitchen", as: "Ann", api: PushChatAPI(url: relay), storage: FileStorage(url: file))
/// try await room.join()
/// async let running: Void = room.run()
/// for try await event in room.events {
///     if case .message(let message) = event { show(message) }
/// }
/// ```
///
/// An event counts as handled when the loop asks for the next one. After a restart, the events that were not handled
/// come again, so no message is missed.
public actor ChatRoom {
    /// The maximum number of messages in the outbox.
    public static let maximumOutbox = 1000
    /// The maximum number of events that wait for the app. The room receives no more until the app has handled some.
    private static let maximumEvents = 1000

    private let api: PushChatAPI
    private let storage: any ChatStorage
    private var state: ChatRoomState
    private var reception: Reception
    private var waiting: [ReceivedEvent] = []
    /// The event that the app is handling.
    private var handling: ReceivedEvent?
    private var end: PushChatError?
    private var isRunning = false
    /// The last call of ``save()``. Each waits for the one before, so that no older state replaces a newer one.
    private var saving: Task<Void, any Error>?
    /// Wakes the app's loop, the receiving task and the sending task.
    private var appSignal = Signal()
    private var spaceSignal = Signal()
    private var sendSignal = Signal()

    /// Opens a room with the state that an earlier run of the app saved. If the state belongs to another room or
    /// another member, it is replaced.
    ///
    /// - Parameters:
    ///   - code: The room's code.
    ///   - name: The member's name in the room.
    ///   - member: The member's id, if the app has one already. `nil` uses the saved one, or makes one.
    ///   - api: The relay's API.
    ///   - storage: Keeps the state. Each room of an app needs its own storage.
    /// - Throws: ``PushChatError/storage(_:)`` if the saved state cannot be read.
    public static func open(
        _ code: String, as name: String, member: ChatMemberID? = nil, api: PushChatAPI, storage: any ChatStorage
    ) async throws(PushChatError) -> ChatRoom {
        let saved = try await ChatRoomState.load(from: storage)
        var state = saved ?? ChatRoomState(code: code, name: name, member: member ?? .random())
        if member ?? state.member != state.member || ![state.code, state.opened].contains(code) {
            state = ChatRoomState(code: code, name: name, member: member ?? state.member)
        }
        state.name = name
        return ChatRoom(state, api: api, storage: storage)
    }

    private init(_ state: ChatRoomState, api: PushChatAPI, storage: any ChatStorage) {
        self.state = state
        self.api = api
        self.storage = storage
        reception = Reception(after: state.handled, joins: false)
    }

    // MARK: - State

    /// The room's code, which may have changed since the member joined.
    public var code: String { state.code }
    public var member: ChatMemberID { state.member }
    /// The number of handled messages of others that the user has not read.
    public var unread: Int { state.unread }
    /// The last message that the user has read.
    public var readTo: Int64 { state.read }
    /// The messages that the relay has not accepted yet, in the order in which they were written.
    public var outbox: [OutboxMessage] { state.outbox.messages }

    /// Records that the user has read a message and all earlier ones.
    public func markRead(upTo id: Int64) async throws(PushChatError) {
        state.read(upTo: id)
        try await save()
    }

    // MARK: - Membership

    /// Enters the room. Call it when the user joins; a member who is in the room need not join again.
    public func join() async throws(PushChatError) {
        let token = state.token.current
        try await api.join(state.code, as: state.name, member: state.member, deviceToken: token)
        state.token.stored(token, at: Date())
        try await save()
    }

    /// Leaves the room, withdraws the messages of the outbox, and ends ``run()``.
    public func leave() async throws(PushChatError) {
        try await api.leave(state.member)
        state.outbox = Outbox()
        try await save()
        finish(.left(wasRemoved: false))
    }

    /// Tells the room the device's push token. Call it at each start of the app. The relay learns the token if it has
    /// another one, and once a day in case it has lost it.
    public func setDeviceToken(_ token: Data) async throws(PushChatError) {
        state.token.received(token)
        try await save()
        sendSignal.wake()
    }

    // MARK: - Posting

    /// Puts a message into the outbox. ``run()`` sends it as soon as the relay can be reached, also after a restart of
    /// the app, and the relay accepts it once.
    ///
    /// - Returns: The message in the outbox. The event ``ChatEvent/sent(_:)`` or ``ChatEvent/rejected(_:_:)`` follows.
    /// - Throws: ``PushChatError/storage(_:)`` if the message cannot be kept.
    @discardableResult
    public func post(_ text: String) async throws(PushChatError) -> OutboxMessage {
        guard state.outbox.messages.count < Self.maximumOutbox else {
            throw .storage("the outbox has \(Self.maximumOutbox) messages already")
        }
        let message = OutboxMessage(text: text)
        state.outbox.append(message)
        try await save()
        sendSignal.wake()
        return message
    }

    /// Withdraws a message that the relay has not accepted yet.
    public func withdraw(_ id: OutboxMessage.ID) async throws(PushChatError) {
        state.outbox.remove(id)
        try await save()
    }

    // MARK: - Running

    /// Receives events and sends the outbox until the task is cancelled, or the member has left the room. One task at a
    /// time runs a room.
    ///
    /// - Throws: The reason of the end, which ``events`` throws as well. Nothing if the task was cancelled.
    public func run() async throws(PushChatError) {
        precondition(!isRunning, "The room runs already")
        (isRunning, end) = (true, nil)
        // The end of a task ends the signals that it waits for.
        (spaceSignal, sendSignal) = (Signal(), Signal())
        defer { isRunning = false }
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.receive() }
            group.addTask { await self.send() }
            await group.next()
            group.cancelAll()
        }
        if Task.isCancelled {
            finish(.cancelled)
            return
        }
        if let end { throw end }
    }

    private func finish(_ error: PushChatError) {
        end = end ?? error
        appSignal.wake()
        sendSignal.wake()
        spaceSignal.wake()
    }

    private func receive() async {
        while !Task.isCancelled, end == nil {
            do throws(PushChatError) {
                switch reception.call {
                case .join:
                    try await join()
                    reception.joined()
                case .page(let id):
                    let page = try await api.page(after: id, limit: Reception.page, member: state.member)
                    await report(reception.received(page))
                case .stream(let id): try await follow(id)
                }
            } catch {
                if Task.isCancelled { return }
                let (events, reaction) = reception.failed(error, random: .random(in: 0...1))
                await report(events)
                switch reaction {
                case .retry(let delay): try? await Task.sleep(for: delay)
                case .end(let error): finish(error)
                }
            }
        }
    }

    /// Reads the stream from after `id`. Always ends with an error, because a stream that ends is a lost connection.
    private func follow(_ id: Int64) async throws(PushChatError) {
        let stream = try await api.stream(after: id, member: state.member)
        await report(reception.opened(after: id))
        var parser = ServerSentEventParser()
        do {
            for try await bytes in stream.body {
                for event in try parser.read(bytes) { await report(try reception.received(RoomStreamEvent(event))) }
            }
        } catch let error as PushChatError {
            throw error
        } catch {
            throw .connectionLost("\(error)")
        }
        throw .connectionLost("the stream has ended")
    }

    private func report(_ events: [ReceivedEvent]) async {
        waiting += events
        appSignal.wake()
        while waiting.count >= Self.maximumEvents, !Task.isCancelled, end == nil { await spaceSignal.wait() }
    }

    private func send() async {
        while !Task.isCancelled, end == nil {
            do throws(PushChatError) {
                if let token = state.token.due(at: Date()) {
                    try await api.update(deviceToken: token, member: state.member)
                    state.token.stored(token, at: Date())
                    try await save()
                } else if let message = state.outbox.messages.first {
                    try await send(message)
                } else {
                    await sendSignal.wait()
                }
            } catch {
                if Task.isCancelled { return }
                guard error.isTemporary || error.isFromElsewhere else { return finish(error) }
                try? await Task.sleep(for: .seconds(2))
            }
        }
    }

    private func send(_ message: OutboxMessage) async throws(PushChatError) {
        do throws(PushChatError) {
            _ = try await api.post(message.text, member: state.member, key: message.id)
        } catch {
            if Task.isCancelled { throw .cancelled }
            switch state.outbox.failed(message, error, random: .random(in: 0...1)) {
            case .retry(let delay): try? await Task.sleep(for: delay)
            case .dropped(let message, let rejection):
                try await save()
                await report([ReceivedEvent(.rejected(message, rejection))])
            case .end(let error): throw error
            }
            return
        }
        state.outbox.accepted(message.id)
        try await save()
        await report([ReceivedEvent(.sent(message))])
    }

    // MARK: - Events

    /// The room's events, for one loop at a time. The loop ends when the task that runs it is cancelled. It throws the
    /// reason when the room has ended.
    public nonisolated var events: Events { Events(room: self) }

    /// The events of a room.
    public struct Events: AsyncSequence, Sendable {
        public typealias Element = ChatEvent

        fileprivate let room: ChatRoom

        public func makeAsyncIterator() -> Iterator { Iterator(room: room) }

        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let room: ChatRoom

            /// Records that the last event was handled, and returns the next one.
            public mutating func next() async throws -> ChatEvent? { try await room.nextEvent() }
        }
    }

    private func nextEvent() async throws(PushChatError) -> ChatEvent? {
        if let handled = handling {
            handling = nil
            let before = state
            state.handle(handled)
            if state != before { try await save() }
            if handled.event == .databaseReplaced { sendSignal.wake() }
        }
        while !Task.isCancelled {
            if !waiting.isEmpty {
                handling = waiting.removeFirst()
                if waiting.count < Self.maximumEvents { spaceSignal.wake() }
                return handling?.event
            }
            if let end {
                if end == .cancelled { return nil }
                throw end
            }
            await appSignal.wait()
        }
        // The end of a task ends the signal that it waits for.
        appSignal = Signal()
        return nil
    }

    private func save() async throws(PushChatError) {
        let task = Task { [earlier = saving] in
            _ = await earlier?.result
            try await storage.save(JSONEncoder().encode(state))
        }
        saving = task
        do {
            try await task.value
        } catch {
            throw .storage("\(error)")
        }
    }
}

/// Lets one task of an actor wait until another wakes it. A wake before the wait is not lost.
struct Signal {
    private let stream: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation

    init() {
        (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    }

    func wake() { continuation.yield() }

    /// Returns after the next ``wake()``, or when the task is cancelled.
    func wait() async {
        for await _ in stream { return }
    }
}

import Foundation
import Observation
import PushChatKit

/// The state of the three screens.
@MainActor
@Observable
final class ChatModel {
    /// The room's messages, oldest first.
    private(set) var messages: [ChatMessage] = []
    /// The messages that the relay has not accepted yet.
    private(set) var waiting: [OutboxMessage] = []
    /// The number of members in the room. `nil` until the relay has named it.
    private(set) var members: Int?
    private(set) var isConnected = true
    /// Whether the chat replaces the login.
    private(set) var isInRoom = false
    /// Whether the user sees the app.
    var isActive = true {
        didSet { if isActive { Task { await activate() } } }
    }
    /// A sentence for the user. `nil` without a problem.
    var problem: String?

    private let group: AppGroup
    private let api: PushChatAPI
    private var room: ChatRoom?
    private var running: Task<Void, Never>?
    private var deviceToken: Data?

    init(_ group: AppGroup, app: PushChatAPI.App = PushChatAPI.App(), transport: (any RelayTransport)? = nil) {
        self.group = group
        api = PushChatAPI(url: group.relay, app: app, transport: transport ?? URLSessionTransport())
    }

    /// Returns to the room of the last run, if there was one.
    func resume() async {
        guard room == nil, let saved = try? await SavedRoom.load(from: group.storage) else { return }
        messages = group.messages.load()
        await enter(saved.code, as: saved.name, isNew: false)
    }

    /// The login: enters a room.
    func join(_ code: String, as name: String) async {
        group.clear()
        messages = []
        await enter(code, as: name, isNew: true)
    }

    func leave() async {
        guard let room else { return }
        // The stream may report the end before the call returns.
        self.room = nil
        do {
            try await room.leave()
            close()
        } catch {
            self.room = room
            problem = error.description
            running?.cancel()
            running = nil
            await activate()
        }
    }

    /// Puts a message into the outbox, also without a connection.
    func post(_ text: String) async {
        guard let room else { return }
        do {
            try await room.post(text)
            waiting = await room.outbox
        } catch {
            problem = error.description
        }
    }

    /// Passes on the token that the system gave the app. The relay learns it if it is a new one.
    func setDeviceToken(_ token: Data) async {
        deviceToken = token
        try? await room?.setDeviceToken(token)
    }

    // MARK: - The room

    private func enter(_ code: String, as name: String, isNew: Bool) async {
        do {
            let room = try await ChatRoom.open(code, as: name, api: api, storage: group.storage)
            if let deviceToken { try await room.setDeviceToken(deviceToken) }
            if isNew { try await room.join() }
            self.room = room
            waiting = await room.outbox
            isInRoom = true
            running = Task { [weak self] in await self?.follow(room) }
        } catch {
            problem = error.description
            if isNew { group.clear() }
        }
    }

    /// Marks the messages as read, or opens the room again if it has ended with an error.
    private func activate() async {
        guard isInRoom, let room else { return }
        guard running != nil else {
            self.room = nil
            return await resume()
        }
        await markRead(in: room)
    }

    private func follow(_ room: ChatRoom) async {
        let run = Task { try await room.run() }
        defer { run.cancel() }
        do {
            for try await event in room.events { await handle(event, in: room) }
        } catch {
            guard self.room === room else { return }
            problem = "\(error)"
            if case PushChatError.left = error { return close() }
            // The messages, and those that wait, stay for the next start of the app, or until the user returns to it.
            (running, isConnected) = (nil, false)
        }
    }

    private func handle(_ event: ChatEvent, in room: ChatRoom) async {
        switch event {
        case .message(let message):
            // After the app was killed, a message that is already stored may come again.
            if message.id > messages.last?.id ?? 0 {
                messages.append(message)
                saveMessages()
            }
            if isActive { await markRead(in: room) }
        case .edited(let message), .cleared(let message), .resolved(let message):
            messages = messages.map { $0.id == message.id ? message : $0 }
            saveMessages()
        case .deleted(let id):
            messages.removeAll { $0.id == id }
            saveMessages()
        case .databaseReplaced:
            messages = []
            saveMessages()
        case .members(let count): members = count
        case .disconnected: isConnected = false
        case .connected: isConnected = true
        case .sent: waiting = await room.outbox
        case .rejected(let message, let rejection):
            waiting = await room.outbox
            problem = "“\(message.text)” was not sent: \(rejection.message)"
        default: break
        }
    }

    private func markRead(in room: ChatRoom) async {
        guard let last = messages.last else { return }
        try? await room.markRead(upTo: last.id)
    }

    private func saveMessages() {
        do {
            try group.messages.save(messages)
        } catch {
            problem = "The messages cannot be stored: \(error.localizedDescription)"
        }
    }

    /// Shows the login again.
    private func close() {
        running?.cancel()
        (room, running, members) = (nil, nil, nil)
        (messages, waiting, isConnected, isInRoom) = ([], [], true, false)
        group.clear()
    }
}

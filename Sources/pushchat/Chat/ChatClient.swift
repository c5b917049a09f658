import ArgumentParser
import ChatDomain
import Foundation
import PushChatCore
import UnixSignals

/// Runs `pushchat chat`: makes the calls that ``ChatClientState`` chooses, prints the state's reports, and passes typed
/// lines to the state.
actor ChatClient {
    private let api: PushChatAPI
    private let member: ChatMemberID
    private let code: SecretCode
    private let name: Nickname
    private let leaves: Bool
    private let input = StandardInput()
    private var state: ChatClientState
    private var screen: ChatScreen
    /// Wakes the posting task: there may be a line to post, or the chat may be finished.
    private let postSignal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    /// Wakes the reading task: there may be room for another line.
    private let readSignal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    init(
        api: PushChatAPI, member: ChatMemberID, code: SecretCode, name: Nickname, state: ChatClientState, json: Bool,
        leaves: Bool
    ) {
        self.api = api
        self.member = member
        self.code = code
        self.name = name
        self.state = state
        self.leaves = leaves
        screen = ChatScreen(json: json)
    }

    /// Runs the chat to its end.
    ///
    /// - Throws: A ``Failure`` if the chat cannot continue. ``ExitCode`` 1 if a line was not sent, if the relay
    ///   rejected a line of a script, or if `--leave` failed.
    func run() async throws {
        // Trap signals before the first call, so that none is lost.
        let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm, .sigcont)
        defer { screen.end() }
        do {
            try await withThrowingTaskGroup(of: Bool.self) { group in
                group.addTask { try await self.receive() }
                group.addTask { try await self.post() }
                group.addTask { await self.read() }
                group.addTask { await self.wait(for: signals) }
                for try await isEnd in group where isEnd { break }
                group.cancelAll()
            }
        } catch {
            for draft in state.drafts { screen.print([Self.unsent(draft)]) }
            throw error
        }
        try await end()
    }

    // MARK: - Receiving

    private func receive() async throws -> Bool {
        while true {
            do {
                switch state.call {
                case .join:
                    try await api.join(code.text, as: name.text, member: member)
                    state.joined()
                    if screen.isInteractive {
                        screen.print([
                            .note("in the room as \(name.text); Enter sends a line, Ctrl-D ends, /help helps")
                        ])
                    }
                case .page: try await fetch()
                case .stream(let since): try await follow(since)
                }
                postSignal.continuation.yield()
            } catch {
                try await react(to: state.receivingFailed(failure(error), random: .random(in: 0...1)))
            }
        }
    }

    private func fetch() async throws {
        guard case .page(let since) = state.call else { return }
        screen.print(state.received(try await page(after: since)))
    }

    private func page(after id: MessageID) async throws -> ChatPage {
        try await api.page(after: id, limit: Reception.page, member: member)
    }

    /// Reads the stream from after `since`. Always ends with an error, because a stream that ends is a lost connection.
    private func follow(_ since: MessageID) async throws {
        var parser = ServerSentEventParser()
        let body = try await api.stream(after: since, member: member).body
        screen.print(state.opened(after: since))
        for try await bytes in body {
            for event in try parser.read(bytes) { screen.print(try state.received(event)) }
        }
        throw TransportError.lost("")
    }

    /// Returns the kind of failure that `error` means.
    ///
    /// - Throws: ``CancellationError`` if the chat has ended in the meantime.
    private func failure(_ error: any Error) throws -> PushChatError {
        try Task.checkCancellation()
        return PushChatAPI.failure(error)
    }

    private func react(to reaction: ([ChatClientState.Report], ChatClientState.Next)) async throws {
        screen.print(reaction.0)
        switch reaction.1 {
        case .again(let delay): try await Task.sleep(for: delay)
        case .goOn: break
        case .end(let text): throw Failure(text)
        }
    }

    // MARK: - Posting

    private func post() async throws -> Bool {
        for await _ in postSignal.stream {
            while let draft = state.nextDraft {
                do {
                    _ = try await api.post(draft.text, member: member, key: draft.id)
                    state.posted(draft)
                } catch {
                    try await react(to: state.postingFailed(draft, failure(error), random: .random(in: 0...1)))
                }
                readSignal.continuation.yield()
            }
            if state.isDone {
                try await fetchLast()
                return true
            }
        }
        return false
    }

    /// Fetches the messages that the stream has not delivered yet, so that the chat's last output includes its own
    /// messages.
    private func fetchLast() async throws {
        while true {
            do {
                screen.print(state.received(try await page(after: state.cursor)))
                if case .stream = state.call { return }
            } catch {
                try await react(to: state.receivingFailed(failure(error), random: .random(in: 0...1)))
            }
        }
    }

    // MARK: - Typing

    private func read() async -> Bool {
        var hasEnded = false
        while !hasEnded, !Task.isCancelled {
            let bytes = await input.next()
            if Task.isCancelled { break }
            let (lines, isLast) = screen.read(bytes)
            hasEnded = isLast
            for line in lines {
                screen.print(state.typed(line, isInteractive: screen.isInteractive, key: UUID().uuidString))
            }
            if hasEnded { state.inputEnded() }
            postSignal.continuation.yield()
            if state.isFull {
                for await _ in readSignal.stream where !state.isFull { break }
            }
        }
        return false
    }

    /// Waits for the signal that ends the chat. Runs outside the actor, because the actor may be blocked while it
    /// writes to a reader that has stopped reading.
    private nonisolated func wait(for signals: UnixSignalsSequence) async -> Bool {
        for await signal in signals {
            if signal == .sigcont {
                await resume()
            } else {
                // The last calls are shorter than ten seconds. The alarm ends the process if anything else still blocks
                // it.
                alarm(10)
                return true
            }
        }
        return false
    }

    private func resume() { screen.resume() }

    // MARK: - The end

    /// The time limit of calls at the end of the process.
    private static let lastCallLimit = Duration.seconds(3)

    private func end() async throws {
        // Try once more to post the remaining lines, until one fails. The idempotency keys make this safe.
        while let draft = state.drafts.first,
            (try? await api.post(draft.text, member: member, key: draft.id, within: Self.lastCallLimit)) != nil
        { state.posted(draft) }
        for draft in state.drafts { screen.print([Self.unsent(draft)]) }
        var hasLeft = true
        if leaves {
            hasLeft = (try? await api.leave(member, within: Self.lastCallLimit)) != nil
            if !hasLeft { screen.print([.note("you are still a member of the room: the relay did not answer")]) }
        }
        let isWhole = state.drafts.isEmpty && (screen.isInteractive || state.refused == 0)
        guard isWhole, hasLeft else { throw ExitCode(1) }
    }

    private static func unsent(_ draft: OutboxMessage) -> ChatClientState.Report {
        .note("not sent: \(ChatClientState.shown(draft.text))")
    }
}

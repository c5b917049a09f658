import ChatDomain
import Foundation
import PushChatCore

/// Decides what `pushchat chat` shows, and when it ends. ``Reception`` and ``Outbox`` decide which calls to make. A pure
/// value without sockets, clocks and terminals.
struct ChatClientState {
    /// Something to show to the user.
    enum Report: Equatable {
        case message(ChatMessage)
        /// A message that was changed, in its newest form.
        case changed(ChatMessage)
        /// The number of members that are now in the room.
        case members(Int)
        /// A message that was shown has been deleted.
        case deleted(MessageID)
        /// The member is no longer in the room. `wasRemoved` is false if the member has left, or if the reason is unknown.
        case left(wasRemoved: Bool)
        /// The room has this code now.
        case moved(String)
        /// A note to the user about the chat itself.
        case note(String)
    }

    /// The reaction to a failure.
    enum Next: Equatable {
        /// Wait, then make the calls that ``call`` and ``nextDraft`` name at that time. They are usually the ones that
        /// failed.
        case again(after: Duration)
        case goOn
        /// The chat is over, for the reason in the text.
        case end(String)
    }

    /// The maximum number of lines that may wait for the relay. The chat reads no more lines until there is room.
    private static let maxDrafts = 100
    /// The maximum number of characters by which a note identifies a line.
    private static let shownDraft = 40

    /// The relay's URL, for the user.
    private let relay: String
    private var reception = Reception()
    private var outbox = Outbox()
    /// The remaining attempts to join while no response has arrived. They are limited, because the address may be
    /// wrong.
    private var joinAttempts = 4
    /// The number of messages of the history to show. `nil` shows all.
    private let shownHistory: Int?
    private var history: [Report] = []
    /// The connection problem that was last reported. `nil` while the connection works.
    private var trouble: String?
    /// The problem that was last reported about the first draft. `nil` if there was none.
    private var draftTrouble: String?
    private let endsWithInput: Bool
    private var inputHasEnded = false
    /// The number of lines that the relay or this program has rejected.
    private(set) var refused = 0

    /// Creates the state of a chat that has not joined yet.
    ///
    /// - Parameters:
    ///   - relay: The relay's URL.
    ///   - shownHistory: The number of messages from before the start to show. `nil` shows all.
    ///   - endsWithInput: Whether the chat ends after every line of the input was posted.
    init(relay: String, shownHistory: Int? = nil, endsWithInput: Bool) {
        self.relay = relay
        self.shownHistory = shownHistory
        self.endsWithInput = endsWithInput
    }

    // MARK: - Receiving

    /// The next call to receive messages.
    var call: Reception.Call { reception.call }
    /// The last message that was shown or skipped.
    var cursor: MessageID { reception.cursor }

    mutating func joined() {
        trouble = nil
        reception.joined()
    }

    /// Processes a page of the history.
    mutating func received(_ page: ChatPage) -> [Report] {
        let wasRead = reception.historyIsRead
        let reports = shown(reception.received(page), isHistory: !wasRead)
        guard reception.historyIsRead, !wasRead else { return reports }
        defer { history = [] }
        return reports + history
    }

    /// Records that the stream is open.
    ///
    /// - Parameter start: The message after which the stream was requested.
    mutating func opened(after start: MessageID) -> [Report] {
        defer { trouble = nil }
        return shown(reception.opened(after: start), isHistory: false)
    }

    /// Processes an event of the stream.
    ///
    /// - Throws: A ``PushChatError`` if the event is not one that the relay sends, or if the member has left.
    mutating func received(_ event: ServerSentEvent) throws(PushChatError) -> [Report] {
        shown(try reception.received(RoomStreamEvent(event)), isHistory: false)
    }

    private mutating func shown(_ events: [ReceivedEvent], isHistory: Bool) -> [Report] {
        events.compactMap { received in
            switch received.event {
            case .message(let message):
                guard isHistory, let shownHistory else { return .message(message) }
                history.append(.message(message))
                if history.count > shownHistory { history.removeFirst(history.count - shownHistory) }
                return nil
            case .edited(let message), .cleared(let message), .resolved(let message):
                guard isHistory, shownHistory != nil else { return .changed(message) }
                for (index, report) in history.enumerated() {
                    if case .message(let old) = report, old.id == message.id { history[index] = .message(message) }
                }
                return nil
            // The history has no deleted messages.
            case .deleted where isHistory: return nil
            case .deleted(let id): return .deleted(id)
            case .members(let count): return .members(count)
            case .code(let code): return .moved(code)
            case .connected: return .note("connected again")
            case .databaseReplaced:
                return .note("the relay's database has been replaced: the room's messages follow again")
            case .receipt, .disconnected, .sent, .rejected: return nil
            }
        }
    }

    /// Decides what to do after a call to receive has failed, or the stream has ended.
    ///
    /// - Parameter random: A random number from 0 to 1, which spreads the reconnects of many clients.
    mutating func receivingFailed(_ error: PushChatError, random: Double) -> ([Report], Next) {
        if reception.call == .join {
            switch error {
            case .unreachable: return over(error)
            case .connectionLost(let reason) where joinAttempts <= 1:
                return (
                    [], .end(([relay] + [reason].filter { !$0.isEmpty }).joined(separator: ": ") + " did not answer")
                )
            case .connectionLost: joinAttempts -= 1
            default: break
            }
        }
        switch reception.failed(error, random: random).1 {
        case .end(let error): return over(error)
        case .retry(let delay): return (say(error, delay), .again(after: delay))
        }
    }

    private mutating func say(_ error: PushChatError, _ delay: Duration) -> [Report] {
        let lost = "the connection is lost; connecting again"
        // Report an outage once. Later texts of the same outage differ only in the time.
        let (kind, text) =
            switch error {
            case .rejected(let rejection):
                (rejection.message, "\(rejection.message); trying again in \(Self.seconds(delay))")
            case .connectionLost(let reason) where !reason.isEmpty: ("lost", "\(lost) (\(relay): \(reason))")
            default: ("lost", lost)
            }
        guard trouble != kind else { return [] }
        trouble = kind
        return [.note(text)]
    }

    /// The texts with which the chat ends after the member lost its place in the room.
    static let removed = "you were removed from the room"
    static let gone = "you are no longer in the room: you were removed, or the room was closed"

    /// Returns the end of the chat, for errors that no retry can change.
    private func over(_ error: PushChatError) -> ([Report], Next) {
        switch error {
        case .left(let wasRemoved):
            ([.left(wasRemoved: wasRemoved)], .end(wasRemoved ? Self.removed : Self.gone))
        case .rejected(let rejection) where rejection.code == "not_joined":
            ([.left(wasRemoved: false)], .end(Self.gone))
        case .rejected(let rejection) where rejection.status == 401:
            ([], .end("\(rejection.message.oneLine): give a session with --session or PUSHCHAT_SESSION"))
        case .unreachable:
            (
                [],
                .end(
                    "no relay answers at \(relay): start one with `pushchat serve` or `pushchat dev`, or say where it is "
                        + "with --relay")
            )
        case .unexpectedResponse(let text):
            ([], .end("\(relay) does not answer like a PushChat relay: is it one? (\(text.oneLine))"))
        case .rejected, .connectionLost, .storage, .cancelled: ([], .end(error.description.oneLine))
        }
    }

    private static func seconds(_ duration: Duration) -> String {
        "\(max(1, (duration.milliseconds + 999) / 1000)) s"
    }

    // MARK: - Posting

    /// The lines that the relay has not accepted yet.
    var drafts: [OutboxMessage] { outbox.messages }

    /// Whether reading must pause until the relay has accepted a line.
    var isFull: Bool { drafts.count >= Self.maxDrafts }

    /// The text that `/help` prints.
    static let help: [Report] = [
        .note("a line is a message: Enter sends it"),
        .note("Ctrl-D or Ctrl-C ends the chat; you stay a member of the room, unless it was started with --leave"),
        .note("`pushchat chat --help` lists the options"),
    ]

    /// Processes a line that was typed or read.
    ///
    /// - Parameters:
    ///   - isInteractive: Whether a person types. A script's `/help` is a message like any other line.
    ///   - key: A new idempotency key.
    mutating func typed(_ line: InputLine, isInteractive: Bool = false, key: @autoclosure () -> String) -> [Report] {
        switch line {
        case .text(let text) where isInteractive && FieldText.trimmed(text) == "/help": return Self.help
        case .text(let text):
            if !FieldText.trimmed(text).isEmpty { outbox.append(OutboxMessage(id: key(), text: text)) }
            return []
        case .unusable(let reason):
            refused += 1
            return [.note("a line was not sent: \(reason)")]
        }
    }

    mutating func inputEnded() { inputHasEnded = true }

    /// The draft to post now. `nil` until the history is read: a line that is posted earlier would count as history.
    var nextDraft: OutboxMessage? { reception.historyIsRead ? drafts.first : nil }

    /// Whether everything is done: the history is shown, the input has ended, and every line was accepted or rejected.
    var isDone: Bool { endsWithInput && inputHasEnded && drafts.isEmpty && reception.historyIsRead }

    /// Records that the relay has accepted a draft.
    mutating func posted(_ draft: OutboxMessage) {
        outbox.accepted(draft.id)
        draftTrouble = nil
    }

    mutating func postingFailed(_ draft: OutboxMessage, _ error: PushChatError, random: Double) -> ([Report], Next) {
        switch outbox.failed(draft, error, random: random) {
        case .retry(let delay):
            let text =
                if case .rejected(let rejection) = error {
                    "not sent yet: \(rejection.message); trying again"
                } else {
                    "not sent yet; trying until the relay is back"
                }
            guard draftTrouble != text else { return ([], .again(after: delay)) }
            draftTrouble = text
            return ([.note(text)], .again(after: delay))
        case .dropped(let message, let rejection):
            draftTrouble = nil
            refused += 1
            return ([.note("not sent (\(Self.shown(message.text))): \(rejection.message)")], .goOn)
        case .end(let error): return over(error)
        }
    }

    /// Returns the beginning of a line.
    static func shown(_ text: String) -> String {
        text.count <= shownDraft ? text : text.prefix(shownDraft - 1) + "…"
    }
}

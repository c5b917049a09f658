package import ChatDomain

/// A message, as the relay returns it to a member.
package struct ChatMessage: Equatable {
    package let id: MessageID
    package let name: String
    package let text: String
    package let sentAt: Timestamp
    package let isOwn: Bool
    /// Whether a program wrote the message, not a member.
    package let isOfProgram: Bool
    /// The complete object, as it arrived.
    package let json: JSONObject

    package init?(_ value: JSONValue) {
        guard let json = value.object, let id = json["id"]?.integer, let name = json["name"]?.text,
            let text = json["text"]?.text, let sentAt = json["sent_at"]?.text.flatMap(Timestamp.init(rfc3339:))
        else { return nil }
        (self.id, self.name, self.text, self.sentAt, self.json) = (id, name, text, sentAt, json)
        isOwn = json["own"] == .bool(true)
        isOfProgram = json["program"] == .bool(true)
    }
}

/// Decides what `pushchat chat` does next: which call to make, which messages to show, and which lines to post or
/// retry. A pure value without sockets, clocks and terminals.
///
/// Shows every message once, in the order of the ids. Pages of the history and the stream both start after the last
/// message that was shown, and messages at or below its id are dropped. Posts each line with its own idempotency key,
/// one after another, until the relay has accepted or rejected it.
package struct ChatClientState {
    /// The next call to receive messages.
    package enum Call: Equatable {
        case join
        case page(since: MessageID)
        case stream(since: MessageID)
    }

    /// Something to show to the user.
    package enum Report: Equatable {
        case message(ChatMessage)
        /// The number of members that are now in the room.
        case members(Int)
        /// A message that was shown has been deleted.
        case deleted(MessageID)
        /// The member is no longer in the room. `wasRemoved` is false if the member left by itself, or if the reason is
        /// unknown.
        case left(wasRemoved: Bool)
        /// The room has this code now.
        case moved(String)
        /// A note to the user about the chat itself.
        case note(String)
    }

    /// The reaction to a failure.
    package enum Next: Equatable {
        /// Wait, then make the calls that ``call`` and ``nextDraft`` name at that time. They are usually the ones that
        /// failed.
        case again(after: Duration)
        case goOn
        /// The chat is over, for the reason in the text.
        case end(String)
    }

    /// A line that the relay has not accepted yet.
    package struct Draft: Equatable {
        package let key: String
        package let text: String
    }

    /// The maximum number of messages in a page of the history. This is also the relay's limit.
    package static let page = 500
    /// The maximum number of lines that may wait for the relay. The chat reads no more lines until there is room.
    private static let maximumDrafts = 100
    /// The maximum number of characters by which a note identifies a line.
    private static let shownDraft = 40

    package private(set) var call = Call.join
    /// The remaining attempts to join while no response has arrived. They are limited, because the address may be
    /// wrong.
    private var joinAttempts = 4
    /// The last message that was shown or skipped.
    package private(set) var cursor: MessageID = 0
    /// The message after which the stream was requested. The cursor may have moved on since, because a page can arrive
    /// before the stream.
    private var streamStart: MessageID = 0
    /// The number of messages of the history to show. `nil` shows all.
    private let shownHistory: Int?
    private var history: [ChatMessage] = []
    private var historyIsRead = false
    private var members: Int?
    /// The room's code. `nil` until the relay has named it.
    private var room: String?
    private var backoff = Backoff(first: .milliseconds(300), longest: .seconds(10))
    /// The connection problem that was last reported. `nil` while the connection works.
    private var trouble: String?

    package private(set) var drafts: [Draft] = []
    private var postBackoff = Backoff(first: .milliseconds(300), longest: .seconds(5))
    /// The problem that was last reported about the first draft. `nil` if there was none.
    private var draftTrouble: String?
    private let endsWithInput: Bool
    private var inputHasEnded = false
    /// The number of lines that the relay or this program has rejected.
    package private(set) var refused = 0

    /// Creates the state of a chat that has not joined yet.
    ///
    /// - Parameters:
    ///   - shownHistory: The number of messages from before the start to show. `nil` shows all.
    ///   - endsWithInput: Whether the chat ends after every line of the input was posted.
    package init(shownHistory: Int? = nil, endsWithInput: Bool) {
        self.shownHistory = shownHistory
        self.endsWithInput = endsWithInput
    }

    // MARK: - Receiving

    package mutating func joined() {
        backoff.reset()
        trouble = nil
        call = .page(since: cursor)
    }

    /// Processes a page of the history.
    ///
    /// - Throws: A ``CallFailure`` if the JSON is not a page.
    package mutating func received(_ page: JSONValue) throws -> [Report] {
        guard let values = page.object?["messages"]?.array, let next = page.object?["next"]?.integer else {
            throw CallFailure.hopeless("unexpected response from the relay: \(page.description.prefix(200))")
        }
        var output: [Report] = []
        if let code = page.object?["code"]?.text { output += moved(to: code) }
        for value in values { output += try take(value) }
        // A page without messages names the position at which the member's history begins.
        if values.isEmpty { cursor = max(cursor, next) }
        guard values.count < Self.page else {
            call = .page(since: cursor)
            return output
        }
        call = .stream(since: cursor)
        guard !historyIsRead else { return output }
        historyIsRead = true
        defer { history = [] }
        return output + history.map { .message($0) }
    }

    /// Records that the stream is open.
    ///
    /// - Parameter since: The message after which the stream was requested.
    package mutating func opened(since: MessageID) -> [Report] {
        streamStart = since
        defer { trouble = nil }
        return trouble == nil ? [] : [.note("connected again")]
    }

    /// Processes an event of the stream.
    ///
    /// - Throws: A ``CallFailure`` if the event is not one that the relay sends.
    package mutating func received(_ event: ServerSentEvent) throws -> [Report] {
        switch event.name {
        case "message" where event.data.isEmpty:
            return begun(at: event.id.flatMap { MessageID($0) } ?? cursor)
        case "message":
            backoff.reset()
            return try take(Self.json(event))
        case "room":
            // This event follows soon after the stream opens. A stream that opens and ends at once must not reset the
            // pauses.
            backoff.reset()
            guard let count = try Self.json(event).object?["members"]?.integer, count != Int64(members ?? -1) else {
                return []
            }
            members = Int(clamping: count)
            return [.members(Int(clamping: count))]
        case "deleted":
            guard let id = try Self.json(event).object?["id"]?.integer, id <= cursor else { return [] }
            return [.deleted(id)]
        case "code":
            guard let code = try Self.json(event).object?["code"]?.text else { return [] }
            return moved(to: code)
        case "left":
            return [.left(wasRemoved: try Self.json(event).object?["reason"]?.text == "removed")]
        // Ignore events of newer relays.
        default: return []
        }
    }

    private mutating func moved(to code: String) -> [Report] {
        guard code != room else { return [] }
        defer { room = code }
        // The first page names the room that was joined, so that is not a change.
        return room == nil ? [] : [.moved(code)]
    }

    /// Processes the position at which the stream begins. It is earlier than requested if the relay's database has
    /// never had the requested message.
    private mutating func begun(at start: MessageID) -> [Report] {
        guard start < streamStart else { return [] }
        cursor = start
        return [.note("the relay's database has been replaced: the room's messages follow again")]
    }

    private mutating func take(_ value: JSONValue) throws -> [Report] {
        guard let message = ChatMessage(value) else {
            throw CallFailure.hopeless("unexpected response from the relay: \(value.description.prefix(200))")
        }
        guard message.id > cursor else { return [] }
        cursor = message.id
        if case .stream = call { call = .stream(since: cursor) }
        guard !historyIsRead, let shownHistory else { return [.message(message)] }
        history.append(message)
        if history.count > shownHistory { history.removeFirst(history.count - shownHistory) }
        return []
    }

    private static func json(_ event: ServerSentEvent) throws -> JSONValue {
        guard let value = try? JSONValue(parsing: event.data) else {
            throw CallFailure.hopeless("unexpected event from the relay: \(event.data.prefix(200))")
        }
        return value
    }

    /// Decides what to do after a call to receive has failed, or the stream has ended.
    ///
    /// - Parameter random: A random number from 0 to 1, which spreads the reconnects of many clients.
    package mutating func receivingFailed(_ failure: CallFailure, random: Double) -> ([Report], Next) {
        switch failure {
        case .hopeless(let text): return ([], .end(text))
        case .noRelay(let text) where call == .join: return ([], .end(text))
        case .lost(let text) where call == .join && joinAttempts <= 1: return ([], .end("\(text) did not answer"))
        case .noRelay, .lost:
            if call == .join { joinAttempts -= 1 }
            let delay = backoff.delay(random: random)
            return (say("the connection is lost; connecting again", failure), .again(after: delay))
        case .refused(let refusal):
            guard refusal.isTemporary else { return Self.over(refusal) }
            let delay = max(backoff.delay(random: random), refusal.retryAfter ?? .zero)
            return (say("\(refusal.message); trying again in \(Self.seconds(delay))", failure), .again(after: delay))
        }
    }

    private mutating func say(_ text: String, _ failure: CallFailure) -> [Report] {
        // Report an outage once. Later texts of the same outage differ only in the time.
        let kind = if case .refused(let refusal) = failure { refusal.message } else { "lost" }
        guard trouble != kind else { return [] }
        trouble = kind
        if case .lost(let reason) = failure, reason.contains(" ") { return [.note("\(text) (\(reason))")] }
        return [.note(text)]
    }

    /// The texts with which the chat ends after the member lost its place in the room.
    package static let removed = "you were removed from the room"
    package static let gone = "you are no longer in the room: you were removed, or the room was closed"

    /// Returns the end of the chat, for rejections that no retry can change.
    private static func over(_ refusal: RelayRefusal) -> ([Report], Next) {
        switch (refusal.status, refusal.code) {
        case (404, "not_joined"):
            ([.left(wasRemoved: false)], .end(gone))
        case (401, _):
            ([], .end("\(refusal.message): give a session with --session or PUSHCHAT_SESSION"))
        default: ([], .end(refusal.message))
        }
    }

    private static func seconds(_ duration: Duration) -> String {
        "\(max(1, (duration.milliseconds + 999) / 1000)) s"
    }

    // MARK: - Posting

    /// Whether reading must pause until the relay has accepted a line.
    package var isFull: Bool { drafts.count >= Self.maximumDrafts }

    /// The text that `/help` prints.
    package static let help: [Report] = [
        .note("a line is a message: Enter sends it"),
        .note("Ctrl-D or Ctrl-C ends the chat; you stay a member of the room, unless it was started with --leave"),
        .note("`pushchat chat --help` lists the options"),
    ]

    /// Processes a line that was typed or read.
    ///
    /// - Parameters:
    ///   - isInteractive: Whether a person types. A script's `/help` is a message like any other line.
    ///   - key: A new idempotency key.
    package mutating func typed(_ line: InputLine, isInteractive: Bool = false, key: @autoclosure () -> String)
        -> [Report]
    {
        switch line {
        case .text(let text) where isInteractive && FieldText.trimmed(text) == "/help": return Self.help
        case .text(let text):
            if !FieldText.trimmed(text).isEmpty { drafts.append(Draft(key: key(), text: text)) }
            return []
        case .unusable(let reason):
            refused += 1
            return [.note("a line was not sent: \(reason)")]
        }
    }

    package mutating func inputEnded() { inputHasEnded = true }

    /// The draft to post now. `nil` until the history is read: a line that is posted earlier would count as history.
    package var nextDraft: Draft? { historyIsRead ? drafts.first : nil }

    /// Whether everything is done: the history is shown, the input has ended, and every line was accepted or rejected.
    package var isDone: Bool { endsWithInput && inputHasEnded && drafts.isEmpty && historyIsRead }

    /// Records that the relay has accepted the first draft.
    package mutating func posted() {
        drafts.removeFirst()
        draftTrouble = nil
        postBackoff.reset()
    }

    package mutating func postingFailed(_ failure: CallFailure, random: Double) -> ([Report], Next) {
        switch failure {
        case .hopeless(let text): return ([], .end(text))
        case .noRelay, .lost:
            let delay = postBackoff.delay(random: random)
            return (sayOfDraft("not sent yet; trying until the relay is back"), .again(after: delay))
        case .refused(let refusal) where refusal.isTemporary:
            let delay = max(postBackoff.delay(random: random), refusal.retryAfter ?? .zero)
            return (sayOfDraft("not sent yet: \(refusal.message); trying again"), .again(after: delay))
        case .refused(let refusal):
            guard [400, 413, 415, 422].contains(refusal.status) else { return Self.over(refusal) }
            let text = drafts.first?.text ?? ""
            posted()
            refused += 1
            return ([.note("not sent (\(Self.shown(text))): \(refusal.message)")], .goOn)
        }
    }

    private mutating func sayOfDraft(_ text: String) -> [Report] {
        guard draftTrouble != text else { return [] }
        draftTrouble = text
        return [.note(text)]
    }

    /// Returns the beginning of a line.
    package static func shown(_ text: String) -> String {
        text.count <= shownDraft ? text : text.prefix(shownDraft - 1) + "…"
    }
}

extension RelayRefusal {
    /// Whether a later attempt may succeed.
    fileprivate var isTemporary: Bool { status == 408 || status == 429 || status >= 500 }
}

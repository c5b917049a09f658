import ChatDomain

/// A message, as the relay answers it to a member.
struct ChatMessage: Equatable {
    let id: MessageID
    let name: String
    let text: String
    let sentAt: Timestamp
    let isOwn: Bool
    /// Written by a program, and by no member.
    let isOfProgram: Bool
    /// All of it, as it came.
    let json: JSONObject

    init?(_ value: JSONValue) {
        guard let json = value.object, let id = json["id"]?.integer, let name = json["name"]?.text,
            let text = json["text"]?.text, let sentAt = json["sent_at"]?.text.flatMap(Timestamp.init(rfc3339:))
        else { return nil }
        (self.id, self.name, self.text, self.sentAt, self.json) = (id, name, text, sentAt, json)
        isOwn = json["own"] == .bool(true)
        isOfProgram = json["program"] == .bool(true)
    }
}

/// What `pushchat chat` does next: which call is made, which messages are shown, what is posted and posted again. A value,
/// without sockets, clocks and terminals.
///
/// Every message is shown once, in the order of the ids: pages of the history and the stream both begin behind the last one
/// that was shown, and what is not above it is dropped. Every line is posted with a key of its own, one after another, until
/// the relay has taken or refused it.
struct ChatClientState {
    /// What the shell does to receive.
    enum Call: Equatable {
        case join
        case page(since: MessageID)
        case stream(since: MessageID)
    }

    /// What is to be said.
    enum Report: Equatable {
        case message(ChatMessage)
        /// So many are in the room now.
        case members(Int)
        /// A message that was shown is deleted.
        case deleted(MessageID)
        /// The member is not in the room any more: by itself, or for all that is known.
        case left(wasRemoved: Bool)
        /// The room has this code now.
        case moved(String)
        /// To the user, beside the chat.
        case note(String)
    }

    /// After a failure.
    enum Next: Equatable {
        /// The same again, or what ``call`` and ``nextDraft`` say then.
        case again(after: Duration)
        case goOn
        /// The chat is over, in words.
        case end(String)
    }

    /// A line that the relay has not taken yet.
    struct Draft: Equatable {
        let key: String
        let text: String
    }

    /// Messages that one page of the history has at most: as many as the relay gives.
    static let page = 500
    /// Lines that wait for the relay; more are not read.
    private static let maximumDrafts = 100
    /// Characters of a line by which a note says which it is.
    private static let shownDraft = 40

    private(set) var call = Call.join
    /// How often it may still be tried to join, while no answer has come: the address may be wrong.
    private var joinAttempts = 4
    /// The last message that was shown or skipped.
    private(set) var cursor: MessageID = 0
    /// After which message the stream was asked to begin. The cursor may have moved since: a page may come before the stream.
    private var streamStart: MessageID = 0
    /// Of the history, only so many are shown; nil for all.
    private let shownHistory: Int?
    private var history: [ChatMessage] = []
    private var historyIsRead = false
    private var members: Int?
    /// The room's code; `nil` until the relay has named it.
    private var room: String?
    private var backoff = Backoff(first: .milliseconds(300), longest: .seconds(10))
    /// What was said of the connection, until it is good again.
    private var trouble: String?

    private(set) var drafts: [Draft] = []
    private var postBackoff = Backoff(first: .milliseconds(300), longest: .seconds(5))
    /// What was said of the first draft, while it was not taken.
    private var draftTrouble: String?
    private let endsWithInput: Bool
    private var inputHasEnded = false
    /// Lines that the relay, or this program, has refused.
    private(set) var refused = 0

    /// - Parameters:
    ///   - shownHistory: of the messages before the start, only so many are shown; nil for all.
    ///   - endsWithInput: whether the chat is over when every line of the input was posted.
    init(shownHistory: Int? = nil, endsWithInput: Bool) {
        self.shownHistory = shownHistory
        self.endsWithInput = endsWithInput
    }

    // MARK: - Receiving

    mutating func joined() {
        backoff.reset()
        trouble = nil
        call = .page(since: cursor)
    }

    /// A page of the history has come.
    /// - Throws: a ``Failure`` for what is no page.
    mutating func received(_ page: JSONValue) throws -> [Report] {
        guard let values = page.object?["messages"]?.array, let next = page.object?["next"]?.integer else {
            throw Failure("the relay's answer is not as expected: \(page.description.prefix(200))")
        }
        var output: [Report] = []
        if let code = page.object?["code"]?.text { output += moved(to: code) }
        for value in values { output += try take(value) }
        // A page without messages says where the member's history begins.
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

    /// The stream has opened.
    /// - Parameter since: with which it was asked for.
    mutating func opened(since: MessageID) -> [Report] {
        streamStart = since
        defer { trouble = nil }
        return trouble == nil ? [] : [.note("connected again")]
    }

    /// - Throws: a ``Failure`` for what is none of the relay's events.
    mutating func received(_ event: ServerSentEvent) throws -> [Report] {
        switch event.name {
        case "message" where event.data.isEmpty:
            return begun(at: event.id.flatMap { MessageID($0) } ?? cursor)
        case "message":
            backoff.reset()
            return try take(Self.json(event))
        case "room":
            // Comes soon after the stream has opened: what opens and ends at once is no connection yet.
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
        // What a newer relay may tell.
        default: return []
        }
    }

    private mutating func moved(to code: String) -> [Report] {
        guard code != room else { return [] }
        defer { room = code }
        // The first page names the room that was joined.
        return room == nil ? [] : [.moved(code)]
    }

    /// The stream begins after a message. It begins earlier than asked for if the relay has never had that one.
    private mutating func begun(at start: MessageID) -> [Report] {
        guard start < streamStart else { return [] }
        cursor = start
        return [.note("the relay's database is another than before: the room's messages follow again")]
    }

    private mutating func take(_ value: JSONValue) throws -> [Report] {
        guard let message = ChatMessage(value) else {
            throw Failure("the relay's answer is not as expected: \(value.description.prefix(200))")
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
            throw Failure("the relay's stream is not as expected: \(event.data.prefix(200))")
        }
        return value
    }

    /// A call to receive has failed, or the stream has ended.
    /// - Parameter random: from 0 to 1, so that not all clients come back at the same moment.
    mutating func receivingFailed(_ failure: CallFailure, random: Double) -> ([Report], Next) {
        switch failure {
        case .hopeless(let text): return ([], .end(text))
        case .noRelay(let text) where call == .join: return ([], .end(text))
        case .lost(let text) where call == .join && joinAttempts <= 1: return ([], .end("\(text) did not answer"))
        case .noRelay, .lost:
            if call == .join { joinAttempts -= 1 }
            let delay = backoff.delay(random: random)
            return (say("the connection is lost; connecting again", failure), .again(after: delay))
        case .refused(let refusal):
            guard refusal.isPassing else { return Self.over(refusal) }
            let delay = max(backoff.delay(random: random), refusal.retryAfter ?? .zero)
            return (say("\(refusal.message); trying again in \(Self.seconds(delay))", failure), .again(after: delay))
        }
    }

    private mutating func say(_ text: String, _ failure: CallFailure) -> [Report] {
        // Times differ, and who has been told of an outage knows of it.
        let kind = if case .refused(let refusal) = failure { refusal.message } else { "lost" }
        guard trouble != kind else { return [] }
        trouble = kind
        if case .lost(let reason) = failure, reason.contains(" ") { return [.note("\(text) (\(reason))")] }
        return [.note(text)]
    }

    /// The words with which a chat ends that the relay has ended.
    static let removed = "you were removed from the room"
    static let gone = "you are not in the room any more: you were removed, or the room was closed"

    /// What ends the chat, whatever was asked for.
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

    /// Whether no further line is to be read now.
    var isFull: Bool { drafts.count >= Self.maximumDrafts }

    /// The answer to `/help`.
    static let help: [Report] = [
        .note("a line is a message: Enter sends it"),
        .note("Ctrl-D or Ctrl-C ends the chat; you stay a member of the room, unless it was started with --leave"),
        .note("`pushchat chat --help` lists the options"),
    ]

    /// A line was typed, or read.
    /// - Parameters:
    ///   - isInteractive: whether a person types it. A script's `/help` is a message like any other line.
    ///   - key: one that no other line has.
    mutating func typed(_ line: InputLine, isInteractive: Bool = false, key: @autoclosure () -> String) -> [Report] {
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

    mutating func inputEnded() { inputHasEnded = true }

    /// What is to be posted now: nothing before the history is read, which would count it in.
    var nextDraft: Draft? { historyIsRead ? drafts.first : nil }

    /// All is done: the history is shown, the input has ended, and every line was taken or refused.
    var isDone: Bool { endsWithInput && inputHasEnded && drafts.isEmpty && historyIsRead }

    /// The relay has taken the first draft.
    mutating func posted() {
        drafts.removeFirst()
        draftTrouble = nil
        postBackoff.reset()
    }

    mutating func postingFailed(_ failure: CallFailure, random: Double) -> ([Report], Next) {
        switch failure {
        case .hopeless(let text): return ([], .end(text))
        case .noRelay, .lost:
            let delay = postBackoff.delay(random: random)
            return (sayOfDraft("not sent yet; trying until the relay is back"), .again(after: delay))
        case .refused(let refusal) where refusal.isPassing:
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

    /// The beginning of a line.
    static func shown(_ text: String) -> String {
        text.count <= shownDraft ? text : text.prefix(shownDraft - 1) + "…"
    }
}

extension RelayRefusal {
    /// It is worth asking again.
    fileprivate var isPassing: Bool { status == 408 || status == 429 || status >= 500 }
}

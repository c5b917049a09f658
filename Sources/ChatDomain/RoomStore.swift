/// A member enters a room, alone or from another room: a member is in one room at a time.
package struct JoinRequest: Sendable, Hashable {
    package var member: MemberID
    package var app: AppName
    /// Nil while the app has none (`0` in the form): the member reads the room without being pushed to.
    package var token: DeviceToken?
    package var nickname: Nickname
    package var code: SecretCode
    package var client: ClientInfo
    /// Whose session it is, where registration needs one: the user of the device from now on.
    package var user: UserReference?

    package init(
        member: MemberID, app: AppName = .default, token: DeviceToken?, nickname: Nickname, code: SecretCode,
        client: ClientInfo = ClientInfo(), user: UserReference? = nil
    ) {
        self.member = member
        self.app = app
        self.token = token
        self.nickname = nickname
        self.code = code
        self.client = client
        self.user = user
    }
}

/// Somebody says something to a room: a member to its own, or a program.
package struct PostRequest: Sendable, Hashable {
    /// A program that posts. It need not be a member, and the room need not have any.
    package struct Program: Sendable, Hashable {
        package var nickname: Nickname
        package var room: SecretCode
        package var extras: MessageExtras

        package init(nickname: Nickname, room: SecretCode, extras: MessageExtras = .none) {
            self.nickname = nickname
            self.room = room
            self.extras = extras
        }
    }

    /// The writer; a program's name for itself.
    package var member: MemberID
    /// Nil for a member, whose name and room the store knows.
    package var program: Program?
    package var text: MessageText
    /// A repeat with the same key and content is the same message: it is answered alike and not sent again.
    package var idempotencyKey: String?
    package var client: ClientInfo

    package init(
        member: MemberID, program: Program? = nil, text: MessageText, idempotencyKey: String? = nil,
        client: ClientInfo = ClientInfo()
    ) {
        self.member = member
        self.program = program
        self.text = text
        self.idempotencyKey = idempotencyKey
        self.client = client
    }
}

/// What became of a post.
package struct PostReceipt: Sendable, Hashable {
    package let message: MessageID
    /// The key was seen before: this is the earlier message, nothing was written.
    package let isRepeat: Bool
    /// Devices that a push was queued for before the answer; 0 for a large room, whose pushes follow behind it.
    package let queued: Int

    package init(message: MessageID, isRepeat: Bool, queued: Int) {
        self.message = message
        self.isRepeat = isRepeat
        self.queued = queued
    }
}

/// Keeps members, rooms and messages. When a call returns, what it did is on disk; when it throws, nothing was done.
package protocol RoomStore: Sendable {
    /// Enters a room. True if nobody was in it before, so that its code may have been a guess.
    @discardableResult
    func join(_ request: JoinRequest) async throws(ChatError) -> Bool
    /// Also succeeds when the member had not joined; says whether it had.
    @discardableResult
    func leave(_ member: MemberID) async throws(ChatError) -> Bool
    /// The member's device has another token. With a `user`, whose session it is, the device is that user's from now on.
    /// With an `app`, the device is of that app from now on. Throws ``ChatError/Code/notJoined``, and
    /// ``ChatError/browserNeedsSubscription`` for a browser without an `app`: the caller gives it with a subscription only.
    func update(
        _ member: MemberID, token: DeviceToken, app: AppName?, client: ClientInfo, user: UserReference?
    ) async throws(ChatError)
    /// Writes the message and its pushes. Throws ``ChatError/Code/notJoined`` for a member.
    func post(_ request: PostRequest) async throws(ChatError) -> PostReceipt
    /// The room's messages after `since`, or all since the member entered; never what was said before that. Throws
    /// ``ChatError/Code/notJoined``.
    func messages(for member: MemberID, since: MessageID?, limit: Int) async throws(ChatError) -> MessagePage
    /// How far a member's own message has come. Throws ``ChatError/Code/notJoined``, and ``ChatError/Code/notFound`` for what
    /// is no message of its own in its room.
    func receipt(of message: MessageID, for member: MemberID) async throws(ChatError) -> Receipt
    /// Whether the store answers; for readiness.
    func ping() async throws(ChatError)
}

extension RoomStore {
    /// The app of a member's device after an update: the given one, or the old one.
    package static func app(_ given: AppName?, after old: AppName) throws(ChatError) -> AppName {
        guard let given else {
            if old == .web { throw .browserNeedsSubscription }
            return old
        }
        return given
    }

    /// The device stays of its app.
    package func update(
        _ member: MemberID, token: DeviceToken, client: ClientInfo, user: UserReference?
    ) async throws(ChatError) {
        try await update(member, token: token, app: nil, client: client, user: user)
    }
}

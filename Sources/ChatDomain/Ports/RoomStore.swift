/// A member's request to enter a room, for the first time or from another room. A member is in one room at a time.
package struct JoinRequest: Sendable, Hashable {
    package var member: MemberID
    package var app: AppName
    /// `nil` if the app has no token (`0` in the form). The member then reads the room without receiving pushes.
    package var token: DeviceToken?
    package var nickname: Nickname
    package var code: SecretCode
    package var client: ClientInfo
    /// The user of the session, if registration requires one. The device belongs to this user from now on.
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

/// A request to post a message: from a member to its room, or from a program to any room.
package struct PostRequest: Sendable, Hashable {
    /// A program that posts. It need not be a member, and the room need not have members.
    package struct Program: Sendable, Hashable {
        package var nickname: Nickname
        package var room: SecretCode

        package init(nickname: Nickname, room: SecretCode) {
            self.nickname = nickname
            self.room = room
        }
    }

    /// The writer. For a program, ``MemberID/administrator`` or ``MemberID/program(token:)``.
    package var member: MemberID
    /// `nil` for a member, because the store has the member's name and room.
    package var program: Program?
    /// The room in which the member must be. `nil` for any. A credential belongs to a member's stay in one room, and the
    /// member may change its room after the credential was checked.
    package var onlyRoom: SecretCode?
    package var content: MessageContent
    /// A second post with the same key and content gets the same response and is not sent again.
    package var idempotencyKey: String?
    package var client: ClientInfo

    package init(
        member: MemberID, program: Program? = nil, onlyRoom: SecretCode? = nil,
        content: MessageContent, idempotencyKey: String? = nil, client: ClientInfo = ClientInfo()
    ) {
        self.member = member
        self.program = program
        self.onlyRoom = onlyRoom
        self.content = content
        self.idempotencyKey = idempotencyKey
        self.client = client
    }
}

/// The result of a post.
package struct PostReceipt: Sendable, Hashable {
    package let message: MessageID
    /// The time at which the message was posted, as stored.
    package let time: Timestamp
    /// Whether the key was used before. The receipt then belongs to the earlier message, and nothing was written.
    package let isRepeat: Bool
    /// The number of devices for which a push was queued before the response. 0 for a large room, whose pushes are
    /// queued afterwards.
    package let queued: Int

    package init(message: MessageID, time: Timestamp, isRepeat: Bool, queued: Int) {
        self.message = message
        self.time = time
        self.isRepeat = isRepeat
        self.queued = queued
    }
}

/// The app of a member's device after an update.
package enum AppChoice: Sendable, Hashable {
    case app(AppName)
    /// The member's app, if its gateway takes the token. Otherwise another app.
    case current(otherwise: AppName?)
}

/// Stores members, rooms and messages. When a call returns, its changes are on disk. When it throws, it has changed
/// nothing.
package protocol RoomStore: Sendable {
    /// Enters a room.
    ///
    /// - Returns: Whether the room was empty before, so that its code may have been a guess.
    @discardableResult
    func join(_ request: JoinRequest) async throws(ChatError) -> Bool
    /// Leaves the room. Succeeds even if the member had not joined.
    ///
    /// - Returns: Whether the member had joined.
    @discardableResult
    func leave(_ member: MemberID) async throws(ChatError) -> Bool
    /// Stores another token for the member's device.
    ///
    /// - Parameters:
    ///   - app: The app to which the device belongs from now on.
    ///   - user: The user of the session, to whom the device belongs from now on. `nil` without a session.
    /// - Throws: ``ChatError/Code/notJoined``. ``ChatError/browserNeedsSubscription`` for a browser without a named
    ///   app: the caller names it only with a subscription.
    func update(
        _ member: MemberID, token: DeviceToken, app: AppChoice, client: ClientInfo, user: UserReference?
    ) async throws(ChatError)
    /// Stores the message and its pushes.
    ///
    /// - Throws: ``ChatError/Code/notJoined`` for a member that is not in a room, or not in ``PostRequest/onlyRoom``.
    func post(_ request: PostRequest) async throws(ChatError) -> PostReceipt
    /// Returns the room's messages after `since`, or all that the member may read. Never returns messages from before
    /// the member's history.
    ///
    /// - Parameter isPeek: Whether the messages stay unread. Otherwise the store records them as fetched by the member.
    /// - Throws: ``ChatError/Code/notJoined``.
    func messages(
        for member: MemberID, since: MessageID?, limit: Int, isPeek: Bool
    ) async throws(ChatError) -> MessagePage
    /// Returns the room's messages after `since`, and the changes of messages that the member may read. Otherwise as
    /// ``messages(for:since:limit:isPeek:)``.
    func entries(
        for member: MemberID, since: MessageID?, limit: Int, isPeek: Bool
    ) async throws(ChatError) -> RoomEntryPage
    /// Records that the member's phone has shown a message, which stays unread.
    ///
    /// - Throws: ``ChatError/Code/notJoined``. ``ChatError/Code/notFound`` if the member may read no such message.
    func shown(_ message: MessageID, to member: MemberID) async throws(ChatError)
    /// Returns the receipt of a member's own message.
    ///
    /// - Throws: ``ChatError/Code/notJoined``. ``ChatError/Code/notFound`` if the member has no such message in its
    ///   room.
    func receipt(of message: MessageID, for member: MemberID) async throws(ChatError) -> Receipt
    /// Checks whether the store responds, for the relay's readiness.
    func ping() async throws(ChatError)
}

extension RoomStore {
    /// Returns the app of a member's device after an update.
    package static func app(
        _ choice: AppChoice, of token: DeviceToken, after old: AppName, _ settings: StoreSettings
    ) throws(ChatError) -> AppName {
        let other: AppName?
        switch choice {
        case .app(let app): return app
        case .current(let app): other = app
        }
        if old == .web {
            // A person may have changed from a browser to a phone whose tokens look different.
            guard token.kind != .bytes, let other else { throw .browserNeedsSubscription }
            return other
        }
        do throws(ChatError) {
            try settings.format(settings.current(old.text)).check(token, field: "token")
            return old
        } catch {
            guard let other else { throw error }
            return other
        }
    }

    /// Returns messages, and records them as fetched by the member.
    package func messages(
        for member: MemberID, since: MessageID?, limit: Int
    ) async throws(ChatError) -> MessagePage {
        try await messages(for: member, since: since, limit: limit, isPeek: false)
    }

    /// Stores another token for the member's device, and leaves its app unchanged.
    package func update(
        _ member: MemberID, token: DeviceToken, client: ClientInfo, user: UserReference?
    ) async throws(ChatError) {
        try await update(member, token: token, app: .current(otherwise: nil), client: client, user: user)
    }
}

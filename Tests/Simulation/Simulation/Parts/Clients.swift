import CSimulation
import ChatDomain
import GRDB

/// Members of rooms. They post, leave, come back, and delete messages. A moderator removes some.
final class Clients: Part {
    /// A member's time in a room. The ends of each call are known, and its effect lies between them.
    private struct Stay {
        let room: Int
        let joining: Moment
        var joined: Moment?
        var leaving: Moment?
        var left: Moment?
        /// Whether a moderator ends the stay. Its waiting pushes are then not sent.
        var isRemoved = false
        var isBanned = false
    }

    private enum Departure: String { case leave, removal, ban }

    private struct Post {
        let member: Int
        let text: String
        let begin: Moment
        let wall: Timestamp
        var end: Moment?
        var message: MessageID?
        var deleting: Moment?
        var deleted: Moment?
        /// The pushes that were leased when the deletion had succeeded.
        var leasedThen: [ClosedRange<Int64>] = []
    }

    private unowned let world: World
    private var stays: [[Stay]] = []
    /// Members whose join or leave is under way.
    private var busy: Set<Int> = []
    private var posts: [Post] = []
    private var postsByMessage: [MessageID: Int] = [:]
    /// The messages of pushes that were leased.
    private var messagesByPush: [Int64: MessageID] = [:]
    private var homes: [Int] = []
    var rooms: Int { codes.count }
    /// The codes of each room, the current one last.
    private var codes: [[SecretCode]] = []
    /// Rooms that are getting another code.
    private var moving: Set<Int> = []
    /// The ends of the last moves to another code.
    private var lastMoves: [Int: Moment] = [:]

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        let dice = choices.dice
        let rooms = dice.within(1...3)
        codes = (0..<rooms).map { [try! SecretCode(parsing: "room \($0)")] }
        for room in 0..<rooms {
            // From ten members on, the pushes follow in steps after the response.
            homes += Array(repeating: room, count: dice.within(dice.among([2...9, 2...9, 2...9, 10...30])))
        }
        // A step has at most 500 pushes. They take most of the time, mostly in a service with bytes.
        let hasBytes = !(world.service is ScriptedService)
        if dice.chance(hasBytes ? 5 : 20) {
            homes += Array(repeating: 0, count: hasBytes ? dice.within(100...300) : 500)
        }
        stays = Array(repeating: [], count: homes.count)
        choices.add(isLarge ? dice.within(1...2) : dice.among([3, 10, 30, 60])) { dice in
            let member = dice.below(homes.count)
            return ("member \(member) posts", { self.post(member) })
        }
        if dice.chance(50) {
            choices.add(dice.below(30)) { dice in
                let (member, room) = (dice.below(homes.count), dice.below(rooms))
                return ("member \(member) leaves, or joins room \(room)", { self.move(member, room) })
            }
        }
        if dice.chance(50) {
            choices.add(dice.below(10)) { dice in
                let (member, kind) = (dice.below(homes.count), dice.chance(70) ? Departure.removal : .ban)
                return ("\(kind) of member \(member)", { self.end(member, by: kind) })
            }
        }
        if dice.chance(30) {
            choices.add(dice.below(4)) { dice in
                let room = dice.below(rooms)
                return ("room \(room) gets another code", { self.recode(room) })
            }
        }
        if dice.chance(50) {
            choices.add(dice.below(20)) { dice in
                let age = dice.below(5)
                return ("a moderator deletes message \(age) from the newest", { self.delete(age) })
            }
        }
    }

    /// Whether a message may have more than a hundred pushes.
    var isLarge: Bool { homes.count > 100 }

    func begin() { for (member, room) in homes.enumerated() { join(member, room) } }

    // MARK: - Devices

    static func token(_ member: Int) -> DeviceToken { try! DeviceToken(parsing: hexadecimal(member, 64)) }
    private static func id(_ member: Int) -> MemberID { try! MemberID(parsing: hexadecimal(member, 40)) }
    private static func hexadecimal(_ number: Int, _ count: Int) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: count - digits.count) + digits
    }

    private lazy var membersByToken = Dictionary(
        uniqueKeysWithValues: homes.indices.map { (Self.token($0).description, $0) })

    /// The devices that were registered during all of a time, and those that may have been at some moment of it.
    func devices(from begin: Moment, to end: Moment) -> (certain: Set<String>, possible: Set<String>) {
        var result: (certain: Set<String>, possible: Set<String>) = ([], [])
        for member in homes.indices {
            guard let first = stays[member].first, first.joining <= end else { continue }
            let token = Self.token(member).description
            result.possible.insert(token)
            if let joined = first.joined, joined <= begin, !world.ledger.unregistered.contains(token) {
                result.certain.insert(token)
            }
        }
        return result
    }

    /// The times between which the device with a token has registered for the last time. `nil` if it is registering, or
    /// never has.
    func lastRegistration(of token: String) -> (begin: Timestamp, end: Timestamp)? {
        guard let member = membersByToken[token],
            let stay = stays[member].last(where: { $0.joined != nil || $0.left == nil }), let joined = stay.joined
        else { return nil }
        return (wall(stay.joining), wall(joined))
    }

    /// The wall clock at a moment, if it has not stepped.
    private func wall(_ moment: Moment) -> Timestamp {
        Timestamp.now() - .nanoseconds(Moment.now.nanoseconds - moment.nanoseconds)
    }

    // MARK: - Rooms

    /// The current code of a room.
    func code(of room: Int) -> SecretCode { codes[room][codes[room].count - 1] }

    /// Whether a room may have got another code since a moment.
    func mayHaveMoved(_ room: Int, since moment: Moment) -> Bool {
        moving.contains(room) || lastMoves[room].map { $0 >= moment } ?? false
    }

    /// The devices whose members have been in a room since a moment, and are still.
    func devices(in room: Int, since moment: Moment) -> [String] {
        homes.indices.compactMap { member in
            guard let stay = stays[member].last, let joined = stay.joined, stay.room == room, joined <= moment,
                stay.leaving == nil
            else { return nil }
            let token = Self.token(member).description
            return world.ledger.unregistered.contains(token) ? nil : token
        }
    }

    // MARK: - Events

    private func join(_ member: Int, _ room: Int) {
        busy.insert(member)
        stays[member].append(Stay(room: room, joining: .now))
        let request = JoinRequest(
            member: Self.id(member), token: Self.token(member), nickname: try! Nickname(parsing: "name \(member)"),
            code: codes[room][codes[room].count - 1], client: ClientInfo(address: "192.0.2.1"))
        let subscription = world.service.subscription(Self.token(member))
        world.calls.insist("join of \(member)") { stores in
            if let subscription { try await stores.subscriptions.keep(subscription) }
            return try await stores.rooms.join(request)
        } then: { [self] result in
            busy.remove(member)
            let last = stays[member].count - 1
            guard case .success = result else {
                // The member is banned, or the room has another code now.
                stays[member][last].left = .now
                return request.code == codes[room].last ? () : join(member, room)
            }
            stays[member][last].joined = .now
            if stays[member].contains(where: { $0.isBanned && $0.room == room }) {
                world.violate(.bansHold, "member \(member) joins room \(room) again")
            }
        }
    }

    private func move(_ member: Int, _ room: Int) {
        guard let stay = stays[member].last, !busy.contains(member) else { return }
        if stay.left == nil { end(member, by: .leave) } else { join(member, room) }
    }

    private func end(_ member: Int, by kind: Departure) {
        guard let stay = stays[member].last, stay.left == nil, !busy.contains(member) else { return }
        busy.insert(member)
        let last = stays[member].count - 1
        stays[member][last].leaving = .now
        stays[member][last].isRemoved = kind != .leave
        world.calls.insist("\(kind) of \(member)") { stores in
            if kind == .leave { return _ = try await stores.rooms.leave(Self.id(member)) }
            // The member is gone if an earlier attempt has succeeded.
            guard let number = try await stores.number(of: Self.id(member)) else { return }
            if kind == .removal { return try await stores.moderation.remove(number, by: .commandLine) }
            _ = try await stores.moderation.ban(BanRequest(.member(number, everywhere: false)), by: .commandLine)
        } then: { [self] result in
            stays[member][last].left = .now
            stays[member][last].isBanned = kind == .ban
            busy.remove(member)
        }
    }

    private func recode(_ room: Int) {
        guard let old = codes[room].last, moving.insert(room).inserted else { return }
        let new = try! SecretCode(parsing: "\(old.text)+")
        codes[room].insert(new, at: 0)
        world.calls.insist("new code of room \(room)") { stores in
            do {
                _ = try await stores.moderation.recode(old, to: new, by: .commandLine)
                return true
            } catch let error as ChatError where error.code == .conflict || error.code == .notFound {
                // An earlier attempt may have succeeded.
                let sql = "SELECT EXISTS (SELECT 1 FROM rooms WHERE secret_code = ?)"
                return try await stores.read { try Bool.fetchOne($0, sql: sql, arguments: [new.text]) ?? false }
            }
        } then: { [self] result in
            moving.remove(room)
            lastMoves[room] = .now
            codes[room].removeFirst()
            if case .success(true) = result { codes[room].append(new) }
        }
    }

    private func post(_ member: Int) {
        let number = posts.count
        posts.append(Post(member: member, text: "text \(number)", begin: .now, wall: Timestamp.now()))
        let content = MessageContent(try! MessageText(parsing: posts[number].text))
        let request = PostRequest(member: Self.id(member), content: content, idempotencyKey: posts[number].text)
        world.calls.insist("post of '\(posts[number].text)' by \(member)") { stores in
            try await stores.rooms.post(request)
        } then: { [self] result in
            posts[number].end = .now
            guard case .success(let receipt) = result else {
                let stay = stays[member].last { $0.joining <= posts[number].begin }
                if let stay, let joined = stay.joined, joined < posts[number].begin, stay.leaving == nil {
                    world.violate(.callsSucceed, "'\(posts[number].text)' by member \(member): \(result)")
                }
                return
            }
            posts[number].message = receipt.message
            postsByMessage[receipt.message] = number
        }
    }

    private func delete(_ age: Int) {
        let known = posts.indices.filter { posts[$0].message != nil && posts[$0].deleting == nil }
        guard known.count > age, let message = posts[known[known.count - 1 - age]].message else { return }
        let number = known[known.count - 1 - age]
        posts[number].deleting = .now
        world.calls.insist("deletion of \(message)") { stores in
            try await stores.moderation.delete(message, by: .commandLine)
            return stores.queueAdministration.table.leased(in: .min ... .max)
        } then: { [self] leased in
            posts[number].deleted = .now
            // Not known if an earlier attempt has succeeded, or the message is gone.
            posts[number].leasedThen = (try? leased.get()) ?? [.min ... .max]
        }
    }

    // MARK: - Properties

    func sending(_ push: QueuedPush, leased: Moment) {
        guard let number = push.message.flatMap({ postsByMessage[$0] }) else { return }
        let post = posts[number]
        if let deleted = post.deleted,
            deleted < leased || !post.leasedThen.contains(where: { $0.contains(push.id) })
        {
            world.violate(
                .deletedMessagesAreNotSent, "push \(push.id) of '\(post.text)' is sent, which was deleted at \(deleted)"
            )
        }
        guard let end = post.end, let member = push.address.flatMap({ membersByToken[$0.description] }) else { return }
        // A push of an earlier stay, which ended otherwise, is sent.
        for stay in stays[member] where stay.isRemoved && stay.joining <= end {
            guard let leaving = stay.leaving, let left = stay.left, end < leaving, left < leased else { continue }
            world.violate(
                .noWaitingPushToARemovedMember,
                "push \(push.id) of '\(post.text)' is sent to \(member), removed at \(left)")
        }
    }

    func leased(_ pushes: [QueuedPush], asked: Moment) {
        for push in pushes { if let message = push.message { messagesByPush[push.id] = message } }
    }

    func permits(_ push: StoredRows.Push) -> Bool {
        guard push.state == "cancelled", push.notification == nil else { return false }
        switch push.reason {
        case PushLifeCycle.messageDeleted:
            // A deleted message's pushes no longer name it. A lease may have known it.
            let message = messagesByPush[push.id]
            return push.isEmpty && push.message == nil
                && posts.contains { $0.deleting != nil && (message == nil || $0.message == message) }
        case PushLifeCycle.memberRemoved:
            // Retention may have removed the message.
            guard let member = membersByToken[push.token], let message = push.message ?? messagesByPush[push.id] else {
                return false
            }
            let post = postsByMessage[message].map { posts[$0] }
            return stays[member].contains { stay in
                guard stay.isRemoved, let post else { return stay.isRemoved }
                return stay.left.map { post.begin <= $0 } ?? true
            }
        default: return false
        }
    }

    func check(_ rows: StoredRows) {
        let messages = Dictionary(grouping: rows.messages, by: \.text)
        let pushes = Dictionary(grouping: rows.pushes.filter { $0.message != nil }, by: \.message)
        for post in posts {
            let stored = messages[post.text] ?? []
            let isOld = world.retention.mayHaveDeleted(writtenSince: post.begin, at: post.wall)
            if stored.count > 1 {
                world.violate(.aThrowingCallChangesNothing, "'\(post.text)' is stored \(stored.count) times")
            }
            if let message = post.message, post.deleted != nil {
                let rest = (pushes[message] ?? []).filter { !$0.isEmpty }
                if !stored.isEmpty || !rest.isEmpty {
                    world.violate(
                        .deletedMessagesAreNotSent, "'\(post.text)' was deleted and \(rest.count) pushes still have it")
                }
            } else if post.message != nil, stored.isEmpty, !isOld {
                world.violate(.durableBefore200, "'\(post.text)' was confirmed and is not stored")
            }
            if let message = stored.first, post.deleting == nil, !isOld {
                checkRecipients(of: post, message, pushes[message.id] ?? [])
            }
        }
    }

    private func checkRecipients(of post: Post, _ message: StoredRows.Message, _ pushes: [StoredRows.Push]) {
        let end = post.end ?? .now
        // No more have ever been in the room.
        let isSmall = stays.count { $0.contains { codes[$0.room].contains { $0.text == message.room } } } < 10
        var certain: Set<String> = []
        var possible: Set<String> = []
        for member in homes.indices where member != post.member {
            let token = Self.token(member).description
            for stay in stays[member] where codes[stay.room].contains(where: { $0.text == message.room }) {
                guard stay.joining <= end, stay.left.map({ $0 >= post.begin }) ?? true else { continue }
                possible.insert(token)
                // The pushes of a larger room follow after the response.
                let stays = stay.leaving.map { isSmall && $0 > end } ?? true
                if stays, let joined = stay.joined, joined <= post.begin { certain.insert(token) }
            }
        }
        certain.subtract(world.ledger.unregistered)
        let recipients = pushes.map(\.token)
        let found = Set(recipients)
        if found.count < recipients.count {
            world.violate(.recipientsAreTheMembersAtThatTime, "'\(post.text)' has two pushes to a device")
        }
        if !found.isSuperset(of: certain) || !found.isSubset(of: possible) {
            world.violate(
                .recipientsAreTheMembersAtThatTime,
                """
                '\(post.text)' has \(found.count) pushes; missing \(certain.subtracting(found).sorted()), not expected \
                \(found.subtracting(possible).sorted())
                """)
        }
    }
}

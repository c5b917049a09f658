import CSimulation
import ChatDomain

/// Members of rooms, who post. Each repeats a call with the same key until the relay has confirmed it.
final class Clients: Part {
    private struct Post {
        let member: Int
        let text: String
        var isConfirmed = false
        var isUnderWay = false
    }

    private unowned let world: World
    /// The room of each member.
    private var rooms: [String] = []
    private var posts: [Post] = []
    /// The number of members who have joined.
    private var joined = 0

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        let dice = choices.dice
        for room in 0..<dice.within(1...3) {
            // From ten members on the pushes follow in steps after the response.
            let members = dice.among([dice.within(2...9), dice.within(2...9), dice.within(10...40)])
            rooms += Array(repeating: "room \(room)", count: members)
        }
        choices.add(dice.among([1, 10, 50, 150])) { dice in
            let member = dice.below(rooms.count)
            return ("member \(member) posts", { self.post(member) })
        }
    }

    func prepare(_ life: Life) async throws {
        while joined < rooms.count {
            try await life.stores.rooms.join(
                JoinRequest(
                    member: Self.id(joined), token: Self.token(joined), nickname: Nickname(parsing: "name \(joined)"),
                    code: SecretCode(parsing: rooms[joined]), client: ClientInfo(address: "192.0.2.1")))
            joined += 1
        }
    }

    private static func id(_ member: Int) throws -> MemberID { try MemberID(parsing: hexadecimal(member, 40)) }
    private static func token(_ member: Int) throws -> DeviceToken { try DeviceToken(parsing: hexadecimal(member, 64)) }
    private static func hexadecimal(_ number: Int, _ count: Int) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: count - digits.count) + digits
    }

    private func post(_ member: Int) {
        posts.append(Post(member: member, text: "text \(posts.count)"))
        attempt(posts.count - 1)
    }

    private func attempt(_ number: Int) {
        let post = posts[number]
        guard !post.isConfirmed, !post.isUnderWay else { return }
        let again = {
            simulation_world.run(after: self.world.dice.within(.zero...(.seconds(3)))) { self.attempt(number) }
        }
        guard let relay = world.relay else { return again() }
        posts[number].isUnderWay = true
        relay.call { stores in
            let content = try MessageContent(parsing: post.text)
            return try await stores.rooms.post(
                PostRequest(member: Self.id(post.member), content: content, idempotencyKey: post.text))
        } then: { result in
            self.posts[number].isUnderWay = false
            self.world.log("'\(post.text)' by \(post.member): \(result)")
            if case .success = result { self.posts[number].isConfirmed = true } else { again() }
        }
    }

    func relayDied() {
        for number in posts.indices where posts[number].isUnderWay {
            posts[number].isUnderWay = false
            simulation_world.run(after: world.dice.within(.zero...(.seconds(3)))) { self.attempt(number) }
        }
    }

    var isSettled: Bool { posts.allSatisfy(\.isConfirmed) }

    func check(_ rows: StoredRows) {
        let messages = Dictionary(grouping: rows.messages, by: \.text)
        let pushes = Dictionary(grouping: rows.pushes, by: \.message)
        for post in posts {
            let stored = messages[post.text] ?? []
            guard let message = stored.first else {
                world.violate(.durableBefore200, "'\(post.text)' was confirmed and is not stored")
                continue
            }
            if stored.count > 1 {
                world.violate(.aThrowingCallChangesNothing, "'\(post.text)' is stored \(stored.count) times")
            }
            let others = rooms.indices.filter { $0 != post.member && rooms[$0] == rooms[post.member] }
            let expected = others.compactMap { try? Self.token($0).description }
            let recipients = (pushes[message.id] ?? []).map(\.token)
            if recipients.sorted() != expected.sorted() {
                world.violate(
                    .recipientsAreTheMembersAtThatTime,
                    "'\(post.text)' has \(recipients.count) pushes for \(expected.count) other members")
            }
        }
    }
}

import CSimulation
import ChatDomain

/// A program whose messages have keys: it changes, clears, resolves and deletes them.
final class Keys: Part {
    /// A request for one key. The program waits for each response before it sends the next request.
    private struct Request {
        enum Kind: String, CaseIterable { case post, ring, clear, resolve, delete }

        let kind: Kind
        let number: Int
        let begin: Moment
        var end: Moment?
        var message: MessageID?
    }

    private unowned let world: World
    private let room = 0
    private var requests: [[Request]] = []
    private var waiting: [[Request.Kind]] = []
    private var busy: Set<Int> = []
    /// The pushes that were leased, by message and device.
    private var leasedPushes: [String: [Int64]] = [:]

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        let dice = choices.dice
        let keys = dice.within(1...4)
        requests = Array(repeating: [], count: keys)
        waiting = Array(repeating: [], count: keys)
        guard dice.chance(60) else { return }
        choices.add(dice.among([3, 20, 60])) { dice in
            let key = dice.below(keys)
            let kind = dice.among([.post, .post, .post, .ring, .ring, .clear, .resolve, .delete] as [Request.Kind])
            return ("\(kind) of key \(key)", { self.add(kind, key) })
        }
    }

    private func add(_ kind: Request.Kind, _ key: Int) {
        waiting[key].append(kind)
        next(key)
    }

    private func next(_ key: Int) {
        guard !waiting[key].isEmpty, busy.insert(key).inserted else { return }
        let (kind, number) = (waiting[key].removeFirst(), requests[key].count)
        requests[key].append(Request(kind: kind, number: number, begin: .now))
        let (code, writer) = (world.clients.code(of: room), MemberID.program(token: 1))
        let (name, id) = (MessageKey(stored: "k\(key)"), "key \(key) request \(number)")
        let content = MessageContent(try! MessageText(parsing: "k\(key) r\(number)."))
        let author = ChangeAuthor(writer: writer, room: code)
        world.calls.insist("\(kind) of \(name), \(number)") { stores in
            switch kind {
            case .post, .ring:
                let request = PostRequest(
                    member: writer,
                    program: PostRequest.Program(nickname: Nickname(stored: "cron"), room: code), content: content,
                    idempotencyKey: id)
                return try await stores.changes.post(KeyedPost(request, key: name, renotify: kind == .ring))
            case .clear, .resolve, .delete:
                let action: MessageChangeRequest.Action =
                    kind == .clear ? .clear : kind == .resolve ? .resolve(content) : .delete
                return try await stores.changes.change(
                    MessageChangeRequest(.key(name), by: author, action, idempotencyKey: id))
            }
        } then: { [self] result in
            // The key is not open, or the room has another code.
            if case .success(let receipt) = result {
                requests[key][number].end = .now
                requests[key][number].message = receipt.message
            }
            busy.remove(key)
            next(key)
        }
    }

    var isSettled: Bool { busy.isEmpty }

    // MARK: - Properties

    /// The key and the number of the request whose text a push has.
    private func request(of push: QueuedPush) -> (key: Int, number: Int)? {
        let payload = String(decoding: push.payload ?? [], as: UTF8.self)
        guard push.message != nil, let match = payload.firstMatch(of: #/k(\d+) r(\d+)\./#),
            let key = Int(match.1), let number = Int(match.2), requests.indices.contains(key)
        else { return nil }
        return (key, number)
    }

    func leased(_ pushes: [QueuedPush], asked: Moment) {
        for push in pushes where push.obstacle == nil {
            guard let (key, number) = request(of: push), let message = push.message, let address = push.address
            else { continue }
            let newer = requests[key].dropFirst(number + 1).first { request in
                request.message == message && request.end.map { $0 < asked } ?? false
            }
            if let newer {
                world.violate(
                    .nothingOlderIsLeased,
                    "push \(push.id) with r\(number) of k\(key) is leased after \(newer.kind) r\(newer.number)")
            }
            let device = "\(message) \(address)"
            for other in leasedPushes[device] ?? []
            where other != push.id && world.relay?.queue?.isLeased(other) == true {
                world.violate(
                    .onePushOfAMessageAtATime, "pushes \(other) and \(push.id) of k\(key) are leased together")
            }
            leasedPushes[device, default: []].append(push.id)
        }
    }

    func relayDied() { leasedPushes = [:] }

    func permits(_ push: StoredRows.Push) -> Bool {
        push.state == "cancelled" && push.isEmpty
            && ["MessageReplaced", "MessageDeleted"].contains(push.reason) && requests.contains { !$0.isEmpty }
    }

    func check(_ rows: StoredRows) {
        for key in requests.indices {
            let confirmed = requests[key].filter { $0.end != nil }
            guard let last = confirmed.last, confirmed.count == requests[key].count else { continue }
            let stored = rows.messages.filter { $0.text.hasPrefix("k\(key) r") }
            let isOld = world.retention.mayHaveDeleted(writtenSince: requests[key][0].begin, at: Timestamp.now())
            guard last.kind == .post || last.kind == .ring, !isOld else { continue }
            guard let message = stored.last, message.text == "k\(key) r\(last.number)." else {
                world.violate(.durableBefore200, "r\(last.number) of k\(key) was confirmed and is not stored")
                continue
            }
            guard last.kind == .ring else { continue }
            // Each device that had a push of the message has got the last ring.
            let pushes = rows.pushes.filter { $0.message == message.id }
            let current = Set(pushes.filter { !$0.isEmpty }.map(\.token))
            for token in Set(pushes.map(\.token)).subtracting(current)
            where world.clients.isIn(room, token, since: last.begin) {
                world.violate(.everyDeviceGetsTheNewest, "device \(token) has no push with r\(last.number) of k\(key)")
            }
        }
    }
}

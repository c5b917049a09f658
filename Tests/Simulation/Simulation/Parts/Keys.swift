import CSimulation
import ChatDomain
import ChatStore
import GRDB

/// Programs whose messages have keys: they change, clear, resolve and delete them, and repeat old requests. The operator
/// changes some of the same messages by their ids.
final class Keys: Part {
    private enum Kind: String {
        case post, ring, edit, clear, resolve, lastWord, delete

        var hasText: Bool { self == .post || self == .ring || self == .edit || self == .lastWord }
        var removes: Bool { !hasText }
        var endsKey: Bool { self == .resolve || self == .lastWord || self == .delete }
    }

    private struct Request {
        let kind: Kind
        /// The chain of a program's requests for a key. `nil` for the operator's request by the message's id.
        let chain: Int?
        let room: Int
        let marker: Marker
        /// The revision that a change names, relative to the last one that the program knows.
        let revision: Int?
        let begin: Moment
        let wall: Timestamp
        /// The highest number that any response had before.
        let floor: MessageID
        let call: (Stores) async throws -> ChangeReceipt
        var end: Moment?
        var isRefused = false
        /// Known from the beginning for the operator's requests.
        var message: MessageID?
    }

    /// The requests of a program for one key in a room. The program waits for each response before it sends the next.
    private struct Chain {
        let room: Int
        let program: Int
        let key: MessageKey
        var waiting: [(Kind, Int?)] = []
        var isBusy = false
        var messages: [MessageID] = []
        var revision = 0
    }

    private unowned let world: World
    private let screens = Screens()
    private var chains: [Chain] = []
    private var requests: [Request] = []
    private var numbers: [Marker: Int] = [:]
    /// The requests for each message in the order of their responses. A refused request is not among them.
    private var requestsByMessage: [MessageID: [Int]] = [:]
    private var owners: [MessageID: Int] = [:]
    private var highest: MessageID = 0
    private var busy = 0
    private(set) var needsMessageClock = false

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        let dice = choices.dice
        guard dice.chance(18) else { return }
        needsMessageClock = true
        world.programs.use()
        let keys = dice.within(1...3)
        for room in 0..<world.clients.rooms {
            for key in 0..<keys {
                // Programs have the same keys.
                chains += Programs.all.map { Chain(room: room, program: $0, key: MessageKey(stored: "k\(key)")) }
            }
        }
        let used = (0..<dice.within(1...4)).map { _ in dice.below(chains.count) }
        let kinds: [Kind] =
            [.post, .post, .post, .ring, .edit]
            + dice.among([[], [.edit, .clear, .clear], [.clear, .resolve, .lastWord, .delete, .delete]])
        choices.add(world.clients.isLarge ? 3 : dice.among([5, 10, 25])) { dice in
            let (chain, kind) = (dice.among(used), dice.among(kinds))
            let revision = dice.chance(60) ? dice.within(-2...2) : nil
            // Pushes of one request are under way when the next one commits.
            let rings = dice.chance(20) ? dice.within(1...5) : 0
            return (
                "\(kind) of key \(chain), then \(rings) rings",
                {
                    self.add(kind, kind == .edit ? revision : nil, chain)
                    for _ in 0..<rings { self.add(.ring, nil, chain) }
                }
            )
        }
        if dice.chance(40) {
            choices.add(dice.below(10)) { dice in
                let (age, kind) = (dice.below(6), dice.among([.edit, .clear, .resolve, .delete] as [Kind]))
                return ("the operator's \(kind) of a message", { self.interfere(kind, age) })
            }
        }
        if dice.chance(40) {
            choices.add(dice.below(15)) { dice in
                let age = dice.below(12)
                return ("an old request is repeated", { self.repeatRequest(age) })
            }
        }
    }

    // MARK: - Requests

    private func add(_ kind: Kind, _ revision: Int?, _ chain: Int) {
        chains[chain].waiting.append((kind, revision))
        next(chain)
    }

    private func next(_ index: Int) {
        let chain = chains[index]
        guard !chain.isBusy, let (kind, offset) = chain.waiting.first, let writer = world.programs.author(chain.program)
        else { return }
        chains[index].waiting.removeFirst()
        chains[index].isBusy = true
        let code = world.clients.code(of: chain.room)
        let revision = offset.map { max(1, chain.revision + $0) }
        send(kind, .key(chain.key), ChangeAuthor(writer: writer, room: code), revision, index, chain.room)
    }

    private func interfere(_ kind: Kind, _ age: Int) {
        let known = owners.keys.sorted()
        guard known.count > age, let owner = owners[known[known.count - 1 - age]] else { return }
        let message = known[known.count - 1 - age]
        let author = ChangeAuthor(writer: .administrator, isAdmin: true, moderator: .commandLine)
        send(kind, .id(message), author, nil, nil, chains[owner].room)
    }

    private func send(
        _ kind: Kind, _ name: MessageReference, _ author: ChangeAuthor, _ revision: Int?, _ chain: Int?, _ room: Int
    ) {
        let (index, marker) = (requests.count, Marker(world.programs.nextText()))
        let content = MessageContent(try! MessageText(parsing: marker.text))
        let id = "request \(index)"
        let call: (Stores) async throws -> ChangeReceipt
        if kind == .post || kind == .ring, case .key(let key) = name, let code = author.room {
            let post = PostRequest(
                member: author.writer,
                program: PostRequest.Program(nickname: Nickname(stored: "program"), room: code), content: content,
                idempotencyKey: id)
            call = { try await $0.changes.post(KeyedPost(post, key: key, renotify: kind == .ring)) }
        } else {
            let action: MessageChangeRequest.Action =
                switch kind {
                case .post, .ring, .edit: .edit(content, revision: revision)
                case .clear: .clear
                case .resolve: .resolve(nil)
                case .lastWord: .resolve(content)
                case .delete: .delete
                }
            let request = MessageChangeRequest(name, by: author, action, idempotencyKey: id)
            call = { try await $0.changes.change(request) }
        }
        var message: MessageID?
        if case .id(let id) = name { message = id }
        numbers[marker] = index
        requests.append(
            Request(
                kind: kind, chain: chain, room: room, marker: marker, revision: revision, begin: .now,
                wall: Timestamp.now(), floor: highest, call: call, message: message))
        busy += 1
        let title =
            chain.map { "\(kind) of \(chains[$0].key) by program \(chains[$0].program)" }
            ?? "\(kind) of \(message ?? 0)"
        world.calls.insist("\(title), request \(index)") { stores in
            let receipt = try await call(stores.ports)
            return (receipt, try await Self.stored(receipt.message, stores))
        } then: { [self] result in
            busy -= 1
            requests[index].end = .now
            switch result {
            case .success(let (receipt, texts)): succeeded(index, receipt, texts)
            case .failure(let error): refused(index, error)
            }
            guard let chain else { return }
            chains[chain].isBusy = false
            next(chain)
        }
    }

    /// The texts of a message that are stored: its own, and those of its pushes.
    private static func stored(_ message: MessageID, _ stores: SQLiteStores) async throws -> Set<Marker> {
        try await stores.read { db in
            let sql = """
                SELECT text FROM messages WHERE message_id = ?1
                UNION ALL SELECT payload FROM push_queue WHERE chat_message = ?1 AND payload <> ''
                """
            return Set(try String.fetchAll(db, sql: sql, arguments: [message]).compactMap { Marker(in: $0.utf8) })
        }
    }

    /// Sends a request again that has had its response.
    private func repeatRequest(_ age: Int) {
        let known = requests.indices.filter { requests[$0].end != nil && !requests[$0].isRefused }
        guard known.count > age else { return }
        let index = known[known.count - 1 - age]
        let request = requests[index]
        // The store remembers the last 20 requests for a message, also those that are under way.
        guard let message = request.message, world.programs.revoking == nil, isRemembered(index) else { return }
        busy += 1
        world.calls.insist("request \(index) again") { [self] stores in
            // It may have waited for the relay while others passed. It would be a new request then, or after retention.
            isRemembered(index) && !isOld(request) ? try await request.call(stores.ports) : nil
        } then: { [self] result in
            busy -= 1
            if isOld(request) { return }
            if case .success(let receipt) = result, receipt.map({ $0.isRepeat && $0.message == message }) ?? true {
                return
            }
            world.violate(.aRepetitionChangesNothing, "request \(index) again: \(result)")
        }
    }

    /// Whether the store remembers a request for certain: it is among the last 20 for its message.
    private func isRemembered(_ index: Int) -> Bool {
        let message = requests[index].message
        return requests.dropFirst(index).count { $0.message == message || $0.end == nil } < 15
    }

    // MARK: - Responses

    /// Whether retention may have deleted the store's memory of a request.
    private func isOld(_ request: Request) -> Bool {
        world.retention.mayHaveDeleted(writtenSince: request.begin, at: request.wall)
    }

    /// Whether a request may end, or have ended, the key of a message.
    private func mayHaveEnded(_ message: MessageID, except index: Int) -> Bool {
        requests.indices.contains {
            let request = requests[$0]
            return $0 != index && request.kind.endsKey && request.message == message
                && (!request.isRefused || isOld(request))
        }
    }

    private func succeeded(_ index: Int, _ receipt: ChangeReceipt, _ texts: Set<Marker>) {
        let (request, message) = (requests[index], receipt.message)
        let name = "request \(index) (\(request.kind)) of message \(message)"
        let number = receipt.change ?? message
        if !receipt.isRepeat, number <= request.floor {
            world.violate(.numbersGrow, "\(name) has number \(number), and an earlier response had \(request.floor)")
        }
        highest = max(highest, number)
        let earlier = requestsByMessage[message] ?? []
        requests[index].message = message
        requestsByMessage[message, default: []].append(index)
        for text in texts {
            guard let other = numbers[text].map({ requests[$0] }), let end = other.end, end < request.begin,
                request.kind.hasText || request.kind == .delete
            else { continue }
            world.violate(.theReplacedTextIsGone, "\(name) leaves \(text.text)")
        }
        guard let chain = request.chain else { return }
        if owners[message].map({ $0 != chain }) ?? false {
            world.violate(.keysBelongToTheirAuthor, "\(name) is another program's message")
        }
        owners[message] = chain
        if !chains[chain].messages.contains(message) {
            if let previous = chains[chain].messages.last, !mayHaveEnded(previous, except: index) {
                world.violate(.keysEndWithTheirMessage, "\(name) is new, and the key of \(previous) has not ended")
            }
            chains[chain].messages.append(message)
            chains[chain].revision = 0
        } else if request.kind == .post || request.kind == .ring {
            let ended = earlier.first {
                requests[$0].kind.endsKey && requests[$0].end.map { $0 < request.begin } ?? false
            }
            if let ended {
                world.violate(.keysEndWithTheirMessage, "\(name) has the key that request \(ended) has ended")
            }
        }
        if let revision = request.revision, !receipt.isRepeat, revision < chains[chain].revision {
            world.violate(.revisionsHold, "\(name) has revision \(revision), the message \(chains[chain].revision)")
        }
        chains[chain].revision = max(chains[chain].revision, receipt.revision)
    }

    private func refused(_ index: Int, _ error: ChatError) {
        requests[index].isRefused = true
        let request = requests[index]
        if world.clients.mayHaveMoved(request.room, since: request.begin) || isOld(request) { return }
        let message = request.chain.map { chains[$0].messages.last } ?? request.message
        let isShared =
            message.map { message in requests.contains { $0.chain == nil && $0.message == message } } ?? false
        let isExpected =
            switch error.code {
            case .notFound: message.map { mayHaveEnded($0, except: index) } ?? true
            case .conflict:
                request.revision.map { revision in
                    isShared || request.chain.map { revision < chains[$0].revision } ?? false
                }
                    ?? false
            default: false
            }
        if !isExpected {
            world.violate(.callsSucceed, "request \(index) (\(request.kind)) of \(message ?? 0): \(error)")
        }
    }

    var isSettled: Bool { busy == 0 }

    // MARK: - Pushes

    func leased(_ pushes: [QueuedPush], asked: Moment) {
        guard needsMessageClock else { return }
        for push in pushes {
            let earlier = screens.pushes[push.id]
            guard let leased = screens.leased(push) else { continue }
            if let earlier, earlier.marker != leased.marker || earlier.update != leased.update {
                world.violate(.theReplacedTextIsGone, "push \(push.id) had \(earlier), and has \(leased)")
            }
            if let marker = leased.marker, let number = numbers[marker], let end = requests[number].end {
                let newer = requestsByMessage[leased.message]?.first { other in
                    requests[other].begin > end && requests[other].end.map { $0 < asked } ?? false
                }
                if let newer {
                    world.violate(
                        .nothingOlderIsLeased,
                        "push \(push.id) of request \(number) is leased after request \(newer) (\(requests[newer].kind))"
                    )
                }
            }
            guard push.message != nil else { continue }
            let device = Screens.Device(message: leased.message, token: leased.token)
            for other in screens.pushesOfDevices[device] ?? []
            where other != push.id && world.relay?.queue?.isLeased(other) == true {
                world.violate(
                    .onePushOfAMessageAtATime, "pushes \(other) and \(push.id) of \(leased.message) are leased together"
                )
            }
        }
    }

    func accepted(_ push: Int64) { screens.accepted(push) }

    func permits(_ push: StoredRows.Push) -> Bool {
        guard push.state == "cancelled", push.isEmpty, push.notification == nil else { return false }
        let message = push.message ?? screens.pushes[push.id]?.message
        let kinds: [Kind]
        switch push.reason {
        case PushLifeCycle.messageReplaced: kinds = [.post, .ring, .edit, .clear, .resolve, .lastWord, .delete]
        case PushLifeCycle.messageDeleted: kinds = [.delete]
        default: return false
        }
        return requests.contains { request in
            kinds.contains(request.kind) && (message == nil || request.message == nil || request.message == message)
        }
    }

    // MARK: - The end

    /// The requests after which no other one of them can have taken effect.
    private func latest(_ indices: [Int]) -> [Int] {
        indices.filter { index in
            let end = requests[index].end ?? .now
            return !indices.contains { requests[$0].begin > end }
        }
    }

    func check(_ rows: StoredRows) {
        guard needsMessageClock else { return }
        let stored = Dictionary(uniqueKeysWithValues: rows.messages.map { ($0.id, $0) })
        let pushes = Dictionary(grouping: rows.pushes.filter { $0.message != nil }, by: \.message)
        for push in rows.pushes {
            guard let marker = push.marker, let number = numbers[marker], let message = requests[number].message else {
                continue
            }
            let texts = latest((requestsByMessage[message] ?? []).filter { requests[$0].kind.hasText })
            let isLast = texts.contains(number) && !isDeleted(message)
            if !isLast, !isAnyOld(message) {
                world.violate(.theReplacedTextIsGone, "push \(push.id) of message \(message) has \(marker.text)")
            }
        }
        for (message, indices) in requestsByMessage.sorted(by: { $0.key < $1.key }) {
            check(message, indices, stored[message], pushes[message] ?? [])
        }
    }

    private func isDeleted(_ message: MessageID) -> Bool {
        (requestsByMessage[message] ?? []).contains { requests[$0].kind == .delete }
    }

    /// Whether retention may have deleted something of a message's requests, refused ones included.
    private func isAnyOld(_ message: MessageID) -> Bool {
        requests.contains { $0.message == message && isOld($0) }
    }

    private func check(
        _ message: MessageID, _ indices: [Int], _ stored: StoredRows.Message?, _ pushes: [StoredRows.Push]
    ) {
        let mayHaveEnded = mayHaveEnded(message, except: -1)
        if isDeleted(message) {
            if stored != nil { world.violate(.aChangeIsNotLost, "message \(message) was deleted, and is stored") }
        } else if stored == nil, !mayHaveEnded || !isAnyOld(message) {
            world.violate(.aChangeIsNotLost, "message \(message) is not stored")
        }
        if isAnyOld(message) { return }
        let texts = latest(indices.filter { requests[$0].kind.hasText })
        if let stored, let number = Marker(in: stored.text.utf8).flatMap({ numbers[$0] }), !texts.contains(number) {
            world.violate(.aChangeIsNotLost, "message \(message) has the text of request \(number), not of \(texts)")
        }
        let known = Dictionary(grouping: pushes, by: \.token)
        guard let first = indices.first.map({ requests[$0] }) else { return }
        for token in world.clients.devices(in: first.room, since: first.begin) {
            checkScreen(Screens.Device(message: message, token: token), indices, texts, known[token] ?? [])
        }
        for (device, arrivals) in screens.arrivals where device.message == message {
            checkRings(device, indices, arrivals)
        }
    }

    /// Whether a push ended because of its device, its member or the operator.
    private func hasEndedOtherwise(_ push: StoredRows.Push) -> Bool {
        push.state == "failed" || push.state == "expired"
            || push.state == "cancelled" && push.reason != PushLifeCycle.messageReplaced
                && push.reason != PushLifeCycle.messageDeleted
    }

    private func checkScreen(
        _ device: Screens.Device, _ indices: [Int], _ texts: [Int], _ pushes: [StoredRows.Push]
    ) {
        let ids = screens.pushesOfDevices[device] ?? []
        if pushes.contains(where: hasEndedOtherwise) || ids.contains(where: { !fate($0).rejections.isEmpty }) { return }
        let last = latest(indices)
        let arrivals = screens.arrivals[device] ?? []
        let updates = world.service.silentUpdates
        if last.allSatisfy({ requests[$0].kind.removes }) {
            guard updates.contains(.remove), !arrivals.contains(where: { isInDoubt($0.push) }),
                let shown = arrivals.last
            else { return }
            if shown.update != .remove {
                world.violate(.devicesShowTheNewest, "\(device) shows \(shown), and request \(last) removes it")
            }
        } else if last.allSatisfy({ requests[$0].kind.hasText }) {
            let wanted = texts.map { requests[$0].marker }
            guard updates.contains(.replace) else { return checkRing(device, indices, arrivals) }
            let shown = arrivals.lastIndex { arrival in arrival.marker.map { wanted.contains($0) } ?? false }
            let isShown = shown.map { arrivals[($0 + 1)...].allSatisfy { isInDoubt($0.push) } } ?? false
            if !isShown {
                world.violate(.devicesShowTheNewest, "\(device) shows \(arrivals), and the newest are \(wanted)")
            }
        }
    }

    /// Whether a push may arrive late.
    private func isInDoubt(_ push: Int64) -> Bool { fate(push).doubts > 0 }
    private func fate(_ push: Int64) -> Ledger.Fate { world.ledger.fate(of: push) }

    /// A device that cannot replace a notification has got the last text that rings, or a later one.
    private func checkRing(_ device: Screens.Device, _ indices: [Int], _ arrivals: [Screens.Arrival]) {
        let rings = indices.filter { requests[$0].kind == .ring || $0 == indices.first }
        guard let last = latest(rings).first, latest(rings).count == 1,
            !indices.contains(where: { requests[$0].kind.removes && (requests[$0].end ?? .now) > requests[last].begin })
        else { return }
        let hasRung = arrivals.contains { arrival in
            arrival.marker.flatMap { numbers[$0] }.map { requests[$0].begin >= requests[last].begin } ?? false
        }
        if !hasRung { world.violate(.devicesShowTheNewest, "\(device) has not rung for request \(last): \(arrivals)") }
    }

    private func checkRings(_ device: Screens.Device, _ indices: [Int], _ arrivals: [Screens.Arrival]) {
        let rings = arrivals.filter { $0.update == .ring }
        let asked = 1 + indices.dropFirst().count { requests[$0].kind == .ring }
        let doubts = Set(rings.map(\.push)).reduce(0) { $0 + fate($1).doubts }
        if rings.count > asked + doubts {
            world.violate(
                .noRingTooMany, "\(device) has rung \(rings.count) times for \(asked), with \(doubts) in doubt")
        }
    }
}

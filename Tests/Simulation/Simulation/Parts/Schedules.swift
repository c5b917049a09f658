import CSimulation
import ChatDomain
import GRDB

/// Programs that schedule messages, push them further, change and cancel them, while their times come.
final class Schedules: Part {
    private enum Step {
        case schedule(Duration)
        case push(Duration, again: Bool)
        case edit
        case cancel(resolves: Bool)
        case now
    }

    /// A request to store or change a scheduled message.
    private struct Request {
        let item: Int
        let marker: Marker
        /// `nil` if the request does not set the time.
        let due: Timestamp?
        let begin: Moment
        var end: Moment?
        var isRefused = false
    }

    /// A message that a program plans. After it was posted, the same item may plan its next text, if it has a key.
    private struct Item {
        let program: Int
        /// `nil` for the room that is closed in some seeds, and that has no members.
        let room: Int?
        let key: MessageKey?
        let begin: Moment
        let wall: Timestamp
        var waiting: [Step] = []
        var isBusy = false
        /// The number of the message while it is scheduled, as far as the program knows.
        var number: MessageID?
        /// The requests whose texts the scheduled message may have.
        var requests: [Int] = []
        var cancelled: Moment?
        /// Whether the message was posted for certain.
        var isPosted = false
        /// Whether the message was deleted or posted in another way.
        var isOver = false
    }

    private static let attic = SecretCode(stored: "attic")

    private unowned let world: World
    private let screens = Screens()
    private var items: [Item] = []
    private var requests: [Request] = []
    private var numbers: [Marker: Int] = [:]
    private var closing: Moment?
    private var busy = 0
    private(set) var needsMessageClock = false

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        let dice = choices.dice
        guard dice.chance(20) else { return }
        needsMessageClock = true
        world.programs.use()
        let hasKeys = dice.among([0, 50, 100])
        choices.add(dice.among([1, 5, 20])) { dice in
            let (program, hasKey) = (dice.among(Array(Programs.all)), dice.chance(hasKeys))
            let room = dice.chance(25) ? nil : dice.below(world.clients.rooms)
            let first = dice.within(.milliseconds(1)...(dice.among([.seconds(2), .seconds(30), .seconds(3600)])))
            let steps: [(Duration, Step)] = (0..<dice.among([0, 0, 1, 3, 6])).map { _ in
                let delay = dice.within(.zero...dice.among([.milliseconds(50), .seconds(10)]))
                let due = dice.within(.milliseconds(1)...dice.among([.seconds(2), .seconds(20)]))
                let again = hasKey && dice.chance(60)
                let step = dice.among(
                    [.push(due, again: again), .push(due, again: again), .push(due, again: again), .edit]
                        + (dice.chance(30) ? [.cancel(resolves: hasKey && dice.chance(50))] : [])
                        + (hasKey && dice.chance(30) ? [.now] : []) as [Step])
                return (delay, step)
            }
            return (
                "program \(program) schedules a message in \(first)", { self.add(program, room, hasKey, first, steps) }
            )
        }
        if dice.chance(50) { choices.add(1) { _ in ("the attic is closed", { self.close() }) } }
    }

    // MARK: - Requests

    private func add(_ program: Int, _ room: Int?, _ hasKey: Bool, _ first: Duration, _ steps: [(Duration, Step)]) {
        let index = items.count
        items.append(
            Item(
                program: program, room: room, key: hasKey ? MessageKey(stored: "item\(index)") : nil, begin: .now,
                wall: Timestamp.now()))
        perform(.schedule(first), index)
        var moment = Moment.now
        for (delay, step) in steps {
            moment = moment + delay
            simulation_world.run(at: moment) { if !self.world.isCalm { self.perform(step, index) } }
        }
    }

    /// Whether a program has no request under way.
    func isIdle(_ program: Int) -> Bool { !items.contains { $0.program == program && $0.isBusy } }

    private func perform(_ step: Step, _ index: Int) {
        items[index].waiting.append(step)
        next(index)
    }

    private func code(_ item: Item) -> SecretCode { item.room.map(world.clients.code) ?? Self.attic }

    private func next(_ index: Int) {
        let item = items[index]
        guard !item.isBusy, !item.isOver, let step = item.waiting.first else { return }
        // The operator acts for a program whose token is revoked.
        let own = world.programs.author(item.program)
        guard own != nil || item.number != nil && world.isCalm else { return }
        items[index].waiting.removeFirst()
        let author = ChangeAuthor(
            writer: own ?? .administrator, isAdmin: own == nil || own == .administrator, room: code(item))
        switch step {
        case .schedule(let delay): store(index, author, Timestamp.now() + delay)
        case .push(let delay, true) where item.number != nil: store(index, author, Timestamp.now() + delay)
        case .push(let delay, _): change(index, author, Timestamp.now() + delay)
        case .edit: change(index, author, nil)
        case .cancel(let resolves): cancel(index, author, resolves)
        case .now: postNow(index, author)
        }
    }

    private func begin(_ index: Int, _ due: Timestamp?) -> (request: Int, content: MessageContent) {
        let request = requests.count
        let marker = Marker(world.programs.nextText())
        numbers[marker] = request
        requests.append(Request(item: index, marker: marker, due: due, begin: .now))
        items[index].requests.append(request)
        return (request, MessageContent(try! MessageText(parsing: marker.text)))
    }

    private func call(
        _ name: String, _ index: Int, _ body: @escaping (Stores) async throws -> ChangeReceipt,
        then completion: @escaping (Result<ChangeReceipt, ChatError>) -> Void
    ) {
        busy += 1
        items[index].isBusy = true
        world.calls.insist("\(name) of item \(index)") { stores in
            try await body(stores.ports)
        } then: { [self] result in
            busy -= 1
            items[index].isBusy = false
            completion(result)
            next(index)
        }
    }

    private func post(_ author: ChangeAuthor, _ content: MessageContent, _ id: String) -> PostRequest {
        PostRequest(
            member: author.writer,
            program: PostRequest.Program(nickname: Nickname(stored: "program"), room: author.room ?? Self.attic),
            content: content, idempotencyKey: id)
    }

    /// Schedules the message. With a key, this also pushes the scheduled one further.
    private func store(_ index: Int, _ author: ChangeAuthor, _ due: Timestamp) {
        let (request, content) = begin(index, due)
        let post = KeyedPost(
            post(author, content, "plan \(request)"), key: items[index].key, notBefore: due)
        call("schedule \(request)", index) {
            try await $0.changes.post(post)
        } then: { [self] result in
            requests[request].end = .now
            guard case .success(let receipt) = result else { return refused(request, result) }
            guard receipt.due != nil else {
                // It was posted before the response.
                items[index].isPosted = true
                items[index].number = nil
                return keepTexts(from: request)
            }
            if let number = items[index].number, number != receipt.message { items[index].isPosted = true }
            items[index].number = receipt.message
            keepTexts(from: request)
        }
    }

    /// Changes the scheduled message by its number, and its time if `due` is set.
    private func change(_ index: Int, _ author: ChangeAuthor, _ due: Timestamp?) {
        guard let number = items[index].number else { return next(index) }
        let (request, content) = begin(index, due)
        let change = MessageChangeRequest(
            .id(number), by: author, .edit(content, notBefore: due), idempotencyKey: "plan \(request)")
        call("change \(request)", index) {
            try await $0.changes.change(change)
        } then: { [self] result in
            requests[request].end = .now
            guard case .success(let receipt) = result else {
                if case .failure(let error) = result, error.message.contains("posted already") {
                    items[index].isPosted = true
                    items[index].number = nil
                } else if world.isCalm {
                    // The message may be due much later.
                    items[index].waiting.append(.cancel(resolves: false))
                }
                return refused(request, result)
            }
            if receipt.due == nil {
                items[index].isPosted = true
                items[index].number = nil
            }
            keepTexts(from: request)
        }
    }

    /// The scheduled message has the text of a request, or of a later one.
    private func keepTexts(from request: Int) {
        let index = requests[request].item
        items[index].requests.removeAll { $0 < request }
    }

    private func refused(_ request: Int, _ result: Result<ChangeReceipt, ChatError>) {
        requests[request].isRefused = true
        let index = requests[request].item
        items[index].requests.removeAll { $0 == request }
        guard case .failure(let error) = result, !isLost(items[index]) else { return }
        let mayHaveMoved =
            items[index].room.map {
                world.clients.mayHaveMoved($0, since: requests[request].begin)
            } ?? false
        // The time is over before the request arrives.
        if mayHaveMoved || error.field == "not_before" && requests[request].due != nil { return }
        world.violate(.callsSucceed, "plan \(request) of item \(index): \(error)")
    }

    private func cancel(_ index: Int, _ author: ChangeAuthor, _ resolves: Bool) {
        guard let number = items[index].number else { return next(index) }
        let name: MessageReference = resolves ? .key(items[index].key!) : .id(number)
        let change = MessageChangeRequest(
            name, by: author, resolves ? .resolve(nil) : .delete, idempotencyKey: "cancellation of \(number)")
        let begin = Moment.now
        call("cancellation", index) {
            try await $0.changes.change(change)
        } then: { [self] result in
            switch result {
            case .success(let receipt):
                items[index].isOver = true
                if receipt.message == number, receipt.change == nil {
                    items[index].cancelled = .now
                } else {
                    items[index].isPosted = true
                }
            case .failure(let error):
                let mayHaveMoved = items[index].room.map { world.clients.mayHaveMoved($0, since: begin) } ?? false
                if mayHaveMoved {
                    items[index].waiting.append(.cancel(resolves: false))
                } else if !isLost(items[index]) {
                    world.violate(.callsSucceed, "cancellation of item \(index): \(error)")
                }
            }
        }
    }

    /// Posts with the key of the scheduled message, which cancels it.
    private func postNow(_ index: Int, _ author: ChangeAuthor) {
        guard let key = items[index].key, items[index].number != nil else { return next(index) }
        let (request, content) = begin(index, nil)
        let post = KeyedPost(post(author, content, "plan \(request)"), key: key)
        call("post \(request)", index) {
            try await $0.changes.post(post)
        } then: { [self] result in
            requests[request].end = .now
            guard case .success = result else { return refused(request, result) }
            items[index].number = nil
            items[index].isPosted = true
            keepTexts(from: request)
        }
    }

    private func close() {
        closing = .now
        busy += 1
        world.calls.insist("closing of the attic") { stores in
            _ = try await stores.moderation.ban(BanRequest(.room(Self.attic)), by: .commandLine)
            return try await stores.changes.scheduled(in: Self.attic, author: nil, after: nil, limit: 1000).items.count
        } then: { [self] result in
            busy -= 1
            if case .success(0) = result { return }
            world.violate(.schedulesEndWithTheirRoom, "messages are scheduled in a closed room: \(result)")
        }
    }

    // MARK: - The end

    /// Whether the relay drops the scheduled message: its room is closed, or its token revoked.
    private func isLost(_ item: Item) -> Bool {
        world.programs.isRevoked(item.program) || item.room == nil && closing != nil || isOld(item)
    }

    /// Whether retention may have deleted the posted message, or the store's memory of the requests.
    private func isOld(_ item: Item) -> Bool { world.retention.mayHaveDeleted(writtenSince: item.begin, at: item.wall) }

    func calmDown() {
        for index in items.indices {
            // A schedule without a number is due within an hour, if the clock is right.
            items[index].waiting = [
                world.dice.chance(50) && !world.programs.isRevoked(items[index].program)
                    ? .push(world.dice.within(.milliseconds(500)...(.seconds(5))), again: false)
                    : .cancel(resolves: false)
            ]
            next(index)
        }
    }

    var isSettled: Bool { busy == 0 }

    func leased(_ pushes: [QueuedPush], asked: Moment) {
        guard needsMessageClock else { return }
        for push in pushes {
            guard let leased = screens.leased(push), let request = leased.marker.flatMap({ numbers[$0] }) else {
                continue
            }
            let item = items[requests[request].item]
            if let cancelled = item.cancelled, cancelled < asked {
                world.violate(
                    .scheduledMessagesArePostedOnce,
                    "push \(push.id) of item \(requests[request].item) is leased, cancelled at \(cancelled)")
            }
            checkTime(push.id, request, asked)
        }
    }

    /// Checks that a text is not sent before its time.
    private func checkTime(_ push: Int64, _ request: Int, _ asked: Moment) {
        let sent = requests[request]
        // A text without a time is sent at the time of an earlier request.
        guard let due = sent.due, due > Timestamp.now(), !world.retention.hasStepped(since: sent.begin) else { return }
        world.violate(.scheduledMessagesWait, "push \(push) of plan \(request) is leased before \(due)")
    }

    func accepted(_ push: Int64) { screens.accepted(push) }

    func permits(_ push: StoredRows.Push) -> Bool {
        guard push.state == "cancelled", push.isEmpty, push.notification == nil else { return false }
        return items.contains { $0.isPosted }
            && [PushLifeCycle.messageReplaced, PushLifeCycle.messageDeleted].contains(push.reason)
    }

    func check(_ rows: StoredRows) {
        guard needsMessageClock else { return }
        var stored: [Int: [(message: Int64, request: Int)]] = [:]
        for message in rows.messages {
            guard let request = Marker(in: message.text.utf8).flatMap({ numbers[$0] }) else { continue }
            stored[requests[request].item, default: []].append((message.id, request))
        }
        for (index, item) in items.enumerated() where !isOld(item) {
            let found = stored[index] ?? []
            let isExpected =
                switch found.count {
                case 0: !item.isPosted && (item.cancelled != nil || item.number == nil || isLost(item)) || item.isOver
                case 1:
                    // The last plan may have been dropped after an earlier text was posted.
                    (item.cancelled == nil || item.isPosted)
                        && (item.requests.contains(found[0].request) || isLost(item)) || item.isOver
                default: false
                }
            if !isExpected {
                world.violate(.scheduledMessagesArePostedOnce, "item \(index) is stored as \(found): \(item)")
            }
            for (message, _) in found where found.count == 1 {
                checkPushes(item, message, rows.pushes.filter { $0.message == message })
            }
        }
    }

    private func checkPushes(_ item: Item, _ message: Int64, _ pushes: [StoredRows.Push]) {
        guard let room = item.room, item.key == nil else { return }
        let tokens = pushes.map(\.token)
        let missing = Set(world.clients.devices(in: room, since: item.begin)).subtracting(tokens)
        // An edit of the posted message may replace the first push.
        if requests.contains(where: { items[$0.item].begin == item.begin && $0.due == nil }) { return }
        if Set(tokens).count < tokens.count || !missing.isEmpty {
            world.violate(
                .recipientsAreTheMembersAtThatTime,
                "scheduled message \(message) has \(tokens.count) pushes, and none for \(missing.sorted())")
        }
    }
}

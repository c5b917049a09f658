import APNSGateway
import ChatDomain
import Logging
import Synchronization
import Testing

@testable import ChatDispatch
@testable import TestStores

/// Tests of Live Activities and their tokens, for every store, with the service that queues their pushes.
@Suite("Live Activities of every store", .timeLimit(.minutes(2)))
struct ActivityPortTests {
    private static let tag = ActivityTag(stored: "order-17")
    private static let room = Audience.room(SecretCode(stored: "room"))

    private func request(
        _ event: String, _ more: String = "", to audience: Audience? = nil, tag: ActivityTag = tag, token: Int64? = nil,
        channel: Bool = false
    ) throws -> ActivityRequest {
        let alert = event == "start" ? #","alert":{"title":"Order"}"# : ""
        let text = #"{"event":"\#(event)"\#(alert)\#(more)}"#
        return ActivityRequest(
            tag: tag, app: .default, content: try ActivityContent(#require(try JSONValue(parsing: text).object)),
            audience: audience, token: token, isAdministrator: token == nil, wantsChannel: channel)
    }

    private func state(_ number: Int) -> String { #","state":{"n":\#(number)}"# }

    private func sender(_ store: TestedStore, _ broadcasts: FakeBroadcasts = FakeBroadcasts()) -> ActivitySender {
        let now = store.now()
        return ActivitySender(
            activities: store.stores.activities, notifications: store.stores.notifications, broadcasts: broadcasts,
            format: { _ in APNSFormat(.http2, payloadLimit: 4096) }, now: { now },
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    /// Queues everything that is due.
    private func send(_ store: TestedStore, _ broadcasts: FakeBroadcasts = FakeBroadcasts()) async throws {
        let sender = sender(store, broadcasts)
        while try await sender.sendNext() {}
    }

    private func lease(_ store: TestedStore) async throws -> ActivityRecord? {
        guard case .activity(let activity) = try await store.stores.activities.lease() else { return nil }
        return activity
    }

    /// Makes members with devices and push-to-start tokens. Tokens 1 to 9 are of devices, 11 to 19 start activities.
    private func join(_ numbers: ClosedRange<Int>, _ code: String = "room", in store: TestedStore) async throws {
        for number in numbers {
            try await store.stores.rooms.join(StoreFixture.join(number, code))
            try await report(start: number + 10, by: number, in: store)
        }
    }

    private func report(
        start token: Int, type: String = ActivityLimits.standardType, by member: Int, system: Int? = 18,
        in store: TestedStore
    ) async throws {
        try await store.stores.activities.report(
            ActivityTokenReport(token: try StoreFixture.token(token), use: .start(type: type), system: system),
            by: try StoreFixture.member(member))
    }

    private func report(update token: Int, tag: ActivityTag = tag, by member: Int, in store: TestedStore) async throws {
        try await store.stores.activities.report(
            ActivityTokenReport(token: try StoreFixture.token(token), use: .update(tag), system: nil),
            by: try StoreFixture.member(member))
    }

    /// Returns the pushes of all notifications, oldest first: the tokens' numbers, the content, and the states.
    private func pushes(_ store: TestedStore) async throws -> [String] {
        let page = try await store.stores.notifications.notifications(sentWith: nil, before: nil, limit: 100)
        var lines: [String] = []
        for notification in page.items.reversed() {
            let pushes = try await store.stores.notifications.deliveries(
                of: notification.id, in: nil, after: nil, limit: 100)
            let aps = try JSONValue(parsing: notification.request.payload).object?["aps"]?.object
            let content = aps?["content-state"]?.object?["n"]?.integer ?? -1
            for push in pushes.items {
                let number = push.token.drop { $0 == "a" }
                lines.append("\(aps?["event"]?.text ?? "") \(content) to \(number) \(push.state.rawValue)")
            }
        }
        return lines
    }

    @Test(
        "Activities that no relay can lease are tried again after a pause, whatever the database's error is",
        arguments: StoreKind.allCases)
    func unleasable(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        _ = try await store.stores.activities.accept(request("start", state(1), to: Self.room))
        let sender = sender(store)
        _ = try store.query("ALTER TABLE activities RENAME TO moved")
        await #expect(throws: ChatError.self) { try await sender.sendNext() }
        _ = try store.query("ALTER TABLE moved RENAME TO activities")
        try await send(store)
        #expect(try await pushes(store) == ["start 1 to 11 pending"])
    }

    @Test(
        "A start reaches the devices of its audience, and updates those that report a token",
        arguments: StoreKind.allCases)
    func life(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        try await join(3...3, "other", in: store)
        try await report(start: 20, type: "Other", by: 1, in: store)
        let (activity, isRepeat) = try await store.stores.activities.accept(request("start", state(1), to: Self.room))
        #expect(!isRepeat && activity.revision == 1 && activity.endedAt == nil && !activity.isStarted)
        // The call survives a restart before anything is queued.
        try await store.restart()
        try await send(store)
        #expect(try await pushes(store) == ["start 1 to 11 pending", "start 1 to 12 pending"])
        let sent = try await store.stores.notifications.notifications(sentWith: nil, before: nil, limit: 9).items[0]
        #expect(sent.request.pushType == "liveactivity")
        #expect(sent.request.priority == 5)
        #expect(sent.request.collapseID == "activity-\(activity.id)")
        #expect(sent.request.expiration == store.now().seconds + 8 * 3600)
        #expect(
            sent.request.payload
                == #"{"aps":{"timestamp":1800000000,"event":"start","content-state":{"n":1},"#
                + #""attributes-type":"PushChatActivityAttributes","attributes":{"tag":"order-17"},"#
                + #""input-push-token":1,"alert":{"title":"Order"}}}"#)

        // Nothing has changed since the start.
        try await report(update: 31, by: 1, in: store)
        try await send(store)
        #expect(try await pushes(store).count == 2)
        let updated = try await store.stores.activities.accept(request("update", state(2))).activity
        #expect(updated.devices == 1 && updated.revision == 2 && updated.timestamp == activity.timestamp + 1)
        try await send(store)
        #expect(try await pushes(store).dropFirst(2) == ["update 2 to 31 pending"])
        // A device that reports its token late gets the newest content.
        try await report(update: 32, by: 2, in: store)
        try await send(store)
        #expect(try await pushes(store).dropFirst(3) == ["update 2 to 32 pending"])
        // Only members of the audience take part.
        await #expect(throws: ChatError.self) { try await report(update: 33, by: 3, in: store) }

        let ended = try await store.stores.activities.accept(request("end")).activity
        #expect(ended.endedAt == store.now())
        #expect(ended.newest.state == updated.newest.state)
        try await send(store)
        #expect(
            try await pushes(store) == [
                "start 1 to 11 cancelled", "start 1 to 12 cancelled", "update 2 to 31 cancelled",
                "update 2 to 32 cancelled", "end 2 to 31 pending", "end 2 to 32 pending",
            ])
        await #expect {
            _ = try await store.stores.activities.accept(request("update", state(3)))
        } throws: { ($0 as? ChatError)?.code == .notFound }
        // The tag is free again.
        #expect(try await store.stores.activities.accept(request("start", state(1))).activity.id > activity.id)
    }

    @Test("Only the newest content is sent", arguments: StoreKind.allCases)
    func coalesced(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        _ = try await store.stores.activities.accept(request("start", state(1)))
        try await report(update: 31, by: 1, in: store)
        for number in 2...4 { _ = try await store.stores.activities.accept(request("update", state(number))) }
        try await send(store)
        #expect(try await pushes(store) == ["update 4 to 31 pending"])
        _ = try await store.stores.activities.accept(request("update", state(5)))
        try await send(store)
        #expect(try await pushes(store) == ["update 4 to 31 cancelled", "update 5 to 31 pending"])
        let activity = try await store.stores.activities.activity(1)
        #expect(activity.timestamp == activity.createdAt.seconds + 4)
    }

    @Test("A start with an active tag is the same call or a conflict", arguments: StoreKind.allCases)
    func repeats(kind: StoreKind) async throws {
        let store = try await kind.make()
        let states = [#","state":{"n":1,"m":{"a":[1],"b":2}}"#, #","state":{"m":{"b":2,"a":[1]},"n":1}"#]
        let first = try await store.stores.activities.accept(request("start", states[0], to: Self.room))
        for state in states {
            let again = try await store.stores.activities.accept(request("start", state, to: Self.room))
            #expect(again.isRepeat && again.activity == first.activity)
        }
        for other in [try request("start", state(2), to: Self.room), try request("start", state(1), to: .all)] {
            await #expect {
                _ = try await store.stores.activities.accept(other)
            } throws: { ($0 as? ChatError)?.code == .conflict }
        }
    }

    @Test("A token changes only the activities that it started", arguments: StoreKind.allCases)
    func owners(kind: StoreKind) async throws {
        let store = try await kind.make()
        let mine = try await store.stores.activities.accept(request("start", state(1), token: 5)).activity
        await #expect(throws: ChatError.self) {
            try await store.stores.activities.accept(request("update", state(2), token: 6))
        }
        #expect(try await store.stores.activities.accept(request("update", state(2), token: 5)).activity.id == mine.id)
        #expect(try await store.stores.activities.accept(request("update", state(3))).activity.revision == 3)
        let other = ActivityTag(stored: "order-18")
        _ = try await store.stores.activities.accept(request("start", state(1), tag: other, token: 6))
        func ids(_ token: Int64?) async throws -> [ActivityID] {
            try await store.stores.activities.activities(startedWith: token, before: nil, limit: 9).items.map(\.id)
        }
        #expect(try await ids(5) == [1])
        #expect(try await ids(nil) == [2, 1])
    }

    @Test("A crash between queueing and recording repeats an update, and no start", arguments: StoreKind.allCases)
    func crash(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        _ = try await store.stores.activities.accept(request("start", state(1), to: .all))
        // The start is queued, and the relay dies before it records that.
        let leased = try #require(try await lease(store))
        #expect(try await store.stores.activities.lease() == nil, "another relay must not send it")
        _ = try await store.stores.notifications.send(
            NotificationRequest(
                audience: .tokens([try StoreFixture.token(11)]), app: .default, payload: #"{"aps":{"event":"start"}}"#,
                idempotencyKey: "activity \(leased.id) start 0"))
        try await store.restart()
        try await send(store)
        #expect(try await pushes(store).count == 1)
        store.advance(ActivityLimits.lease)
        try await send(store)
        #expect(try await pushes(store).count == 1)
        #expect(try await store.stores.activities.activity(leased.id).isStarted)
        // A call during a lease keeps the activity due.
        try await report(update: 31, by: 1, in: store)
        _ = try await store.stores.activities.accept(request("update", state(2)))
        let second = try #require(try await lease(store))
        _ = try await store.stores.activities.accept(request("update", state(3)))
        try await store.stores.activities.settle(second, next: nil)
        try await send(store)
        #expect(try await pushes(store).last == "update 3 to 31 pending")
    }

    @Test("A relay whose lease has ended records nothing", arguments: StoreKind.allCases)
    func fence(kind: StoreKind) async throws {
        let store = try await kind.make()
        let activities = store.stores.activities
        _ = try await activities.accept(request("start", state(1), channel: true))
        let late = try #require(try await lease(store))
        store.advance(ActivityLimits.lease)
        let current = try #require(try await lease(store))
        let channel = ActivityChannel(state: .open, id: "late")
        for call in [
            { try await activities.record(channel, of: late) }, { try await activities.started(late, by: [1]) },
        ] as [() async throws -> Void] {
            await #expect { try await call() } throws: { ($0 as? ChatError)?.code == .conflict }
        }
        try await activities.settle(late, next: nil)
        #expect(try await lease(store) == nil, "the lease of the other relay holds")
        try await activities.record(ActivityChannel(state: .open, id: "current"), of: current)
        #expect(try await activities.activity(current.id).channel?.id == "current")
    }

    @Test("A token that the push service has refused is forgotten", arguments: StoreKind.allCases)
    func refused(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        let activity = try await store.stores.activities.accept(request("start", state(1))).activity
        for member in 1...2 { try await report(update: member + 30, by: member, in: store) }
        _ = try await store.stores.activities.accept(request("update", state(2)))
        try await send(store)
        _ = try store.query(
            """
            UPDATE push_queue SET state = 'failed', reason = 'Unregistered', time_settled = \(store.time(store.now()))
            WHERE device_token = '\(try StoreFixture.token(31))'
            """)
        _ = try await store.stores.activities.accept(request("update", state(3)))
        try await send(store)
        #expect(try await pushes(store).suffix(1) == ["update 3 to 32 pending"])
        #expect(try await store.stores.activities.activity(activity.id).devices == 1)
    }

    @Test("A device has one token for each use, and a start reaches active devices only", arguments: StoreKind.allCases)
    func tokens(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        try await report(start: 15, by: 1, in: store)
        let user = UserReference(stored: "ann")
        _ = try await store.stores.devices.register(
            RegistrationRequest(token: try StoreFixture.token(1), app: .default, edit: DeviceEdit(user: .set(user))))
        let activity = try await store.stores.activities.accept(request("start", state(1), to: .users([user]))).activity
        func starts(_ limit: Int = 9, after cursor: Int? = nil) async throws -> [DeviceToken] {
            try await store.stores.activities.startTokens(
                of: activity, .all, after: try cursor.map { try StoreFixture.token($0) }, limit: limit)
        }
        #expect(try await starts() == [try StoreFixture.token(15)])
        #expect(try await starts(after: 15) == [])
        // The operator's own system reports a token of the device.
        try await store.stores.activities.report(
            ActivityTokenReport(
                token: try StoreFixture.token(16), use: .start(type: ActivityLimits.standardType), system: 18),
            of: try StoreFixture.token(1), app: .default)
        #expect(try await starts() == [try StoreFixture.token(16)])
        // The oldest type makes room for one more.
        for number in 0..<ActivityLimits.startTokens {
            store.advance(.seconds(1))
            try await report(start: 40 + number, type: "T\(number)", by: 1, in: store)
        }
        #expect(try await starts() == [])
        _ = try await store.stores.devices.unregister(try StoreFixture.token(1), app: .default)
        let all = try await store.stores.activities.accept(
            request("start", state(1), to: .all, tag: ActivityTag(stored: "all"))
        ).activity
        #expect(
            try await store.stores.activities.startTokens(of: all, .all, after: nil, limit: 9) == [
                try StoreFixture.token(12)
            ]
        )

        await #expect {
            try await report(start: 50, by: 9, in: store)
        } throws: { ($0 as? ChatError)?.code == .notJoined }
        try await store.stores.rooms.join(StoreFixture.join(3, tokenless: true))
        await #expect {
            try await report(start: 50, by: 3, in: store)
        } throws: { ($0 as? ChatError)?.field == "udid" }
        await #expect {
            try await report(update: 50, tag: ActivityTag(stored: "none"), by: 2, in: store)
        } throws: { ($0 as? ChatError)?.code == .notFound }
    }

    @Test("A record that cannot be read does not hold back the others", arguments: StoreKind.allCases)
    func unreadable(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        let bad = try await store.stores.activities.accept(
            request("start", state(1), to: .all, tag: ActivityTag(stored: "bad"))
        ).activity
        _ = try store.query("UPDATE activities SET newest = '{}' WHERE activity_id = \(bad.id)")
        _ = try await store.stores.activities.accept(request("start", state(2), to: .all))
        try await send(store)
        #expect(try await pushes(store) == ["start 2 to 11 pending"])
        let pause = store.now() + ActivityLimits.unreadablePause
        #expect(try await store.stores.activities.nextDue() == pause)
        let list = try await store.stores.activities.activities(startedWith: nil, before: nil, limit: 9)
        #expect(list.items.map(\.tag) == [Self.tag])
    }

    @Test("A call and a token signal that there is work", arguments: StoreKind.allCases)
    func signals(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        let (signals, signal) = AsyncStream.makeStream(of: Void.self)
        store.stores.activities.announceWork(to: signal)
        _ = try await store.stores.activities.accept(request("start", state(1)))
        try await report(update: 31, by: 1, in: store)
        signal.finish()
        var count = 0
        for await _ in signals { count += 1 }
        #expect(count == 2)
        #expect(try await store.stores.activities.nextDue() == nil)
        _ = try await store.stores.activities.accept(request("update", state(2)))
        #expect(try await store.stores.activities.nextDue() == store.now())
    }

    @Test("A channel gets each content in one broadcast, and is deleted at the end", arguments: StoreKind.allCases)
    func channel(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...2, in: store)
        try await report(start: 12, by: 2, system: 17, in: store)
        let service = FakeBroadcasts()
        let started = try await store.stores.activities.accept(
            request("start", state(1), to: Self.room, channel: true)
        ).activity
        #expect(started.channel?.state == .wanted)
        try await send(store, service)
        #expect(service.calls == ["create"])
        let starts = try await store.stores.notifications.notifications(sentWith: nil, before: nil, limit: 9).items
        #expect(
            Set(
                starts.map {
                    "\($0.request.audience.json) \($0.request.payload.contains(#""input-push-channel":"c1""#))"
                })
                == [
                    "\(Audience.tokens([try StoreFixture.token(11)]).json) true",
                    "\(Audience.tokens([try StoreFixture.token(12)]).json) false",
                ])
        try await report(update: 32, by: 2, in: store)
        for number in 2...3 { _ = try await store.stores.activities.accept(request("update", state(number))) }
        // The call survives a restart before it is broadcast.
        try await store.restart()
        try await send(store, service)
        #expect(service.calls == ["create", "update 3 to c1"])
        #expect(try await pushes(store).last == "update 3 to 32 pending")
        _ = try await store.stores.activities.accept(request("end"))
        try await send(store, service)
        #expect(service.calls == ["create", "update 3 to c1", "end 3 to c1", "delete c1"])
        #expect(try await store.stores.activities.activity(started.id).channel?.state == .deleted)
        #expect(try await store.stores.activities.nextDue() == nil)
    }

    @Test("A service that does not answer holds up one activity, not all", arguments: StoreKind.allCases)
    func slowService(kind: StoreKind) async throws {
        let store = try await kind.make()
        let service = FakeBroadcasts(delay: .milliseconds(50))
        service.answers = [.unavailable("no answer")]
        for number in 1...5 {
            _ = try await store.stores.activities.accept(
                request("start", state(number), tag: ActivityTag(stored: "tag\(number)"), channel: true))
        }
        // The sender's clock stands still, so the pause lasts.
        try await send(store, service)
        #expect(service.calls == ["create"])
        #expect(try await store.stores.activities.nextDue() == store.now() + .seconds(1))
        store.advance(.seconds(1))
        try await send(store, service)
        #expect(service.calls == Array(repeating: "create", count: 6))
    }

    @Test("Broadcasts and deletions are retried, also after a restart", arguments: StoreKind.allCases)
    func retries(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        let service = FakeBroadcasts()
        service.answers = [.unavailable("down")]
        _ = try await store.stores.activities.accept(request("start", state(1), to: Self.room, channel: true))
        try await send(store, service)
        #expect(service.calls == ["create"])
        #expect(try await pushes(store) == [], "the start waits for the channel")
        #expect(try await store.stores.activities.nextDue() == store.now() + .seconds(1))
        store.advance(.seconds(1))
        try await send(store, service)
        #expect(try await pushes(store) == ["start 1 to 11 pending"])
        service.answers = [.unavailable("down"), .accepted(channel: nil), .unavailable("down"), .gone("BadPath")]
        _ = try await store.stores.activities.accept(request("end"))
        for _ in 0..<3 {
            try await send(store, service)
            try await store.restart()
            store.advance(.seconds(1))
        }
        #expect(
            service.calls.suffix(4) == ["end 1 to c1", "end 1 to c1", "delete c1", "delete c1"], "\(service.calls)")
        #expect(try await store.stores.activities.nextDue() == nil)
    }

    @Test(
        "Without a channel, the relay sends a push to each device",
        arguments: StoreKind.allCases,
        [BroadcastAnswer.missingCapability("FeatureNotEnabled"), .refused("CannotCreateChannelConfig")])
    func fallback(kind: StoreKind, answer: BroadcastAnswer) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        let service = FakeBroadcasts()
        service.answers = [answer]
        let started = try await store.stores.activities.accept(
            request("start", state(1), to: Self.room, channel: true)
        ).activity
        try await send(store, service)
        #expect(try await pushes(store) == ["start 1 to 11 pending"])
        #expect(try await store.stores.activities.activity(started.id).channel?.state == .refused)
        try await report(update: 31, by: 1, in: store)
        _ = try await store.stores.activities.accept(request("end"))
        try await send(store, service)
        #expect(try await pushes(store).last == "end 1 to 31 pending")
        #expect(service.calls == ["create"])
    }

    @Test(
        "Retention ends an activity with an open channel, so that the channel is deleted", arguments: StoreKind.allCases
    )
    func abandoned(kind: StoreKind) async throws {
        let store = try await kind.make()
        let service = FakeBroadcasts()
        _ = try await store.stores.activities.accept(request("start", state(1), channel: true))
        try await send(store, service)
        store.advance(.seconds(12 * 3600 + 1))
        for calls in [["create", "delete c1"], ["create", "delete c1"]] {
            _ = try await store.stores.upkeep.applyRetention(messages: .seconds(60), queue: .seconds(60))
            try await send(store, service)
            #expect(service.calls == calls)
        }
        #expect(try store.value("SELECT count(*) FROM activities") == 0)
    }

    @Test(
        "Activities are deleted with the pushes of their time, after twelve hours at least",
        arguments: StoreKind.allCases)
    func retention(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await join(1...1, in: store)
        _ = try await store.stores.activities.accept(request("start", state(1)))
        try await report(update: 31, by: 1, in: store)
        store.advance(.seconds(12 * 3600))
        _ = try await store.stores.upkeep.applyRetention(messages: .seconds(60), queue: .seconds(60))
        #expect(try store.value("SELECT count(*) FROM activities") == 1)
        store.advance(.milliseconds(1))
        _ = try await store.stores.upkeep.applyRetention(messages: .seconds(60), queue: .seconds(60))
        #expect(try store.value("SELECT count(*) FROM activities") == 0)
        #expect(try store.value("SELECT count(*) FROM activity_tokens") == 1)
        store.advance(.seconds(180 * 86_400))
        _ = try await store.stores.upkeep.applyRetention(messages: .seconds(60), queue: .seconds(60))
        #expect(try store.value("SELECT count(*) FROM activity_tokens") == 0)
    }
}

/// A push service that records the calls. It accepts them, unless the test has set other answers.
private final class FakeBroadcasts: BroadcastService {
    private let state = Mutex<(calls: [String], answers: [BroadcastAnswer])>(([], []))
    /// The time that a request for a channel takes.
    private let delay: Duration

    init(delay: Duration = .zero) {
        self.delay = delay
    }

    var calls: [String] { state.withLock { $0.calls } }
    var answers: [BroadcastAnswer] {
        get { state.withLock { $0.answers } }
        set { state.withLock { $0.answers = newValue } }
    }

    private func answer(_ call: String, or other: BroadcastAnswer) -> BroadcastAnswer {
        state.withLock { state in
            state.calls.append(call)
            return state.answers.isEmpty ? other : state.answers.removeFirst()
        }
    }

    func createChannel(of app: AppName) async -> BroadcastAnswer {
        try? await Task.sleep(for: delay)
        return answer("create", or: .accepted(channel: "c1"))
    }

    func broadcast(_ push: ComposedNotification, to channel: String, of app: AppName) async -> BroadcastAnswer {
        let aps = try? JSONValue(parsing: push.payload).object?["aps"]?.object
        let content = aps?["content-state"]?.object?["n"]?.integer ?? -1
        return answer("\(aps?["event"]?.text ?? "") \(content) to \(channel)", or: .accepted(channel: nil))
    }

    func deleteChannel(_ channel: String, of app: AppName) async -> BroadcastAnswer {
        answer("delete \(channel)", or: .accepted(channel: nil))
    }
}

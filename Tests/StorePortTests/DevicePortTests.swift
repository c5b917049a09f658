import ChatDomain
import ChatSQL
import Synchronization
import Testing

@testable import TestStores

/// Tests the requirements of `docs/stores.md` for devices and notifications in every store, through the ports alone.
@Suite("Devices and notifications in every store", .timeLimit(.minutes(2)))
struct DevicePortTests {
    private static let payload = #"{"aps":{"alert":"hello"}}"#
    private static let sent = Transition(.sent, adding: PushHistory(attempts: 1))

    private func tags(_ words: String...) -> Set<ChatDomain.Tag> { Set(words.map(ChatDomain.Tag.init(stored:))) }
    private func user(_ text: String) -> UserReference { UserReference(stored: text) }

    @discardableResult
    private func register(
        _ number: Int, app: String = "default", _ edit: DeviceEdit = DeviceEdit(), in store: TestedStore
    ) async throws -> DeviceRegistration {
        try await store.stores.devices.register(
            RegistrationRequest(token: StoreFixture.token(number), app: AppName(app), edit: edit))
    }

    private func register(
        _ numbers: ClosedRange<Int>, app: String = "default", user: String? = nil, tags: Set<ChatDomain.Tag>? = nil,
        in store: TestedStore
    ) async throws {
        for number in numbers {
            var edit = DeviceEdit(tags: tags)
            if let user { edit.user = .set(self.user(user)) }
            try await register(number, app: app, edit, in: store)
        }
    }

    /// Reports devices as gone, as the push service does.
    private func deactivate(_ numbers: [Int], app: AppName = .default, in store: TestedStore) async throws {
        store.advance(.seconds(1))
        try await store.stores.feedback.record(
            numbers.map { FeedbackReport(token: try StoreFixture.token($0), since: store.now()) }, app: app)
        _ = try await store.stores.feedback.actOnFeedback()
    }

    private func device(_ number: Int, in store: TestedStore) async throws -> Device {
        try await store.stores.devices.device(StoreFixture.token(number), app: nil)
    }

    private func request(
        _ audience: Audience, app: String? = nil, payload: String = payload, key: String? = nil
    ) -> NotificationRequest {
        NotificationRequest(
            audience: audience, app: app.map { AppName($0) }, payload: payload, idempotencyKey: key)
    }

    private func deliveries(
        of id: NotificationID, in state: PushState? = nil, _ store: TestedStore
    ) async throws -> [Delivery] {
        try await Page.all { try await store.stores.notifications.deliveries(of: id, in: state, after: $0, limit: 2) }
    }

    /// Returns the digits at the end of the tokens.
    private func numbers(_ deliveries: [Delivery]) -> [String] {
        deliveries.map { String($0.token.trimmingPrefix { $0 == "a" }) }
    }

    private func refusal(_ call: () async throws -> Void) async -> ChatError.Code? {
        do {
            try await call()
            return nil
        } catch {
            return (error as? ChatError)?.code
        }
    }

    // MARK: - Devices

    @Test(
        "A registration writes only new data; an equal or smaller one writes nothing",
        arguments: StoreKind.allCases)
    func changes(kind: StoreKind) async throws {
        let store = try await kind.make()
        let full = DeviceEdit(
            user: .set(user("ann")), clientInfo: .set("app 1"), serverInfo: .set("vip"), tags: tags("b", "a"))
        #expect(try await register(1, full, in: store) == .created)
        let created = try await device(1, in: store)
        #expect(created.user?.text == "ann" && created.clientInfo == "app 1" && created.serverInfo == "vip")
        #expect(created.tags.map(\.text) == ["a", "b"] && created.createdAt == store.now())
        store.advance(.seconds(60))
        for edit in [full, DeviceEdit(), DeviceEdit(user: full.user), DeviceEdit(tags: tags("a", "b"))] {
            #expect(try await register(1, edit, in: store) == .unchanged)
        }
        #expect(try await device(1, in: store) == created)
        for edit in [
            DeviceEdit(user: .set(user("bob"))), DeviceEdit(clientInfo: .remove), DeviceEdit(serverInfo: .set("x")),
            DeviceEdit(tags: tags("b", "c")), DeviceEdit(tags: []), DeviceEdit(client: ClientInfo(appVersion: "1")),
        ] {
            #expect(try await register(1, edit, in: store) == .refreshed)
            #expect(try await register(1, edit, in: store) == .unchanged)
        }
        let changed = try await device(1, in: store)
        #expect(changed.id == created.id && changed.user?.text == "bob" && changed.clientInfo == nil)
        #expect(changed.tags.isEmpty && changed.registeredAt == store.now() && changed.client.appVersion == "1")
        store.advance(DeviceRegistration.freshness)
        #expect(try await register(1, in: store) == .refreshed)
    }

    @Test(
        "A report of the feedback service from the future does not concern later registrations",
        arguments: StoreKind.allCases)
    func reportFromTheFuture(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1...2, in: store)
        store.advance(.seconds(1))
        let reports = try (1...2).map {
            FeedbackReport(token: try StoreFixture.token($0), since: Timestamp(seconds: Int64(UInt32.max)))
        }
        try await store.stores.feedback.record(reports, app: .default)
        let reported = store.now()
        // The relay acts on the reports only later, for example because it was killed in between.
        store.advance(DeviceRegistration.freshness)
        try await register(2...2, in: store)
        _ = try await store.stores.feedback.actOnFeedback()
        #expect(try await device(1, in: store).deactivatedAt == reported)
        #expect(try await device(2, in: store).deactivatedAt == nil)
    }

    @Test("An edit changes a device's data, but not its time of registration", arguments: StoreKind.allCases)
    func edits(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1, in: store)
        try await deactivate([1], in: store)
        let before = try await device(1, in: store)
        #expect(before.deactivatedAt != nil)
        store.advance(.seconds(60))
        let edited = try await store.stores.devices.edit(
            StoreFixture.token(1), app: nil, DeviceEdit(serverInfo: .set("x"), tags: tags("t")))
        #expect(edited.serverInfo == "x" && edited.tags.map(\.text) == ["t"])
        #expect(edited.registeredAt == before.registeredAt && edited.deactivatedAt == before.deactivatedAt)
        #expect(try await device(1, in: store) == edited)
        let full = DeviceEdit(
            user: .set(user("u")), clientInfo: .set("c\"\\,{}"), serverInfo: .set("s\nü"), tags: tags("b\"\\,{}NULL"))
        var changed = try await store.stores.devices.edit(StoreFixture.token(1), app: nil, full)
        #expect(changed.clientInfo == "c\"\\,{}" && changed.serverInfo == "s\nü" && changed.user?.text == "u")
        #expect(changed.tags.map(\.text) == ["b\"\\,{}NULL"])
        changed = try await store.stores.devices.edit(
            StoreFixture.token(1), app: .default, DeviceEdit(user: .remove, clientInfo: .remove, tags: []))
        #expect(
            changed.user == nil && changed.clientInfo == nil && changed.serverInfo == "s\nü" && changed.tags.isEmpty)
    }

    @Test(
        "A call on a token of several apps must name the app; an unknown token is not found",
        arguments: StoreKind.allCases)
    func ambiguous(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1, in: store)
        try await register(1, app: "other", in: store)
        let (devices, token, unknown) = (store.stores.devices, try StoreFixture.token(1), try StoreFixture.token(2))
        var error = await #expect(throws: ChatError.self) { try await devices.device(token, app: nil) }
        #expect(error?.message == "token: belongs to several apps of this relay (default, other); name one with app")
        error = await #expect(throws: ChatError.self) { try await devices.device(token, app: AppName("third")) }
        #expect(error?.message == "There is no such device of the app third" && error?.field == "app")
        #expect(await refusal { _ = try await devices.device(token, app: nil) } == .ambiguous)
        #expect(await refusal { _ = try await devices.edit(token, app: nil, DeviceEdit()) } == .ambiguous)
        #expect(await refusal { _ = try await devices.unregister(token, app: nil) } == .ambiguous)
        #expect(await refusal { _ = try await devices.device(unknown, app: nil) } == .notFound)
        #expect(await refusal { _ = try await devices.edit(token, app: AppName("third"), DeviceEdit()) } == .notFound)
        #expect(try await devices.device(token, app: AppName("other")).app == AppName("other"))
        #expect(try await !devices.unregister(token, app: AppName("third")))
        #expect(try await devices.unregister(token, app: AppName("other")))
        #expect(try await devices.device(token, app: nil).app == .default)
    }

    @Test(
        "A list contains each device that its filter selects once, over any number of pages",
        arguments: StoreKind.allCases)
    func lists(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1...3, user: "ann", in: store)
        try await register(4...5, user: "ann", tags: tags("red", "blue"), in: store)
        try await register(6...8, user: "bob", tags: tags("red"), in: store)
        try await register(9...10, in: store)
        try await register(11...11, app: "other", user: "ann", in: store)
        try await register(12...12, app: "other", in: store)
        try await deactivate([5, 8], in: store)
        try await deactivate([11], app: AppName("other"), in: store)
        /// The numbers of the devices that each condition selects.
        let apps = [(nil, 1...12), ("default", 1...10), ("other", 11...12)] as [(String?, ClosedRange<Int>)]
        let users = [(nil, 1...12), ("ann", 1...5), ("cleo", 0...0)] as [(String?, ClosedRange<Int>)]
        for (app, ofApp) in apps {
            for (name, ofUser) in users {
                for tag in [nil, ChatDomain.Tag(stored: "red")] {
                    for isActive in [nil, true, false] as [Bool?] {
                        let filter = DeviceFilter(
                            app: app.map { AppName($0) }, user: name.map(user), tag: tag, isActive: isActive)
                        let expected = (1...12).filter { number in
                            ofApp.contains(number) && (ofUser.contains(number) || name == "ann" && number == 11)
                                && (tag == nil || (4...8).contains(number))
                                && (isActive == nil || [5, 8, 11].contains(number) != isActive)
                        }
                        for limit in [1, 2, 5, 500] {
                            let found = try await Page.all {
                                let page = try await store.stores.devices.devices(filter, after: $0, limit: limit)
                                #expect(page.items.count <= limit)
                                return page
                            }
                            #expect(try found.map(\.token) == expected.map(StoreFixture.token), "\(filter)")
                        }
                    }
                }
            }
        }
    }

    @Test(
        "A page looks at a bounded number of devices, and the next continues where it ended",
        arguments: StoreKind.allCases)
    func window(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try store.query(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(SQLPage.window + 10))
            INSERT INTO devices (app, device_token, user_reference, time_deactivated, deactivated_reason)
            SELECT 'default', 'old' || i, 'all', \(store.time(store.now())), 'x' FROM n
            """)
        try await register(1...1, user: "all", in: store)
        for filter in [DeviceFilter(isActive: true), DeviceFilter(user: user("all"), isActive: true)] {
            let empty = try await store.stores.devices.devices(filter, after: nil, limit: 10)
            #expect(empty.items.isEmpty && empty.next != nil)
            let rest = try await store.stores.devices.devices(filter, after: empty.next, limit: 10)
            #expect(rest.items.map(\.token) == [try StoreFixture.token(1)] && rest.next == nil)
        }
    }

    @Test(
        "A device's history has its notifications, other programs' pushes and its room's, newest first",
        arguments: StoreKind.allCases)
    func history(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, token) = (store.stores.rooms, try StoreFixture.token(2))
        for number in 1...3 { try await rooms.join(StoreFixture.join(number)) }
        for round in 0..<6 {
            _ = try await rooms.post(StoreFixture.post(1, "message \(round)"))
            _ = try await store.stores.notifications.send(request(.tokens([token]), payload: "{\"n\":\(round)}"))
            _ = try await rooms.post(StoreFixture.post(2, "own"))
            if round == 3 { try await store.settle(try await store.lease(), Self.sent) }
        }
        // A push of another program gets its device with its first outcome.
        _ = try store.query("INSERT INTO push_queue (device_token, payload) VALUES (upper('\(token)'), '{\"aps\":{}}')")
        try await store.notice()
        try await store.settle(try await store.lease().filter { !$0.isOurs }, Self.sent)
        let device = try await device(2, in: store)
        for limit in [1, 4, 50] {
            let found = try await Page.all { cursor in
                let page = try await store.stores.devices.deliveries(to: device.id, before: cursor, limit: limit)
                #expect(page.items.count <= limit)
                return page
            }
            #expect(found.count == 13 && found.map(\.id) == Set(found.map(\.id)).sorted(by: >))
            #expect(found.filter { $0.message != nil }.count == 6 && found.filter { $0.notification != nil }.count == 6)
            #expect(found[0].state == .sent && found.filter { $0.state == .sent }.count == 9)
            #expect(found.dropFirst().allSatisfy { $0.token == token.description && $0.queuedAt == store.now() })
            #expect(found.allSatisfy { ($0.apnsID != nil) == ($0.state == .sent) })
        }
    }

    @Test(
        "Unregistering cancels waiting pushes, leaves the member in its room, and deletes the tags",
        arguments: StoreKind.allCases)
    func unregister(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (rooms, devices) = (store.stores.rooms, store.stores.devices)
        for number in 1...2 { try await rooms.join(StoreFixture.join(number)) }
        try await register(2...3, tags: tags("t"), in: store)
        let id = try await store.stores.notifications.send(request(.all)).id
        _ = try await rooms.post(StoreFixture.post(1, "hi"))
        for number in 1...2 { #expect(try await devices.unregister(StoreFixture.token(number), app: nil)) }
        #expect(try await !devices.unregister(StoreFixture.token(2), app: nil))
        let cancelled = "state = 'cancelled' AND reason = 'Unregistered' AND time_settled IS NOT NULL"
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE \(cancelled)") == 2)
        let status = try await store.stores.notifications.notification(id)
        #expect(status.counts[.cancelled] == 2 && status.counts[.pending] == 1)
        let outcomes = store.stores.metrics.outcomes()
        #expect(outcomes.map(\.total) == [2] && outcomes.map(\.reason) == [PushLifeCycle.unregistered])
        #expect(try store.value("SELECT count(*) FROM device_tags") == 1)
        #expect(try store.value("SELECT count(*) FROM active_users WHERE device_token = '0'") == 2)
        #expect(try await rooms.post(StoreFixture.post(1, "ho")).queued == 0)
        // The chat's pushes are cancelled when their turn to be leased comes.
        #expect(try await store.lease().map(\.obstacle) == [nil, .deviceForgotten])
        #expect(try await store.queue().retry(.matching(QueueFilter()), progress: { _ in }) == 0)
        // The device comes back under a new id.
        try await register(2, in: store)
        #expect(try await device(2, in: store).id > 3)
    }

    @Test("Devices are counted once a day, by their latest data", arguments: StoreKind.allCases)
    func usage(kind: StoreKind) async throws {
        let store = try await kind.make()
        func says(_ number: Int, _ version: String?) async throws {
            try await register(number, DeviceEdit(client: ClientInfo(appVersion: version)), in: store)
        }
        func today() async throws -> [String: Int] {
            let days = try #require(await store.stores.metrics.usage(since: store.now().day))
            return days.filter { $0.kind == nil || $0.kind == .appVersion }.reduce(into: [:]) { result, count in
                if case .text(let text) = count.value { return result[text] = count.devices }
                result[count.kind == nil ? "all" : count.value == .others ? "others" : "unknown"] = count.devices
            }
        }
        for number in 1...3 { try await says(number, "1.0") }
        try await says(4, nil)
        try await says(1, "1.0")
        #expect(try await today() == ["all": 4, "1.0": 3, "unknown": 1])
        try await says(1, "2.0")
        try await says(4, "2.0")
        #expect(try await today() == ["all": 4, "1.0": 2, "2.0": 2])
        store.advance(.seconds(86_400))
        #expect(try await today() == [:])
        // The app sends no version, so the version of yesterday counts.
        try await says(1, nil)
        #expect(try await today() == ["all": 1, "2.0": 1])
        for number in 2...70 { try await says(number, "v\(number)") }
        #expect(try await today()["others"] == 6)
        try await says(70, "v2")
        var counts = try await today()
        #expect(counts["others"] == 5 && counts["v2"] == 2 && counts["all"] == 70 && counts.count == 66)
        // A value that is counted already counts on its own, and a new one does not.
        try await says(3, "v71")
        try await says(4, "v5")
        counts = try await today()
        #expect(counts["others"] == 6 && counts["v3"] == nil && counts["v4"] == nil && counts["v5"] == 2)
        #expect(counts.filter { $0.key != "all" }.values.reduce(0, +) == 70)
        let days = try #require(await store.stores.metrics.usage(since: (store.now() - .seconds(86_400)).day))
        #expect(days.filter { $0.kind == nil }.map(\.devices) == [4, 70])
    }

    // MARK: - Notifications

    @Test("A notification goes to each active device of its audience once, in order", arguments: StoreKind.allCases)
    func audiences(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1...2, user: "ann", tags: tags("red", "blue"), in: store)
        try await register(3...3, app: "other", user: "bob", tags: tags("blue"), in: store)
        try await register(4...4, user: "ann", tags: tags("red"), in: store)
        try await deactivate([4], in: store)
        let (both, colours) = ([user("bob"), user("ann")], ["blue", "red"].map(ChatDomain.Tag.init(stored:)))
        let tokens = try [3, 9, 4, 1, 1].map(StoreFixture.token)
        for (audience, app, expected) in [
            (.all, nil, ["1", "2", "3"]), (.all, "other", ["3"]), (.all, "default", ["1", "2"]),
            (.users(both), nil, ["3", "1", "2"]), (.users(both), "default", ["1", "2"]),
            (.users([user("nobody")]), nil, []), (.tags(colours), nil, ["1", "2", "3"]),
            (.tags(colours), "other", ["3"]), (.tokens(Array(tokens[3...])), nil, ["1"]), (.tokens([]), nil, []),
        ] as [(Audience, String?, [String])] {
            let receipt = try await store.stores.notifications.send(request(audience, app: app))
            #expect(receipt.devices == expected.count && !receipt.isRepeat)
            #expect(try await numbers(deliveries(of: receipt.id, store)) == expected)
            let status = try await store.stores.notifications.notification(receipt.id)
            #expect(status.counts[.pending] == expected.count && status.state == (expected.isEmpty ? .done : .sending))
        }
        // A token without a registration goes to the named app, or to the default app if none is named. A push to an
        // inactive device fails.
        for (app, failed) in [(nil, ["4"]), ("other", [])] {
            let id = try await store.stores.notifications.send(request(.tokens(tokens), app: app)).id
            let (found, lost) = try await (deliveries(of: id, store), deliveries(of: id, in: .failed, store))
            #expect(numbers(found) == ["3", "9", "4", "1"] && numbers(lost) == failed)
            #expect(found[1].app.text == app ?? "default" && lost.allSatisfy { $0.reason == "DeviceInactive" })
        }
        #expect(store.stores.metrics.outcomes().map(\.reason) == ["DeviceInactive"])
        try await register(1, app: "other", in: store)
        #expect(try await store.stores.notifications.send(request(.tokens([tokens[3]]))).devices == 2)
    }

    @Test(
        "Pushes of a large notification are queued after the response, also after a restart",
        arguments: StoreKind.allCases)
    func large(kind: StoreKind) async throws {
        let store = try await kind.make()
        let devices = store.stores.devices
        try await withThrowingTaskGroup { group in
            for number in 1...1203 {
                let tags = number.isMultiple(of: 3) ? tags("x", "y") : tags("y")
                group.addTask {
                    _ = try await devices.register(
                        RegistrationRequest(
                            token: StoreFixture.token(number), app: .default, edit: DeviceEdit(tags: tags)))
                }
            }
            try await group.waitForAll()
        }
        let ids = try await store.stores.notifications.send([
            request(.all), request(.tags(["x", "y"].map(ChatDomain.Tag.init(stored:)))),
        ]).map { try $0.get().id }
        #expect(try await store.stores.notifications.notification(ids[0]).devices == 1203)
        try await store.restart()
        let upkeep = store.stores.upkeep
        let watch = Task { await upkeep.watch() }
        for id in ids {
            while try await store.stores.notifications.notification(id).state == .queueing {
                try await Task.sleep(for: .milliseconds(20))
            }
            let status = try await store.stores.notifications.notification(id)
            #expect(status.counts[.pending] == 1203)
            let tokens = try await Page.all {
                try await store.stores.notifications.deliveries(of: id, in: nil, after: $0, limit: 500)
            }.map(\.token)
            #expect(tokens.count == 1203 && Set(tokens).count == 1203)
        }
        watch.cancel()
        await watch.value
    }

    @Test(
        "A key that is used again returns the first response, or an error for another request",
        arguments: StoreKind.allCases)
    func keys(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1...3, in: store)
        let notifications = store.stores.notifications
        var first = request(.tokens([try StoreFixture.token(1), try StoreFixture.token(1)]), key: "k")
        first.notBefore = store.now() + .seconds(10)
        let receipt = try await notifications.send(first)
        #expect(try await notifications.send(first) == NotificationReceipt(id: receipt.id, devices: 1, isRepeat: true))
        store.advance(.seconds(20))
        // Once the time has passed, the parser of requests returns no time.
        first.notBefore = nil
        #expect(try await notifications.send(first).isRepeat)
        #expect(try await notifications.earlier(first)?.id == receipt.id)
        for change in [
            { $0.payload = "{}" }, { $0.audience = .all }, { $0.priority = 1 }, { $0.app = AppName("other") },
            { $0.collapseID = "c" }, { $0.expiration = 0 }, { $0.skipsUnchanged = true }, { $0.pushType = "voip" },
        ] as [(inout NotificationRequest) -> Void] {
            var other = first
            change(&other)
            let changed = other
            #expect(await refusal { _ = try await notifications.send(changed) } == .idempotencyConflict)
        }
        // An error in one of several requests does not affect the others.
        let many = [
            first, request(.all, key: "k"), request(.all, key: "new"), request(.all, key: "new"), request(.all),
        ]
        let results = try await notifications.send(many)
        #expect(try results[0].get().id == receipt.id)
        #expect(throws: ChatError.self) { try results[1].get() }
        #expect(try results[2].get().id == results[3].get().id && results[3].get().isRepeat)
        #expect(try results[2...].map { try $0.get().devices } == [3, 3, 3])
        #expect(try await store.lease().count == 7)
        #expect(await refusal { _ = try await notifications.notification(99) } == .notFound)
        #expect(await refusal { _ = try await notifications.cancel(99) } == .notFound)
        #expect(try await deliveries(of: 99, store).isEmpty)
    }

    @Test("Notifications are listed page by page, the newest first, and by token", arguments: StoreKind.allCases)
    func list(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1...2, in: store)
        let notifications = store.stores.notifications
        var ids: [NotificationID] = []
        for number in 1...5 {
            var request = request(.all)
            request.token = number % 2 == 0 ? 7 : nil
            ids.append(try await notifications.send(request).id)
        }
        func list(_ token: Int64?, limit: Int) async throws -> [[NotificationID]] {
            var (pages, cursor): ([[NotificationID]], NotificationID?) = ([], nil)
            repeat {
                let page = try await notifications.notifications(sentWith: token, before: cursor, limit: limit)
                pages.append(page.items.map(\.id))
                cursor = page.next
            } while cursor != nil
            return pages
        }
        #expect(try await list(nil, limit: 2) == [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]])
        #expect(try await list(nil, limit: 5) == [ids.reversed()])
        #expect(try await list(7, limit: 5) == [[ids[3], ids[1]]])
        #expect(try await list(7, limit: 1).flatMap(\.self) == [ids[3], ids[1]])
        #expect(try await list(8, limit: 5) == [[]])
        // Each item equals the notification that a single read returns.
        let first = try await notifications.notifications(sentWith: nil, before: nil, limit: 1).items
        #expect(try await first == [notifications.notification(ids[4])])
        #expect(first[0].counts[.pending] == 2 && first[0].state == .sending)
    }

    @Test(
        "skip_unchanged compares a badge with the last badge, and other pushes with the last that was not only a badge",
        arguments: StoreKind.allCases)
    func unchanged(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1...1, tags: tags("a", "b"), in: store)
        func send(_ payload: String, at time: Timestamp? = nil) async throws -> Int {
            var request = request(.all, payload: payload)
            (request.skipsUnchanged, request.notBefore) = (time == nil, time)
            return try await store.stores.notifications.send(request).devices
        }
        let (three, four) = (#"{"aps":{"badge":3}}"#, #"{"aps":{"badge":4}}"#)
        let (news, others) = (#"{"aps":{"alert":"news","badge":3}}"#, #"{"aps":{"alert":"others"}}"#)
        // A scheduled push does not count as the last push of a device.
        #expect(try await send(three, at: store.now() + .seconds(3600)) == 1)
        for (payload, devices) in [
            (three, 1), (three, 0), (others, 1), (three, 0), (others, 0), (four, 1), (news, 1), (three, 0), (four, 1),
            (news, 0), (others, 1), (news, 1),
        ] {
            #expect(try await send(payload) == devices, "\(payload)")
        }
        // A device counts once, even if several tags include it.
        var twice = request(.tags(["a", "b"].map(ChatDomain.Tag.init(stored:))), payload: news)
        twice.skipsUnchanged = true
        let id = try await store.stores.notifications.send(twice).id
        #expect(try await store.stores.notifications.notification(id).skipped == 1)
        // A failed push did not reach the device, so it does not count.
        let leased = try await store.lease()
        try await store.settle(leased, Transition(.failed(reason: "BadTopic")))
        #expect(try await send(news) == 1)
    }

    // MARK: - Keys and tokens

    @Test("Concurrent callers get the same provider token, for fifty minutes", arguments: StoreKind.allCases)
    func providerTokens(kind: StoreKind) async throws {
        let store = try await kind.make()
        let signed = Mutex(0)
        func token(_ key: String = "K", _ fingerprint: String = "f", refused: String? = nil) async throws -> String {
            let name = ProviderKeyName(teamID: "T", keyID: key, fingerprint: fingerprint)
            let number = signed.withLock { number in
                number += 1
                return number
            }
            return try await store.stores.providerTokens.providerToken(for: name, refused: refused) { time in
                "token \(number) of \(time.seconds)"
            }.text
        }
        let first = try await token()
        let (tokens, name) = (store.stores.providerTokens, ProviderKeyName(teamID: "T", keyID: "new", fingerprint: "f"))
        let together = try await withThrowingTaskGroup(of: String.self) { group in
            for number in 0..<20 {
                group.addTask { try await tokens.providerToken(for: name, refused: nil) { _ in "\(number)" }.text }
            }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }
        #expect(together.count == 1)
        let others = [try await token("OTHER"), try await token("K", "g"), first]
        #expect(Set(others).count == 3, "Each key has its own token, also under the same key id.")
        try await store.restart()
        store.advance(IssuedToken.shortestLife - .seconds(1))
        #expect(try await token(refused: first) == first)
        store.advance(.seconds(1))
        let second = try await token(refused: first)
        #expect(second != first)
        #expect(try await token(refused: first) == second)
        store.advance(IssuedToken.lifetime - .seconds(1))
        #expect(try await token() == second)
        store.advance(.seconds(1))
        #expect(try await token() != second)
        let rows = try store.value("SELECT count(*) FROM provider_tokens")
        await #expect(throws: (any Error).self) {
            let unsigned = ProviderKeyName(teamID: "T", keyID: "unsigned", fingerprint: "f")
            return try await tokens.providerToken(for: unsigned, refused: nil) { _ in throw CancellationError() }
        }
        #expect(try store.value("SELECT count(*) FROM provider_tokens") == rows)
        // A clock that was set back does not leave a token from the future in use.
        let future = try await token()
        store.advance(.zero - IssuedToken.tolerance)
        #expect(try await token() == future)
        store.advance(.seconds(-1))
        #expect(try await token() != future)
    }

    @Test(
        "A browser's subscription stays unchanged, and the relay's key stays until another is set",
        arguments: StoreKind.allCases)
    func subscriptions(kind: StoreKind) async throws {
        let store = try await kind.make()
        func subscription(_ number: Int, key: UInt8 = 1, secret: UInt8 = 2) throws -> Subscription {
            Subscription(
                address: try StoreFixture.token(number), endpoint: "https://push.example.org/\(number)",
                publicKey: [UInt8](repeating: key, count: 65), secret: [UInt8](repeating: secret, count: 16),
                expiresAt: number == 1 ? nil : Timestamp(seconds: 1_900_000_000))
        }
        for number in 1...2 { try await store.stores.subscriptions.keep(subscription(number)) }
        let kept = store.stores.subscriptions
        for other in [try subscription(1, key: 9), try subscription(1, secret: 9)] {
            #expect(await refusal { try await kept.keep(other) } == .conflict)
        }
        // The keys are also needed to unregister the browser.
        let devices = store.stores.devices
        _ = try await devices.register(RegistrationRequest(token: StoreFixture.token(2), app: .web))
        for other in [try subscription(2, key: 9), try subscription(2, secret: 9)] {
            #expect(await refusal { _ = try await devices.unregister(other) } == .conflict)
        }
        #expect(try await devices.device(StoreFixture.token(2), app: .web).deactivatedAt == nil)
        #expect(try await devices.unregister(subscription(2)))
        #expect(try await !devices.unregister(subscription(2)))
        // A device without keys was registered by the operator. No client can prove that it owns the device.
        _ = try await devices.register(RegistrationRequest(token: StoreFixture.token(3), app: .web))
        #expect(try await !devices.unregister(subscription(3)))
        #expect(try await devices.unregister(StoreFixture.token(3), app: .web))
        #expect(try await kept.vapidKey { "first" } == "first")
        try await store.restart()
        let again = store.stores.subscriptions
        let found = try await again.subscriptions([1, 3, 2, 1].map(StoreFixture.token))
        #expect(
            try found == [StoreFixture.token(1): subscription(1), StoreFixture.token(2): subscription(2)])
        #expect(try await again.subscriptions([]).isEmpty)
        #expect(try await again.vapidKey { "second" } == "first")
        try await again.setVAPIDKey("other")
        #expect(try await again.vapidKey { "third" } == "other")
    }

    @Test(
        "A program's token is found by its secret until it is revoked or has expired",
        arguments: StoreKind.allCases)
    func tokens(kind: StoreKind) async throws {
        let store = try await kind.make()
        let tokens = store.stores.tokens
        let grant = try AccessGrant(
            scopes: [.post, .send], room: SecretCode(stored: "kitchen"), audience: .users([user("ann")]))
        let (first, secret) = try await tokens.create(AccessToken.name("backup"), grant, expiresAt: nil)
        let short = try await tokens.create(AccessToken.name("short"), grant, expiresAt: store.now() + .seconds(60))
        #expect(try await tokens.token(of: secret) == first)
        #expect(try await tokens.token(of: short.secret) == short.token)
        #expect(first.grant == grant && short.secret != secret)
        #expect(secret.wholeMatch(of: #/pct_[A-Za-z0-9_-]{43}/#) != nil)
        #expect(try await tokens.token(of: secret.dropLast() + "!") == nil)
        #expect(await refusal { _ = try await tokens.create(first.name, grant, expiresAt: nil) } == .conflict)
        #expect(try await Page.all { try await tokens.tokens(after: $0, limit: 1) } == [first, short.token])
        let name = try AccessToken.name("watchtower")
        let (gotify, key) = try await tokens.create(name, grant, expiresAt: store.now() + .seconds(60), form: .gotify)
        #expect(
            key.first == "A" && key.count == 15
                && key.utf8.allSatisfy { $0.isASCIIDigit || $0.isASCIILetter || "-_".utf8.contains($0) })
        #expect(try await tokens.token(of: key) == gotify && AccessToken.isSecret(key))
        store.advance(.seconds(59))
        #expect(try await tokens.token(of: short.secret) == short.token)
        store.advance(.seconds(1))
        #expect(try await tokens.token(of: short.secret) == nil)
        #expect(try await tokens.revoke(first.id, by: .commandLine) == first.name)
        #expect(try await tokens.revoke(first.id, by: .commandLine) == nil)
        #expect(try await tokens.token(of: secret) == nil)
        // Token ids are never reused, because messages name their writer by the token id.
        let again = try await tokens.create(first.name, grant, expiresAt: nil)
        #expect(again.token.id > short.token.id)
        // Another program breaks the grant, and deletes the token.
        for scopes in ["[]", "[\"all\"]", "{}"] {
            _ = try store.query("UPDATE api_tokens SET scopes = '\(scopes)' WHERE token_id = \(again.token.id)")
            #expect(try await tokens.token(of: again.secret) == nil)
        }
        _ = try store.query("UPDATE api_tokens SET scopes = '[\"send\"]' WHERE token_id = \(again.token.id)")
        #expect(try await tokens.token(of: again.secret) != nil)
        _ = try store.query("DELETE FROM api_tokens")
        #expect(try await tokens.token(of: again.secret) == nil)
    }
}

import ChatDomain
import Foundation
import Logging
import PushWire
import Synchronization
import TestSupport
import Testing

@testable import WebPushGateway

@Suite("The gateway to browsers", .timeLimit(.minutes(5)))
struct WebPushGatewayTests {
    let service: PushServiceFake
    private let key = VAPIDKey()

    init() throws {
        service = try PushServiceFake()
    }

    func gateway(
        _ subscriptions: [Subscription], hosts: [String], addresses: [String: String] = ["localhost": "127.0.0.1"],
        answerLimit: Duration = .seconds(60), drainLimit: Duration = .seconds(10),
        now: @escaping TimeSource = Timestamp.now, logger: Logger = .silent
    ) throws -> WebPushGateway {
        var sender = WebPushGateway.Sender(
            key: key, subject: "mailto:push@example.org", rules: try EndpointRules(hosts: hosts),
            trust: [service.certificate])
        sender.addresses = { host in addresses[host].flatMap { IPAddress($0) }.map { [$0] } ?? [] }
        var options = WebPushGateway.Options()
        (options.answerLimit, options.drainLimit) = (answerLimit, drainLimit)
        return WebPushGateway(
            sender: sender, format: WebPushFormat(publicURL: nil), subscriptions: FakeSubscriptions(subscriptions),
            options: options, connectionIDs: ConnectionIDs(), now: now, logger: logger)
    }

    func push(
        _ number: Int, to subscription: Subscription, expiration: Int64? = nil, priority: UInt8? = nil,
        collapseID: String? = nil
    ) -> Push {
        Push(
            id: Int64(number), identifier: UInt32(number), address: .token(subscription.address),
            payload: Array("text \(number)".utf8), expiration: expiration, priority: priority, collapseID: collapseID)
    }

    /// Sends all pushes and returns their outcomes by push id.
    /// - Parameter isRepeated: Whether to retry a push that was postponed.
    func send(
        _ pushes: [Push], over gateway: WebPushGateway, repeating isRepeated: (Push) -> Bool = { _ in false }
    ) async throws -> [Int64: Outcome] {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { await gateway.run() }
            var outcomes: [Int64: Outcome] = [:]
            var sent: [UInt32: Push] = [:]
            var due = pushes[...]
            while outcomes.count < pushes.count {
                while !due.isEmpty {
                    let slot = try #require(await gateway.slot(fresh: false))
                    let part = due.prefix(slot.capacity).enumerated().map { index, push in
                        Push(
                            id: push.id, identifier: slot.firstIdentifier + UInt32(index), address: push.address,
                            payload: push.payload, priority: push.priority, collapseID: push.collapseID)
                    }
                    due = due.dropFirst(slot.capacity)
                    for push in part { sent[push.identifier] = push }
                    gateway.write(Lease(slot: slot, pushes: part))
                }
                for report in try #require(await gateway.reports()) {
                    for identifier in report.identifiers {
                        let known = sent.removeValue(forKey: identifier)
                        let push = try #require(known, "reported twice")
                        if case .postponed = report.outcome, isRepeated(push) {
                            due.append(push)
                        } else {
                            outcomes[push.id] = report.outcome
                        }
                    }
                }
            }
            #expect(sent.isEmpty)
            await gateway.drain()
            await gateway.finish()
            #expect(await gateway.reports() == nil)
            return outcomes
        }
    }

    @Test("Every push arrives encrypted at its endpoint, with sender, lifetime and urgency")
    func delivers() async throws {
        let pushes = try await service.serve { [self] in
            let subscriptions = (1...1200).map { service.subscription($0) }
            // While no time passes, no service is slow. So no push is postponed, however fast they are leased.
            let gateway = try gateway(
                subscriptions, hosts: ["localhost:\(service.port)"], now: { [now = Timestamp.now()] in now })
            let pushes = subscriptions.enumerated().map { index, subscription in
                push(
                    index + 1, to: subscription, priority: [nil, 10, 5, 1][index % 4],
                    collapseID: index % 2 == 0 ? "room" : nil)
            }
            let outcomes = try await send(pushes, over: gateway)
            #expect(outcomes.values.allSatisfy { $0 == .accepted })
            return pushes
        }
        #expect(Set(service.all.map(\.text)) == Set(pushes.map { "text \($0.identifier)" }))
        #expect(Set(service.all.map(\.path)).count == pushes.count)
        for received in service.all {
            let number = try #require(Int(received.path.dropFirst("/201/".count)))
            #expect(received.text == "text \(number)")
            #expect(received.headers["content-encoding"] == "aes128gcm")
            #expect(received.headers["ttl"] == "\(28 * 86_400)")
            #expect(received.headers["urgency"] == ["high", "high", "normal", "low"][(number - 1) % 4])
            #expect(received.headers["topic"] == (number % 2 == 1 ? WebPushRequest.topic("room") : nil))
        }
        let authorization = try VAPIDAuthorization(header: try #require(service.all.first?.headers["authorization"]))
        #expect(authorization.publicText == key.publicText)
        #expect(authorization.audience == "https://localhost:\(service.port)")
        #expect(authorization.subject == "mailto:push@example.org")
        let left = authorization.expiresAt - Timestamp.now().seconds
        #expect((3600...86_400).contains(left))
        #expect(Set(service.all.compactMap { $0.headers["authorization"] }).count == 1)
    }

    @Test("Each status gives its outcome; only 404 and 410 end a subscription")
    func statuses() async throws {
        let statuses = [201, 202, 404, 410, 413, 400, 302, 406, 408, 421, 425, 429, 500, 503]
        let begun = Timestamp.now()
        let outcomes = try await service.serve { [self] in
            let subscriptions = statuses.enumerated().map { service.subscription($0 + 1, status: $1) }
            let gateway = try gateway(subscriptions, hosts: ["localhost:\(service.port)"])
            return try await send(subscriptions.enumerated().map { push($0 + 1, to: $1) }, over: gateway)
        }
        for (index, status) in statuses.enumerated() {
            let outcome = try #require(outcomes[Int64(index + 1)])
            switch (status, outcome) {
            case (201, .accepted), (202, .accepted): break
            case (404, .unregistered(let since, _)), (410, .unregistered(let since, _)): #expect(since >= begun)
            case (413, .rejected), (400, .rejected): break
            case (406, .retry(_, let notBefore?)), (408, .retry(_, let notBefore?)), (421, .retry(_, let notBefore?)),
                (425, .retry(_, let notBefore?)), (429, .retry(_, let notBefore?)):
                #expect(notBefore >= begun + .seconds(120))
            case (302, .retry), (500, .retry), (503, .retry): break
            default: Issue.record("\(status) became \(outcome)")
            }
        }
        #expect(!service.all.contains { $0.path.hasSuffix("redirected") })
    }

    @Test("A service that limits the relay gets one warning, with the rate and the end of the pause")
    func limited() async throws {
        let log = LogRecorder()
        _ = try await service.serve { [self] in
            let subscriptions = (1...RefusalWatch.limit).map { service.subscription($0, status: 429) }
            let gateway = try gateway(subscriptions, hosts: ["localhost:\(service.port)"], logger: log.logger)
            return try await send(subscriptions.enumerated().map { push($0 + 1, to: $1) }, over: gateway)
        }
        let warnings = log.lines.filter { $0.hasPrefix("warning a push service") }
        #expect(warnings.count == 1)
        #expect(
            warnings.first?.hasPrefix("warning a push service limits the relay ") == true
                && warnings.first?.contains(" per_minute=600 ") == true
                && warnings.first?.contains(" until=") == true, "\(warnings)")
    }

    @Test("Rejected credentials make all pushes wait; if others are accepted, the subscription fails")
    func notAuthorized() async throws {
        try await service.serve { [self] in
            let refused = (1...20).map { service.subscription($0, status: 403) }
            let hosts = ["localhost:\(service.port)"]
            let outcomes = try await send(
                refused.enumerated().map { push($0 + 1, to: $1) }, over: try gateway(refused, hosts: hosts))
            for outcome in outcomes.values {
                switch outcome {
                case .postponed, .notAuthorized: break
                default: Issue.record("became \(outcome)")
                }
            }
            let first = service.subscription(99)
            let working = try gateway([first] + refused, hosts: hosts)
            let pushes = [push(1, to: first)] + refused.enumerated().map { push($0 + 2, to: $1) }
            let later = try await send(pushes, over: working)
            #expect(later[1] == .accepted)
        }
    }

    @Test("A rejection of the relay by one service is known, even while another accepts it")
    func oneRefuses() async throws {
        let isRefused = Mutex<[Bool]>([])
        try await service.serve { [self] in
            let working = service.subscription(1)
            let refusing = service.subscription(2, status: 403, host: "push.test")
            let gateway = try gateway(
                [working, refusing], hosts: ["localhost:\(service.port)", "push.test:\(service.port)"],
                addresses: ["localhost": "127.0.0.1", "push.test": "127.0.0.1"])
            #expect(!gateway.areCredentialsRefused)
            _ = try await send([push(1, to: refusing)] + (2...20).map { push($0, to: working) }, over: gateway) { _ in
                isRefused.withLock { $0.append(gateway.areCredentialsRefused) }
                return false
            }
        }
        #expect(isRefused.withLock(\.self) == [true])
    }

    @Test("A status counts even if the response's body breaks off")
    func brokenBody() async throws {
        try await service.serve { [self] in
            let subscription = service.subscription(1, status: 203)
            let gateway = try gateway([subscription], hosts: ["localhost:\(service.port)"])
            #expect(try await send([push(1, to: subscription)], over: gateway) == [1: .accepted])
        }
        #expect(service.all.count == 1)
    }

    @Test("An absent service delays no other service, and loses no push")
    func deadOrigin() async throws {
        try await service.serve { [self] in
            let alive = (1...600).map { service.subscription($0) }
            // No server listens on port 1.
            let dead = (601...1200).map { service.subscription($0, host: "push.test", port: 1) }
            let gateway = try gateway(
                alive + dead, hosts: ["localhost:\(service.port)", "push.test:1"],
                addresses: ["localhost": "127.0.0.1", "push.test": "127.0.0.1"])
            let pushes = zip(alive, dead).flatMap { [$0, $1] }.enumerated().map { push($0 + 1, to: $1) }
            let outcomes = try await send(pushes, over: gateway, repeating: { $0.id % 2 == 1 })
            for push in pushes {
                let outcome = try #require(outcomes[push.id])
                switch outcome {
                case .accepted: #expect(push.identifier % 2 == 1)
                case .retry, .postponed: #expect(push.identifier % 2 == 0)
                default: Issue.record("\(push.identifier) became \(outcome)")
                }
            }
        }
    }

    @Test("The gateway connects neither to other hosts nor to private addresses of a host name")
    func forbidden() async throws {
        try await service.serve { [self] in
            let named = service.subscription(1, host: "localhost")
            let inside = Subscription(
                address: PushServiceFake.address("x"), endpoint: "https://fcm.googleapis.com/fcm/send/x",
                publicKey: named.publicKey, secret: named.secret)
            let gateway = try gateway(
                [named, inside], hosts: [], addresses: ["localhost": "127.0.0.1", "fcm.googleapis.com": "127.0.0.1"])
            let unknown = service.subscription(7)
            let outcomes = try await send(
                [push(1, to: named), push(2, to: inside), push(3, to: unknown)], over: gateway)
            guard case .rejected("BadEndpoint", _) = outcomes[1], case .retry = outcomes[2],
                case .rejected("NoSubscription", _) = outcomes[3]
            else {
                Issue.record("\(outcomes)")
                return
            }
        }
        #expect(service.all.isEmpty)
    }
}

@Suite("The format for browsers")
struct WebPushFormatTests {
    private static func alert(_ text: String) throws -> ChatAlert {
        ChatAlert(
            nickname: try Nickname(parsing: "Anna"), content: MessageContent(stored: text),
            code: SecretCode(stored: "room"),
            message: 42)
    }

    /// - Parameter isOurs: Whether the push is a chat message's.
    private static func row(_ payload: String, isOurs: Bool = false, unread: Int64? = nil) throws -> QueuedPush {
        let token = try #require(DeviceToken(bytes: [UInt8](repeating: 1, count: 32)))
        return QueuedPush(
            id: 1, address: .token(token), payload: Array(payload.utf8), isOurs: isOurs, apnsID: "id",
            message: isOurs ? 42 : nil, unread: unread)
    }

    @Test("A change rings again, or replaces silently by its tag; it never removes, and Safari only rings")
    func updates() throws {
        let format = WebPushFormat(publicURL: nil)
        let alert = ChatAlert(
            nickname: try Nickname(parsing: "Bot"), content: MessageContent(stored: "Up"),
            code: try SecretCode(parsing: "code"), message: 42)
        func document(_ members: String) -> String {
            #"{"notification":{"title":"Bot","body":"Up","tag":"message-42",\#(members)"data":{"room":"\#(WebPushFormat.name(of: alert.code))","message_id":42}}}"#
        }
        #expect(try format.payload(of: alert) == document(""))
        for host in ["updates.push.services.mozilla.com", "fcm.googleapis.com", "web.push.apple.com"] {
            let endpoint = "https://\(host)/abc"
            #expect(
                try format.update(.ring, of: alert, endpoint: endpoint)
                    == PushUpdate(payload: document(#""renotify":true,"#)))
            #expect(
                try format.update(.replace, of: alert, endpoint: endpoint)
                    == (host.hasSuffix("apple.com")
                        ? nil : PushUpdate(payload: document(#""silent":true,"#), priority: 5)))
            #expect(try format.update(.remove, of: alert, endpoint: endpoint) == nil)
        }
        #expect(try format.update(.replace, of: alert, endpoint: nil) == nil)
    }

    private static func sent(_ payload: String, format: WebPushFormat = WebPushFormat(publicURL: nil)) throws
        -> JSONObject
    {
        let push = try format.push(try row(payload), identifier: 1)
        return try #require(try JSONValue(parsing: push.payload).object)
    }

    @Test("A program's message is marked, and a member's is not")
    func program() throws {
        let marks = try [true, false].map { isOfProgram in
            let alert = ChatAlert(
                nickname: Nickname(stored: "cron"), content: MessageContent(stored: "done"),
                code: SecretCode(stored: "room"), message: 42, isOfProgram: isOfProgram)
            let payload = try WebPushFormat(publicURL: nil).payload(of: alert)
            let notification = try #require(try JSONValue(parsing: payload).object?["notification"]?.object)
            return notification["data"]?.object?["program"]
        }
        #expect(marks == [.bool(true), nil])
    }

    @Test("A program's message has its own title, and opens its link if the link fits")
    func extras() throws {
        func notification(_ text: String, title: String? = nil, link: String, sound: String? = nil) throws -> JSONObject
        {
            let alert = ChatAlert(
                nickname: Nickname(stored: "cron"),
                content: MessageContent(stored: text, title: title, link: link, sound: sound),
                code: SecretCode(stored: "room"), message: 42)
            let payload = try WebPushFormat(publicURL: "https://chat.example.org").payload(of: alert)
            #expect(payload.utf8.count <= WebPushFormat.payloadLimit)
            return try #require(try JSONValue(parsing: payload).object?["notification"]?.object)
        }
        let link = "https://example.org/x"
        let short = try notification("done", title: "Backup", link: link, sound: "")
        #expect(short["title"]?.text == "Backup" && short["body"]?.text == "cron: done")
        #expect(short["navigate"]?.text == link && short["silent"] == .bool(true))
        let long = String(repeating: "t", count: 4000)
        #expect(try notification(long, title: "Backup", link: link)["navigate"]?.text == link)
        let longLink = link + String(repeating: "l", count: 1900)
        let shortened = try notification(long, link: longLink)
        #expect(shortened["navigate"]?.text == longLink && shortened["title"]?.text == "cron")
        let escaped = try notification(
            String(repeating: "\n", count: 4000),
            title: String(repeating: "\"", count: 255), link: link + String(repeating: "l", count: 1970))
        #expect((escaped["body"]?.text?.utf8.count ?? 0) > 200)
    }

    @Test("A chat message is a declarative push message if the relay's address is known")
    func chat() throws {
        let format = WebPushFormat(publicURL: "https://chat.example.org/")
        let alert = try Self.alert("Hello \"you\"")
        let document = try #require(try JSONValue(parsing: try format.payload(of: alert)).object)
        #expect(document["web_push"]?.integer == 8030)
        let notification = try #require(document["notification"]?.object)
        #expect(notification["title"]?.text == "Anna")
        #expect(notification["body"]?.text == "Hello \"you\"")
        #expect(
            notification["navigate"]?.text == "https://chat.example.org/#room=\(WebPushFormat.name(of: alert.code))")
        #expect(notification["tag"]?.text == "message-42")
        #expect(notification["data"]?.object?["message_id"]?.integer == 42)
        // A row of the relay's own is sent unchanged.
        let payload = try format.payload(of: alert)
        #expect(try format.push(try Self.row(payload, isOurs: true), identifier: 1).payload == Array(payload.utf8))
    }

    @Test("A long text is cut so that the message fits to the byte", arguments: ["x", "ü", "😀", "\"", "\u{1}"])
    func long(character: String) throws {
        let format = WebPushFormat(publicURL: nil)
        let text = String(repeating: character == "\u{1}" ? "\\" : character, count: 10_000)
        let payload = try format.payload(of: try Self.alert(text))
        // The badge has the largest number.
        let row = try Self.row(payload, isOurs: true, unread: UnreadCount.most)
        let sent = try format.push(row, identifier: 1).payload
        #expect(sent.count == payload.utf8.count + 30)
        #expect(sent.count <= WebPushFormat.payloadLimit)
        #expect(sent.count > WebPushFormat.payloadLimit - 8)
        let body = try JSONValue(parsing: payload).object?["notification"]?.object?["body"]?.text
        #expect(body?.hasSuffix("…") == true)
    }

    @Test(
        "The number of unread messages is in both places that browsers read",
        arguments: [nil, "https://chat.example.org"])
    func badge(url: String?) throws {
        let format = WebPushFormat(publicURL: url)
        let payload = try format.payload(of: try Self.alert("Hello"))
        func sent(_ unread: Int64?, over other: WebPushFormat? = nil) throws -> JSONObject {
            let push = try (other ?? format).push(
                try Self.row(payload, isOurs: true, unread: unread), identifier: 1)
            return try #require(try JSONValue(parsing: push.payload).object)
        }
        for number: Int64 in [0, 7, 99] {
            var document = try sent(number)
            #expect(document["app_badge"]?.integer == number)
            var notification = try #require(document["notification"]?.object)
            #expect(notification["app_badge"]?.integer == number)
            // Nothing else changes.
            (document["app_badge"], notification["app_badge"]) = (nil, nil)
            document["notification"] = .object(notification)
            #expect(try JSONValue(parsing: payload) == .object(document))
        }
        #expect(try JSONValue.object(sent(nil)) == JSONValue(parsing: payload))
        // The relay's address has changed since the push was queued.
        let moved = try sent(3, over: WebPushFormat(publicURL: url == nil ? "https://chat.example.org" : nil))
        #expect(moved["app_badge"]?.integer == 3 && moved["notification"]?.object?["app_badge"]?.integer == 3)
        // An earlier version left no space for the number.
        let full = #"{"notification":{"title":""# + String(repeating: "x", count: 3993 - 29) + #""}}"#
        #expect(
            try format.push(try Self.row(full, isOurs: true, unread: 1), identifier: 1).payload == Array(full.utf8))
    }

    @Test("A number from a caller is also in both places")
    func callersBadge() throws {
        for document in [
            #"{"aps":{"alert":"a","badge":3}}"#, #"{"notification":{"title":"a"},"app_badge":3}"#,
            #"{"notification":{"title":"a","app_badge":3}}"#,
        ] {
            let sent = try Self.sent(document)
            #expect(sent["app_badge"]?.integer == 3 && sent["notification"]?.object?["app_badge"]?.integer == 3)
        }
        let none = try Self.sent(#"{"notification":{"title":"a"}}"#)
        #expect(none["app_badge"] == nil && none["notification"]?.object?["app_badge"] == nil)
    }

    /// - Parameter document: A JSON object, the caller's `payload`.
    private static func compose(_ document: String) throws -> ComposedNotification {
        let object = try #require(try JSONValue(parsing: #"{"payload":\#(document)}"#).object)
        return try WebPushFormat(publicURL: nil).compose(try NotificationContent(object, now: .now()), for: .web)
    }

    @Test("A caller's document with every member that browsers know is accepted")
    func everyMember() throws {
        let document = #"""
            {"web_push":8030.0,"app_badge":3,"mutable":true,"notification":{"title":"Ann","body":"Dinner?","navigate":
            "https://chat.example/#room=1","tag":"message-7","lang":"en","dir":"auto","silent":false,
            "icon":"https://chat.example/icon.png","data":[null],"app_badge":3,"mutable":true,
            "image":"https://chat.example/i.png","badge":"https://chat.example/b.png","vibrate":[100,50],
            "timestamp":1700000000000,"renotify":true,"requireInteraction":false,"unknown":{},
            "actions":[{"action":"a","title":"A","navigate":"https://chat.example/a"},{"action":"b","title":"B"}]}}
            """#
        #expect(try Self.compose(document).payload.contains(#""web_push":8030.0"#))
    }

    @Test(
        "A caller's document with an invalid member, which Safari would reject, is refused with its name and rule",
        arguments: [
            (#""web_push":"8030","notification":{"title":"a"}"#, "web_push", "must be the number 8030"),
            (#""web_push":8031,"notification":{"title":"a"}"#, "web_push", "must be the number 8030"),
            (#""web_push":8030,"notification":{"title":"a"}"#, "notification.navigate", "Missing"),
            (
                #""web_push":8030,"notification":{"navigate":"https://a.example/"}"#, "notification.title", "Missing"
            ),
            (#""mutable":1,"notification":{"title":"a"}"#, "mutable", "must be true or false"),
            (#""app_badge":"3","notification":{"title":"a"}"#, "app_badge", "must be a whole number"),
            (#""app_badge":true,"notification":{"title":"a"}"#, "app_badge", "must be a whole number"),
            (#""app_badge":-1,"notification":{"title":"a"}"#, "app_badge", "must be a whole number"),
            (
                #""app_badge":1,"notification":{"title":"a","app_badge":2}"#, "notification.app_badge",
                "must equal payload.app_badge"
            ),
        ])
    func wrongAround(members: String, field: String, rule: String) throws {
        #expect {
            try Self.compose("{\(members)}")
        } throws: { error in
            let error = error as? ChatError
            return error?.field == "payload.\(field)" && error?.message.contains(rule) == true
        }
    }

    @Test(
        "A member of a caller's notification has the type that browsers require",
        arguments: [
            (#""title":"""#, "title", "must be a string that is not empty"),
            (#""title":7"#, "title", "must be a string"),
            (#""navigate":"/inbox""#, "navigate", "absolute"), (#""navigate":7"#, "navigate", "absolute"),
            (#""navigate":"javascript:alert(1)""#, "navigate", "https://"), (#""icon":"icon.png""#, "icon", "absolute"),
            (#""dir":"up""#, "dir", "must be auto, ltr or rtl"), (#""lang":7"#, "lang", "must be a string"),
            (#""body":null"#, "body", "must be a string"), (#""tag":7"#, "tag", "must be a string"),
            (#""silent":1"#, "silent", "must be true or false"), (#""mutable":"yes""#, "mutable", "must be true"),
            (#""app_badge":1.5"#, "app_badge", "must be a whole number"), (#""image":1"#, "image", "absolute"),
            (#""badge":2"#, "badge", "absolute"), (#""vibrate":["1"]"#, "vibrate", "must be a number or an array"),
            (#""timestamp":"now""#, "timestamp", "must be a number"), (#""renotify":1"#, "renotify", "must be true"),
            (#""requireInteraction":0"#, "requireInteraction", "must be true"),
            (#""silent":true,"vibrate":[1]"#, "vibrate", "cannot go together with silent"),
            (#""renotify":true"#, "renotify", "needs a tag"), (#""actions":{}"#, "actions", "must be an array"),
            (#""actions":[{"action":"a"}]"#, "actions[0]", "must be an object with the strings"),
            (#""actions":[{"action":"a","title":"A","icon":"i.png"}]"#, "actions[0].icon", "absolute"),
        ])
    func wrongMember(member: String, field: String, rule: String) throws {
        let title = field == "title" ? "" : #""title":"a","#
        #expect {
            try Self.compose(#"{"notification":{\#(title)\#(member)}}"#)
        } throws: { error in
            let error = error as? ChatError
            return error?.field == "payload.notification.\(field)" && error?.message.contains(rule) == true
        }
    }

    @Test("Apple's document, as scripts write it, is translated")
    func translated() throws {
        let plain = try Self.sent(#"{"aps":{"alert":"Lunch"}}"#)
        #expect(plain["notification"]?.object?["title"]?.text == "Lunch")
        #expect(plain["notification"]?.object?["silent"] == .bool(true))
        let full = try Self.sent(
            #"{"aps":{"alert":{"title":"T","body":"B"},"badge":3,"sound":"default"},"order":7}"#)
        let notification = try #require(full["notification"]?.object)
        #expect(notification["title"]?.text == "T")
        #expect(notification["body"]?.text == "B")
        #expect(notification["silent"] == nil)
        #expect(notification["data"]?.object?["order"]?.integer == 7)
        #expect(full["app_badge"]?.integer == 3)
        let linked = try Self.sent(#"{"aps":{"alert":"a"},"link":"https://example.org/x","n":1}"#)
        #expect(linked["web_push"]?.integer == 8030)
        #expect(linked["notification"]?.object?["navigate"]?.text == "https://example.org/x")
        #expect(linked["notification"]?.object?["data"] == .object(["n": .number(1)]))
        let strange = try Self.sent(#"{"aps":{"alert":"a"},"link":"javascript:1"}"#)
        #expect(strange["web_push"] == nil && strange["notification"]?.object?["navigate"] == nil)
        #expect(strange["notification"]?.object?["data"]?.object?["link"]?.text == "javascript:1")
        let own = try Self.sent(#"{"notification":{"title":"own"},"web_push":8030}"#)
        #expect(own["notification"]?.object?["title"]?.text == "own")
    }

    @Test(
        "A payload that shows nothing or is no document is rejected with its reason",
        arguments: [
            ("", "PayloadEmpty"), ("{", "InvalidJSON"), ("[]", "InvalidJSON"), ("{}", "NoText"),
            (#"{"aps":{"badge":1}}"#, "NoText"), (#"{"aps":{"alert":{"loc-key":"x"}}}"#, "NoText"),
            (#"{"aps":{"alert":{"title":"","body":""}}}"#, "NoText"),
        ])
    func refused(payload: String, reason: String) throws {
        let refusal = #expect(throws: PushRefusal.self) {
            try WebPushFormat(publicURL: nil).push(try Self.row(payload), identifier: 1)
        }
        #expect(refusal?.reason == reason)
        #expect((refusal?.hint == nil) == (reason == "PayloadEmpty"), "\(refusal?.hint ?? "no hint")")
    }

    @Test("An empty title does not hide the body")
    func emptyTitle() throws {
        let sent = try Self.sent(#"{"aps":{"alert":{"title":"","body":"b"}}}"#)
        #expect(sent["notification"]?.object?["title"]?.text == "b")
    }

    @Test("A payload that the push service finds too large has a hint, and another refusal has none")
    func hints() {
        func hint(_ status: UInt) -> String? {
            let outcome = WebPushResponse.status(status, retryAfter: nil, text: "").outcome(
                sentAt: .now(), isAuthorized: true, pausedUntil: nil, contact: nil)
            guard case .rejected(_, let hint) = outcome else { return "not rejected" }
            return hint
        }
        #expect(hint(413)?.contains("3,070 bytes") == true)
        #expect(hint(400) == nil)
    }

    @Test("A notification that is too long for browsers, or shows nothing, is refused when it is submitted")
    func composed() throws {
        let format = WebPushFormat(publicURL: nil)
        func compose(_ json: String) throws -> ComposedNotification {
            let object = try #require(try JSONValue(parsing: json).object)
            return try format.compose(try NotificationContent(object, now: .now()), for: AppName("web"))
        }
        #expect(try compose(#"{"alert":"Hello"}"#).payload == #"{"aps":{"alert":"Hello"}}"#)
        #expect(
            try compose(#"{"alert":"Hello","link":"https://example.org"}"#).payload
                == #"{"aps":{"alert":"Hello"},"link":"https://example.org"}"#)
        let own = #"{"notification":{"title":"own"}}"#
        #expect(try compose(#"{"payload":\#(own)}"#).payload == own)
        for wrong in [#"{"notification":{"body":"no title"}}"#, #"{"notification":3}"#, "{}"] {
            #expect(throws: ChatError.self, "\(wrong)") { try compose(#"{"payload":\#(wrong)}"#) }
        }
        #expect { try compose(#"{"badge":1}"#) } throws: { ($0 as? ChatError)?.field == "alert" }
        let long = String(repeating: "x", count: 4000)
        #expect { try compose(#"{"alert":"\#(long)"}"#) } throws: { ($0 as? ChatError)?.field == "payload" }
        let most = #"{"notification":{"title":""# + String(repeating: "x", count: 3993 - 29) + #""}}"#
        #expect(try compose(#"{"payload":\#(most)}"#).payload == most)
        let more = most.replacing("title\":\"", with: "title\":\"x")
        #expect { try compose(#"{"payload":\#(more)}"#) } throws: {
            ($0 as? ChatError)?.message.contains("has 3994 bytes of UTF-8 for browsers, 1 more than the 3993") == true
        }
    }
}

import ChatDomain
import Testing

@testable import FCMGateway

@Suite("Messages for Android apps")
struct FCMFormatTests {
    private static let token = "cAAAAAAAAAAAAAAAAAAAA1:APA91bHexampleexample"

    private func alert(
        _ text: String = "Hello", content: MessageContent? = nil, isOfProgram: Bool = false
    ) throws -> ChatAlert {
        ChatAlert(
            nickname: try Nickname(parsing: "Ann"), content: content ?? MessageContent(stored: text),
            code: try SecretCode(parsing: "code"), message: 7, isOfProgram: isOfProgram)
    }

    private func format(_ kind: FCMFormat.Kind, limit: Int = FCMFormat.payloadLimit) -> FCMFormat {
        FCMFormat(kind, payloadLimit: limit, channel: "chat", room: { _ in "room1" })
    }

    private func row(
        _ payload: String, message: MessageID? = nil, expiration: Int64? = nil, priority: Int64? = nil,
        collapseID: String? = nil, unread: Int64? = nil, address: String = token
    ) -> QueuedPush {
        QueuedPush(
            id: 1, address: Array(address.utf8).withUnsafeBytes { Address(stored: $0) }, payload: Array(payload.utf8),
            isOurs: message != nil, expiration: expiration, priority: priority, collapseID: collapseID, apnsID: "id",
            message: message, unread: unread)
    }

    private func text(_ push: Push) -> String { String(decoding: push.payload, as: UTF8.self) }

    private func translated(_ format: FCMFormat, _ document: String) throws -> String {
        text(try format.push(row(document), identifier: 1))
    }

    // MARK: Chat messages

    @Test("A chat message is data that the app shows, or a notification that Google's library shows")
    func chat() throws {
        #expect(
            try format(.data).payload(of: alert())
                == #"{"android":{"priority":"HIGH"},"data":{"type":"message","title":"Ann","body":"Hello","text":"Hello","#
                + #""sound":"default","sender":"Ann","message_id":"7","room":"room1"}}"#)
        #expect(
            try format(.notification).payload(of: alert())
                == #"{"android":{"notification":{"channel_id":"chat","tag":"message-7","sound":"default"},"priority":"HIGH"},"#
                + #""notification":{"title":"Ann","body":"Hello"},"data":{"type":"message","sender":"Ann","message_id":"7","room":"room1"}}"#
        )
    }

    @Test("A change rings with its revision, replaces silently, or removes; all name the first notification")
    func updates() throws {
        let extras = MessageExtras().with(
            key: nil, revision: 3, change: .edited, at: Timestamp(milliseconds: 0), isApart: false)
        let changed = try alert(content: MessageContent(stored: "Hello", priority: 10, isUrgent: true, extras: extras))
        func update(_ update: AlertUpdate, _ format: FCMFormat) throws -> PushUpdate? {
            try format.update(update, of: changed, endpoint: nil)
        }
        #expect(
            try update(.ring, format(.data))
                == PushUpdate(
                    payload:
                        #"{"android":{"priority":"HIGH"},"data":{"type":"message","title":"Ann","body":"Hello","text":"Hello","#
                        + #""sound":"default","urgent":"true","sender":"Ann","message_id":"7","revision":"3","room":"room1"}}"#,
                    priority: 10))
        #expect(
            try update(.replace, format(.data))
                == PushUpdate(
                    payload:
                        #"{"android":{"priority":"NORMAL"},"data":{"type":"message","title":"Ann","body":"Hello","text":"Hello","#
                        + #""urgent":"true","sender":"Ann","message_id":"7","revision":"3","update":"true","room":"room1"}}"#,
                    priority: 5))
        for kind in FCMFormat.Kind.allCases {
            #expect(
                try update(.remove, format(kind))
                    == PushUpdate(
                        payload:
                            #"{"android":{"priority":"NORMAL"},"data":{"type":"clear","message_id":"7","tag":"message-7"}}"#,
                        priority: 5))
        }
    }

    @Test("Google's library replaces only on a channel that is silent, without a sound")
    func updateChannel() throws {
        #expect(try format(.notification).update(.replace, of: alert(), endpoint: nil) == nil)
        let format = FCMFormat(.notification, channel: "chat", updateChannel: "quiet")
        let update = try #require(try format.update(.replace, of: alert(), endpoint: nil))
        #expect(
            update.payload
                == #"{"android":{"notification":{"channel_id":"quiet","tag":"message-7"},"priority":"NORMAL"},"#
                + #""notification":{"title":"Ann","body":"Hello"},"data":{"type":"message","sender":"Ann","message_id":"7","update":"true"}}"#
        )
        #expect(try format.payload(of: alert()).contains(#""channel_id":"chat""#))
        // The queue's row is sent unchanged.
        let push = try format.push(row(update.payload, message: 7, unread: 2), identifier: 1)
        #expect(text(push).contains(#""update":"true","unread":"2""#))
    }

    @Test("A program's message is marked, and a member's is not", arguments: FCMFormat.Kind.allCases)
    func program(_ kind: FCMFormat.Kind) throws {
        let marks = try [true, false].map { isOfProgram in
            let payload = try format(kind).payload(of: alert(isOfProgram: isOfProgram))
            let data = try #require(JSONValue(parsing: Array(payload.utf8)).object?["data"]?.object)
            return data["program"]
        }
        #expect(marks == [.string("true"), nil])
    }

    @Test("A title, a link, a sound and the urgency reach the app")
    func extras() throws {
        let content = try MessageContent(
            parsing: "Done", title: "Build", link: "https://example.org/1", sound: "", isUrgent: true)
        let payload = try format(.data).payload(of: alert(content: content))
        #expect(payload.contains(#""title":"Build","body":"Ann: Done","text":"Done","urgent":"true""#))
        #expect(payload.contains(#""link":"https://example.org/1""#) && !payload.contains("sound"))
        let low = try MessageContent(parsing: "Done", priority: 5)
        #expect(try format(.data).payload(of: alert(content: low)).contains(#""priority":"NORMAL""#))
    }

    @Test(
        "A long text is shortened so that the largest number of unread messages fits",
        arguments: FCMFormat.Kind.allCases, [300, 600, 4096])
    func shortened(_ kind: FCMFormat.Kind, _ limit: Int) throws {
        let format = format(kind, limit: limit)
        let payload = try format.payload(of: alert(String(repeating: "\"ö", count: 2000)))
        #expect(payload.utf8.count <= limit && payload.contains("…"))
        let push = try format.push(row(payload, message: 7, unread: UnreadCount.most), identifier: 1)
        #expect(push.payload.count <= limit)
        let data = try #require(JSONValue(parsing: push.payload).object?["data"]?.object)
        #expect(data["unread"]?.text == String(UnreadCount.most))
    }

    @Test("A limit below the fixed parts is an error for the writer")
    func hopeless() throws {
        #expect(throws: ChatError.self) { try format(.data, limit: 100).payload(of: alert()) }
    }

    @Test("The number of unread messages is added to data, and to the part that the library shows")
    func unread() throws {
        let data = format(.data)
        let shown = format(.notification)
        let first = try data.push(row(data.payload(of: alert()), message: 7, unread: 3), identifier: 1)
        #expect(text(first).hasSuffix(#""room":"room1","unread":"3"}}"#))
        let second = try shown.push(row(shown.payload(of: alert()), message: 7, unread: 3), identifier: 1)
        #expect(text(second).hasPrefix(#"{"android":{"notification":{"notification_count":3,"channel_id":"chat""#))
        #expect(text(second).hasSuffix(#","unread":"3"}}"#))
    }

    @Test("A chat message that was queued for Apple gets the number in its place")
    func translatedUnread() throws {
        let document = #"{"aps":{"alert":"Ann: Hello","sound":"s.caf"},"loc":{"x":""}}"#
        let data = try format(.data).push(row(document, message: 7, unread: 3), identifier: 1)
        #expect(text(data).hasSuffix(#""body":"Ann: Hello","sound":"s.caf","unread":"3"}}"#), "\(text(data))")
        let shown = try format(.notification).push(row(document, message: 7, unread: 3), identifier: 1)
        #expect(
            text(shown)
                == #"{"android":{"notification":{"channel_id":"chat","sound":"s.caf","notification_count":3},"#
                + #""priority":"HIGH"},"notification":{"body":"Ann: Hello"},"data":{"loc":"{\"x\":\"\"}"}}"#)
    }

    // MARK: Translation

    @Test("Apple's document becomes data or a notification")
    func translation() throws {
        let document =
            #"{"aps":{"alert":{"title":"T","body":"B"},"sound":"s.caf","badge":4,"thread-id":"t","category":"c"},"#
            + #""link":"https://e.org","image":"https://e.org/i","n":12,"o":{"a":1}}"#
        #expect(
            try translated(format(.data), document)
                == #"{"android":{"priority":"HIGH"},"data":{"link":"https://e.org","image":"https://e.org/i","n":"12","#
                + #""o":"{\"a\":1}","thread_id":"t","title":"T","body":"B","sound":"s.caf","category":"c","unread":"4"}}"#
        )
        #expect(
            try translated(format(.notification), document)
                == #"{"android":{"notification":{"channel_id":"chat","sound":"s.caf","notification_count":4,"click_action":"c"},"#
                + #""priority":"HIGH"},"notification":{"title":"T","body":"B","image":"https://e.org/i"},"#
                + #""data":{"link":"https://e.org","n":"12","o":"{\"a\":1}","thread_id":"t"}}"#)
    }

    @Test("Keys of localised texts and their arguments get FCM's names, with a text of the alert beside them")
    func localized() throws {
        let document =
            #"{"aps":{"alert":{"title":"T","title-loc-key":"TK","title-loc-args":[],"loc-key":"BK","loc-args":["a",2]}}}"#
        #expect(
            try translated(format(.data), document)
                == #"{"android":{"priority":"HIGH"},"data":{"title":"T","title_loc_key":"TK","title_loc_args":"[]","#
                + #""body_loc_key":"BK","body_loc_args":"[\"a\",\"2\"]"}}"#)
        #expect(
            try translated(format(.notification), document)
                == #"{"android":{"notification":{"channel_id":"chat","title_loc_key":"TK","title_loc_args":[],"#
                + #""body_loc_key":"BK","body_loc_args":["a","2"]},"priority":"HIGH"},"notification":{"title":"T"}}"#)
        let keys = #"{"aps":{"alert":{"loc-key":"BK"}},"k":"v"}"#
        #expect(
            try translated(format(.notification), keys)
                == #"{"android":{"notification":{"channel_id":"chat","body_loc_key":"BK"},"priority":"HIGH"},"data":{"k":"v"}}"#
        )
    }

    @Test(
        "No document reaches a phone as an empty message",
        arguments: FCMFormat.Kind.allCases,
        [
            #"{"aps":{}}"#, #"{"aps":{"alert":""}}"#, #"{"aps":{"alert":{"title":"","body":""}}}"#,
            #"{"aps":{"alert":{"subtitle":"s"}}}"#, #"{"aps":{"alert":{"subtitle-loc-key":"s"}},"k":"v"}"#,
            #"{"aps":{"mutable-content":1}}"#, #"{"android":{"priority":"HIGH"}}"#, #"{"data":{}}"#,
            #"{"notification":{}}"#, #"{"notification":{"title":"","body":""},"data":{"a":"b"}}"#,
            #"{"android":{"notification":{"sound":"s"}}}"#, #"{"fcm_options":{"analytics_label":"x"}}"#,
        ])
    func empty(_ kind: FCMFormat.Kind, _ document: String) {
        let refusal = #expect(throws: PushRefusal.self, "\(document)") {
            try format(kind).push(row(document), identifier: 1)
        }
        #expect(refusal?.reason.hasPrefix("InvalidMessage: ") == true)
    }

    @Test(
        "A document with any content is sent",
        arguments: [
            (#"{"aps":{"content-available":1}}"#, #""data":{"content_available":"1"}"#),
            (#"{"aps":{"alert":"","content-available":1},"k":"v"}"#, #""data":{"k":"v"}"#),
            (#"{"aps":{"alert":{"title":"","body":"b"}}}"#, #""body":"b""#),
            (#"{"aps":{"badge":0}}"#, #""unread":"0""#),
            (#"{"apns":{"payload":{"aps":{"alert":"x"}}}}"#, #""apns""#),
            (#"{"android":{"data":{"a":"b"}}}"#, #""data":{"a":"b"}"#),
            (#"{"android":{"notification":{"body_loc_key":"K"}}}"#, #""body_loc_key":"K""#),
        ])
    func content(_ document: String, _ part: String) throws {
        for kind in FCMFormat.Kind.allCases {
            let sent = try translated(format(kind), document)
            #expect(sent.contains(part), "\(sent)")
        }
    }

    @Test("A push that shows nothing has normal priority, unless the sender asks for more")
    func silent() throws {
        let document = #"{"aps":{"content-available":1},"k":"v"}"#
        #expect(
            try translated(format(.notification), document) == #"{"android":{"priority":"NORMAL"},"data":{"k":"v"}}"#)
        let urgent = try format(.data).push(row(document, priority: 10, collapseID: "k"), identifier: 1)
        #expect(text(urgent).hasPrefix(#"{"android":{"priority":"HIGH","collapse_key":"k"}"#))
    }

    @Test("A whole message for FCM is kept")
    func raw() throws {
        let document = #"{"data":{"a":"b"},"android":{"ttl":"60s","direct_boot_ok":true},"fcm_options":{}}"#
        #expect(
            try translated(format(.data), document)
                == #"{"android":{"ttl":"60s","direct_boot_ok":true,"priority":"HIGH"},"data":{"a":"b"},"fcm_options":{}}"#
        )
        let expiring = try format(.data).push(row(document, expiration: 5), identifier: 1)
        #expect(!text(expiring).contains("ttl"))
    }

    @Test(
        "A document that FCM would reject fails the push, with the field and the rule",
        arguments: [
            (#"{"data":{"a":1}}"#, "InvalidMessage: payload.data.a must be a string, is a number"),
            (#"{"data":{"from":"x"}}"#, "InvalidMessage: payload.data.from is a name that Google reserves"),
            (#"{"token":"x","data":{}}"#, "InvalidMessage: payload must have aps"),
            (#"{"aps":{"alert":"x"},"google.a":1}"#, "InvalidMessage: custom must not have the member google.a"),
            (#"{"aps":{"alert":"x"},"body":1}"#, "InvalidMessage: custom must not have the member body"),
            (#"{}"#, "InvalidMessage: payload must not be empty"),
            (#"{"\u0000":1}"#, "InvalidMessage: payload must have aps"),
            (#"{"aps":{},"gcm\u0000\u00e9\#(String(repeating: "x", count: 300))":1}"#, "InvalidMessage: custom"),
            ("[1]", "InvalidJSON"), ("", "PayloadEmpty"),
        ])
    func refused(_ document: String, _ reason: String) {
        let refusal = #expect(throws: PushRefusal.self) { try format(.data).push(row(document), identifier: 1) }
        #expect(refusal?.reason.hasPrefix(reason) == true, "\(refusal?.reason ?? "")")
        // Both databases can store the reason, and the log shows it.
        #expect(refusal?.reason.utf8.count ?? 0 <= 200)
        #expect(refusal?.reason.utf8.allSatisfy { (0x20...0x7E).contains($0) } == true)
    }

    @Test("A token of Apple's is refused, and a large payload")
    func others() {
        let apple = #expect(throws: PushRefusal.self) {
            try format(.data).push(
                row(#"{"aps":{}}"#, address: String(repeating: "ab", count: 32)), identifier: 1)
        }
        #expect(apple?.reason == "InvalidToken")
        let large = #expect(throws: PushRefusal.self) {
            try format(.data).push(
                row(#"{"data":{"a":"\#(String(repeating: "x", count: 4096))"}}"#), identifier: 1)
        }
        #expect(large?.reason == "PayloadTooLarge" && large?.hint?.contains("4096") == true)
    }

    @Test("The caller of a notification gets the field and the rule")
    func compose() throws {
        let content = try NotificationContent(
            ["alert": .string("x"), "custom": .object(["from": .string("y")])], now: Timestamp(seconds: 1))
        let error = #expect(throws: ChatError.self) { try format(.data).compose(content, for: AppName("android")) }
        #expect(error?.field == "custom" && error?.message.contains("Google reserves") == true)
        let good = try NotificationContent(["content_available": .bool(true)], now: Timestamp(seconds: 1))
        let composed = try format(.data).compose(good, for: AppName("android"))
        #expect(composed.pushType == Push.background && composed.priority == 5)
        #expect(composed.payload == #"{"aps":{"content-available":1}}"#)
        let whole: JSONObject = [
            "data": .object(["kind": .string("sync")]), "android": .object(["ttl": .string("600s")]),
        ]
        let raw = try NotificationContent(["payload": .object(whole)], now: Timestamp(seconds: 1))
        #expect(try format(.data).compose(raw, for: AppName("android")).payload == JSONValue.object(whole).description)
    }

    // MARK: The request

    @Test(
        "The target and the lifetime complete the message",
        arguments: [
            (token, nil, #"{"message":{"token":"\#(token)","android":{"priority":"HIGH"},"data":{"a":"b"}}}"#),
            (
                "cAAAAAAAAAAAAAAAAAAAA1", 0,
                #"{"message":{"fid":"cAAAAAAAAAAAAAAAAAAAA1","android":{"ttl":"0s","priority":"HIGH"},"data":{"a":"b"}}}"#
            ),
            (
                token, 1060,
                #"{"message":{"token":"\#(token)","android":{"ttl":"60s","priority":"HIGH"},"data":{"a":"b"}}}"#
            ),
            (
                token, 999,
                #"{"message":{"token":"\#(token)","android":{"ttl":"0s","priority":"HIGH"},"data":{"a":"b"}}}"#
            ),
            (
                token, Int64.max,
                #"{"message":{"token":"\#(token)","android":{"ttl":"2419200s","priority":"HIGH"},"data":{"a":"b"}}}"#
            ),
        ] as [(String, Int64?, String)])
    func request(_ address: String, _ expiration: Int64?, _ body: String) throws {
        let push = try format(.data).push(
            row(#"{"data":{"a":"b"}}"#, expiration: expiration, address: address), identifier: 1)
        #expect(
            String(decoding: FCMBody.request(push, now: Timestamp(seconds: 1000)), as: UTF8.self) == body)
    }
}

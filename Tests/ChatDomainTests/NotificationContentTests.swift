import ChatDomain
import Testing

@Suite("The content of a notification")
struct NotificationContentTests {
    static let now = Timestamp(seconds: 1_780_000_000)

    static func content(_ json: String, isRepeat: Bool = false) throws -> NotificationContent {
        try NotificationContent(#require(try JSONValue(parsing: json).object), now: now, isRepeat: isRepeat)
    }

    @Test("Fields are read unchanged, and null counts as absent")
    func fields() throws {
        let content = try Self.content(
            #"""
            {"alert":"a","badge":3,"sound":null,"category":"c","thread_id":"t","content_available":true,
            "mutable_content":false,"link":"https://example.org/a?b#c","custom":{"n":1.50},"push_type":"p","priority":5,"collapse_id":"x y","payload":null}
            """#)
        #expect(content.alert == .string("a"))
        #expect(content.badge == 3)
        #expect(content.sound == nil)
        #expect(content.category == "c")
        #expect(content.threadID == "t")
        #expect(content.contentAvailable)
        #expect(!content.mutableContent)
        #expect(content.link == "https://example.org/a?b#c")
        #expect(content.custom == ["n": .number("1.50")])
        #expect(content.payload == nil)
        #expect(content.pushType == "p")
        #expect(content.priority == 5)
        #expect(content.collapseID == "x y")
        #expect(content.expiration == nil)
        #expect(content.notBefore == nil)
        #expect(try Self.content(#"{"payload":{"z":1}}"#).payload == ["z": .number(1)])
    }

    @Test(
        "Content that breaks a rule is rejected with the field's name",
        arguments: [
            ("{}", "alert"), (#"{"custom":{"a":1}}"#, "alert"), (#"{"alert":""}"#, "alert"), (#"{"alert":5}"#, "alert"),
            (#"{"alert":{}}"#, "alert"), (#"{"alert":{"title":""}}"#, "alert"),
            (#"{"alert":{"launch-image":"x"}}"#, "alert"),
            (#"{"badge":-1}"#, "badge"), (#"{"badge":1.5}"#, "badge"),
            (#"{"badge":0.\#(String(repeating: "9", count: 400))}"#, "badge"),
            (#"{"badge":"1"}"#, "badge"), (#"{"badge":4294967296}"#, "badge"), (#"{"sound":""}"#, "sound"),
            (#"{"sound":{"volume":1}}"#, "sound"), (#"{"sound":1}"#, "sound"),
            (#"{"alert":"a","custom":[]}"#, "custom"), (#"{"alert":"a","payload":{"aps":{}}}"#, "payload"),
            (#"{"payload":"x"}"#, "payload"), (#"{"content_available":1}"#, "content_available"),
            (#"{"alert":"a","category":""}"#, "category"), (#"{"alert":"a","link":"javascript:x"}"#, "link"),
            (#"{"alert":"a","link":"https:///x"}"#, "link"), (#"{"alert":"a","link":"https://"}"#, "link"),
            (#"{"alert":"a","link":"https://a b"}"#, "link"),
            (#"{"payload":{"aps":{}},"link":"https://a"}"#, "payload"), (#"{"alert":"a","priority":7}"#, "priority"),
            (#"{"alert":"a","priority":"10"}"#, "priority"), (#"{"alert":"a","expiration":1}"#, "expiration"),
            (#"{"alert":"a","expiration":"tomorrow"}"#, "expiration"),
            (#"{"alert":"a","expiration":-1}"#, "expiration"), (#"{"alert":"a","expiration":1e9}"#, "expiration"),
            (#"{"alert":"a","not_before":"2099-01-01T00:00:00Z"}"#, "not_before"),
            (#"{"alert":"a","not_before":1780000100,"expiration":1780000100}"#, "not_before"),
        ])
    func refused(json: String, field: String) throws {
        let error = #expect(throws: ChatError.self) { try Self.content(json) }
        #expect(error?.field == field, "\(error?.description ?? "accepted")")
    }

    @Test("Times are UNIX seconds or RFC 3339, and a past not_before means at once")
    func times() throws {
        #expect(try Self.content(#"{"alert":"a","expiration":1780000060}"#).expiration == 1_780_000_060)
        #expect(try Self.content(#"{"alert":"a","expiration":0}"#).expiration == 0)
        #expect(
            try Self.content(#"{"alert":"a","expiration":"2026-05-28T22:26:41+02:00"}"#).expiration == 1_780_000_001)
        #expect(
            try Self.content(#"{"alert":"a","not_before":1780000060}"#).notBefore == Timestamp(seconds: 1_780_000_060))
        #expect(try Self.content(#"{"alert":"a","not_before":1779999999}"#).notBefore == nil)
    }

    @Test("A repeated request may have expired since it was accepted")
    func repeats() throws {
        #expect(try Self.content(#"{"alert":"a","expiration":1}"#, isRepeat: true).expiration == 1)
        for never in ["1969-12-31T23:59:59Z", "1970-01-01T00:00:00.5Z", "0001-01-01T00:00:00Z"] {
            let error = #expect(throws: ChatError.self) {
                try Self.content(#"{"alert":"a","expiration":"\#(never)"}"#, isRepeat: true)
            }
            #expect(error?.field == "expiration")
        }
    }

    @Test("A text with a zero character is rejected, because not every store can keep it")
    func zero() {
        for field in ["push_type", "category", "thread_id", "collapse_id"] {
            let error = #expect(throws: ChatError.self) {
                try NotificationContent(["alert": .string("x"), field: .string("a\u{0}b")], now: Timestamp(seconds: 0))
            }
            #expect(error?.field == field && error?.message.contains("control character 0") == true)
        }
    }
}

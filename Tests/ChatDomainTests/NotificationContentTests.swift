import ChatDomain
import Testing

@Suite("What a notification says")
struct NotificationContentTests {
    static let now = Timestamp(seconds: 1_780_000_000)

    static func content(_ json: String) throws -> NotificationContent {
        try NotificationContent(#require(try JSONValue(parsing: json).object), now: now)
    }

    @Test(
        "The payload is made of the fields, in a fixed order, custom values beside aps",
        arguments: [
            (
                #"{"alert":"You got your emails.","badge":9,"sound":"bingbong.aiff"}"#,
                #"{"aps":{"alert":"You got your emails.","badge":9,"sound":"bingbong.aiff"}}"#
            ),
            (#"{"sound":"default"}"#, #"{"aps":{"sound":"default"}}"#), (#"{"badge":0}"#, #"{"aps":{"badge":0}}"#),
            (
                #"{"custom":{"server":{"serverId":1,"name":"Server 1"}},"alert":"Server 1 is down"}"#,
                #"{"aps":{"alert":"Server 1 is down"},"server":{"serverId":1,"name":"Server 1"}}"#
            ),
            (
                #"{"alert":{"title":"T","loc-args":["a"]},"mutable_content":true,"category":"c","thread_id":"t"}"#,
                #"{"aps":{"alert":{"title":"T","loc-args":["a"]},"mutable-content":1,"category":"c","thread-id":"t"}}"#
            ),
            (#"{"content_available":true,"custom":{"n":1.50}}"#, #"{"aps":{"content-available":1},"n":1.50}"#),
            (#"{"alert":"新年好","badge":null,"sound":null}"#, #"{"aps":{"alert":"新年好"}}"#),
            (#"{"payload": {"z": 1, "aps" : {"alert": "x"}}}"#, #"{"z":1,"aps":{"alert":"x"}}"#),
            (#"{"payload":{"aps":{}}}"#, #"{"aps":{}}"#),
            (#"{"payload":{"mdm":"push-magic"}}"#, #"{"mdm":"push-magic"}"#),
            (
                #"{"sound":{"critical":1,"name":"a.caf","volume":0.5}}"#,
                #"{"aps":{"sound":{"critical":1,"name":"a.caf","volume":0.5}}}"#
            ),
        ])
    func payload(json: String, expected: String) throws {
        #expect(try Self.content(json).payload == expected)
    }

    @Test(
        "What breaks a rule is refused, with the field",
        arguments: [
            ("{}", "alert"), (#"{"custom":{"a":1}}"#, "alert"), (#"{"alert":""}"#, "alert"), (#"{"alert":5}"#, "alert"),
            (#"{"alert":{}}"#, "alert"), (#"{"badge":-1}"#, "badge"), (#"{"badge":1.5}"#, "badge"),
            (#"{"badge":"1"}"#, "badge"), (#"{"badge":4294967296}"#, "badge"), (#"{"sound":""}"#, "sound"),
            (#"{"sound":{"volume":1}}"#, "sound"), (#"{"sound":1}"#, "sound"),
            (#"{"alert":"a","custom":[]}"#, "custom"), (#"{"alert":"a","custom":{"aps":1}}"#, "custom"),
            (#"{"alert":"a","payload":{"aps":{}}}"#, "payload"), (#"{"payload":"x"}"#, "payload"),
            (#"{"payload":{}}"#, "payload"), (#"{"payload":{"a":1}}"#, "payload"),
            (#"{"payload":{"aps":1}}"#, "payload.aps"),
            (#"{"payload":{"aps":{"badge":"1"}}}"#, "payload.aps.badge"),
            (#"{"payload":{"aps":{"alert":[]}}}"#, "payload.aps.alert"),
            (#"{"content_available":1}"#, "content_available"),
            (#"{"alert":"a","category":""}"#, "category"), (#"{"alert":"a","push_type":"news"}"#, "push_type"),
            (#"{"alert":"a","push_type":"background"}"#, "push_type"),
            (#"{"content_available":true,"priority":10}"#, "priority"), (#"{"alert":"a","priority":7}"#, "priority"),
            (#"{"alert":"a","priority":"10"}"#, "priority"), (#"{"alert":"a","collapse_id":"a b"}"#, "collapse_id"),
            (#"{"alert":"a","collapse_id":"\#(String(repeating: "x", count: 65))"}"#, "collapse_id"),
            (#"{"alert":"a","collapse_id":"é"}"#, "collapse_id"), (#"{"alert":"a","expiration":1}"#, "expiration"),
            (#"{"alert":"a","expiration":"tomorrow"}"#, "expiration"),
            (#"{"alert":"a","expiration":-1}"#, "expiration"),
            (#"{"alert":"a","expiration":1e9}"#, "expiration"),
            (#"{"alert":"a","not_before":"2099-01-01T00:00:00Z"}"#, "not_before"),
            (#"{"alert":"a","not_before":1780000100,"expiration":1780000100}"#, "not_before"),
        ])
    func refused(json: String, field: String) throws {
        let error = #expect(throws: ChatError.self) { try Self.content(json) }
        #expect(error?.field == field, "\(error?.description ?? "accepted")")
    }

    @Test("Type and priority follow from the payload unless they are said")
    func type() throws {
        #expect(try Self.content(#"{"alert":"a"}"#).pushType == "alert")
        #expect(try Self.content(#"{"alert":"a"}"#).priority == nil)
        #expect(try Self.content(#"{"alert":"a","content_available":true}"#).pushType == "alert")
        let background = try Self.content(#"{"content_available":true}"#)
        #expect(background.pushType == "background")
        #expect(background.priority == 5)
        #expect(try Self.content(#"{"payload":{"aps":{"content-available":1}}}"#).pushType == "background")
        #expect(try Self.content(#"{"payload":{"mdm":"x"}}"#).pushType == "mdm")
        #expect(try Self.content(#"{"alert":"a","push_type":"voip","priority":5}"#).pushType == "voip")
    }

    @Test("Times are UNIX seconds or RFC 3339; what is due already goes at once")
    func times() throws {
        #expect(try Self.content(#"{"alert":"a","expiration":1780000060}"#).expiration == 1_780_000_060)
        #expect(try Self.content(#"{"alert":"a","expiration":0}"#).expiration == 0)
        #expect(
            try Self.content(#"{"alert":"a","expiration":"2026-05-28T22:26:41+02:00"}"#).expiration == 1_780_000_001)
        #expect(
            try Self.content(#"{"alert":"a","not_before":1780000060}"#).notBefore == Timestamp(seconds: 1_780_000_060))
        #expect(try Self.content(#"{"alert":"a","not_before":1779999999}"#).notBefore == nil)
    }

    @Test("Too large by how much, in bytes, and for whom")
    func size() throws {
        let content = try Self.content(#"{"alert":"\#(String(repeating: "é", count: 118))"}"#)
        #expect(content.payload.utf8.count == 256)
        try content.requireSize(atMost: 256, app: .default)
        let error = #expect(throws: ChatError.self) { try content.requireSize(atMost: 250, app: AppName("old")) }
        #expect(
            error?.message
                == "Invalid payload: has 256 bytes of UTF-8, 6 more than the 250 that the gateway of app old takes")
        #expect(error?.field == "payload")
    }
}

import APNSGateway
import ChatDomain
import Testing

@Suite("Apple's format of a notification")
struct ComposedNotificationTests {
    private static func composed(_ json: String) throws -> ComposedNotification {
        try APNSFormat.composed(content(json))
    }

    private static func content(_ json: String) throws -> NotificationContent {
        try NotificationContent(
            #require(try JSONValue(parsing: json).object), now: Timestamp(seconds: 1_780_000_000))
    }

    @Test(
        "The payload has the fields in a fixed order, with custom values beside aps",
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
            (
                #"{"alert":"a","interruption_level":"passive","relevance_score":0.50,"target_content_id":"w","#
                    + #""image":"https://a.example/p.png","link":"https://a.example/"}"#,
                #"{"aps":{"alert":"a","interruption-level":"passive","relevance-score":0.50,"target-content-id":"w"},"#
                    + #""link":"https://a.example/","image":"https://a.example/p.png"}"#
            ),
            (#"{"alert":"a","urgent":true}"#, #"{"aps":{"alert":"a","interruption-level":"time-sensitive"}}"#),
            (
                #"{"alert":"a","urgent":true,"interruption_level":"time-sensitive","priority":10}"#,
                #"{"aps":{"alert":"a","interruption-level":"time-sensitive"}}"#
            ),
            (#"{"alert":"a","urgent":false,"relevance_score":1}"#, #"{"aps":{"alert":"a","relevance-score":1}}"#),
            (
                #"{"payload":{"aps":{"interruption-level":"critical","relevance-score":50}}}"#,
                #"{"aps":{"interruption-level":"critical","relevance-score":50}}"#
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
        #expect(try Self.composed(json).payload == expected)
    }

    @Test(
        "Values that only Apple forbids are refused, and the error names the field",
        arguments: [
            (#"{"alert":"a","custom":{"aps":1}}"#, "custom"), (#"{"payload":{}}"#, "payload"),
            (#"{"payload":{"a":1}}"#, "payload"), (#"{"payload":{"aps":1}}"#, "payload.aps"),
            (#"{"payload":{"aps":{"badge":"1"}}}"#, "payload.aps.badge"),
            (#"{"payload":{"aps":{"interruption-level":"loud"}}}"#, "payload.aps.interruption-level"),
            (#"{"payload":{"aps":{"relevance-score":"1"}}}"#, "payload.aps.relevance-score"),
            (#"{"alert":"a","image":"https://a.example/","custom":{"image":1}}"#, "custom"),
            (#"{"payload":{"aps":{"alert":[]}}}"#, "payload.aps.alert"),
            (#"{"payload":{"aps":{"alert":{"loc-args":["x"]}}}}"#, "payload.aps.alert"),
            (#"{"alert":"a","push_type":"new\ns"}"#, "push_type"),
            (#"{"alert":"a","push_type":"\#(String(repeating: "x", count: 65))"}"#, "push_type"),
            (#"{"alert":"a","push_type":"background"}"#, "push_type"),
            (#"{"content_available":true,"priority":10}"#, "priority"),
            (#"{"alert":"a","collapse_id":"a b"}"#, "collapse_id"),
            (#"{"alert":"a","collapse_id":"\#(String(repeating: "x", count: 65))"}"#, "collapse_id"),
            (#"{"alert":"a","collapse_id":"é"}"#, "collapse_id"),
        ])
    func refused(json: String, field: String) throws {
        let content = try Self.content(json)
        let error = #expect(throws: ChatError.self) { try APNSFormat.composed(content) }
        #expect(error?.field == field, "\(error?.description ?? "accepted")")
    }

    @Test("A collapse id of the maximum length is accepted")
    func longestCollapseID() throws {
        _ = try Self.composed(#"{"alert":"a","collapse_id":"\#(String(repeating: "~", count: 64))"}"#)
    }

    @Test("An unknown push type is accepted, with a warning if the protocol has types")
    func novelType() throws {
        let composed = try Self.composed(#"{"alert":"a","push_type":"novel"}"#)
        #expect(composed.pushType == "novel")
        let http2 = APNSFormat(.http2, payloadLimit: 4096)
        #expect(http2.warning(pushType: composed.pushType)?.contains("novel") == true)
        #expect(http2.warning(pushType: "accessory") == nil)
        #expect(APNSFormat(.binary, payloadLimit: 2048).warning(pushType: composed.pushType) == nil)
    }

    @Test("Type and priority follow from the payload unless they are given")
    func type() throws {
        #expect(try Self.composed(#"{"alert":"a"}"#).pushType == "alert")
        #expect(try Self.composed(#"{"alert":"a"}"#).priority == nil)
        #expect(try Self.composed(#"{"alert":"a","content_available":true}"#).pushType == "alert")
        let background = try Self.composed(#"{"content_available":true}"#)
        #expect(background.pushType == "background")
        #expect(background.priority == 5)
        #expect(try Self.composed(#"{"payload":{"aps":{"content-available":1}}}"#).pushType == "background")
        #expect(try Self.composed(#"{"payload":{"mdm":"x"}}"#).pushType == "mdm")
        let voip = try Self.composed(#"{"alert":"a","push_type":"voip","priority":5}"#)
        #expect(voip.pushType == "voip")
        #expect(voip.priority == 5)
    }

    @Test("An urgent notification has the priority 10")
    func urgent() throws {
        #expect(try Self.composed(#"{"alert":"a","urgent":true}"#).priority == 10)
        #expect(try Self.composed(#"{"alert":"a","urgent":false}"#).priority == nil)
    }

    @Test(
        "A value outside its range is refused, and the error names the field",
        arguments: [
            (#"{"alert":"a","interruption_level":"loud"}"#, "interruption_level"),
            (#"{"alert":"a","interruption_level":1}"#, "interruption_level"),
            (#"{"alert":"a","relevance_score":1.01}"#, "relevance_score"),
            (#"{"alert":"a","relevance_score":-0.1}"#, "relevance_score"),
            (#"{"alert":"a","relevance_score":"1"}"#, "relevance_score"),
            (#"{"alert":"a","relevance_score":1e999}"#, "relevance_score"),
            (#"{"alert":"a","target_content_id":""}"#, "target_content_id"),
            (#"{"alert":"a","image":"ftp://a.example/p.png"}"#, "image"), (#"{"alert":"a","urgent":1}"#, "urgent"),
            (#"{"content_available":true,"urgent":true}"#, "urgent"),
            (#"{"payload":{"aps":{"alert":"a"}},"urgent":true}"#, "urgent"),
            (#"{"alert":"a","urgent":true,"priority":5}"#, "priority"),
            (#"{"alert":"a","urgent":true,"interruption_level":"active"}"#, "interruption_level"),
            (#"{"payload":{"aps":{}},"relevance_score":1}"#, "payload"),
        ])
    func outOfRange(json: String, field: String) {
        let error = #expect(throws: ChatError.self) { try Self.content(json) }
        #expect(error?.field == field, "\(error?.description ?? "accepted")")
    }

    @Test("The error for a large payload has the excess in bytes, and the gateway")
    func size() throws {
        let content = try Self.content(#"{"alert":"\#(String(repeating: "é", count: 118))"}"#)
        let composed = try APNSFormat(.binary, payloadLimit: 256).compose(content, for: .default)
        #expect(composed.payload.utf8.count == 256)
        #expect(try APNSFormat.composed(content) == composed)
        let error = #expect(throws: ChatError.self) {
            try APNSFormat(.binary, payloadLimit: 250).compose(content, for: AppName("old"))
        }
        #expect(
            error?.message
                == "Invalid payload: has 256 bytes of UTF-8, 6 more than the 250 that the gateway of app old takes")
        #expect(error?.field == "payload")
    }

    @Test(
        "The limit is that of the notification's type",
        arguments: [
            (#","push_type":"voip""#, 5120, true), (#","push_type":"voip""#, 5121, false), ("", 4096, true),
            ("", 4097, false),
        ])
    func sizeOfType(more: String, size: Int, fits: Bool) throws {
        let text = String(repeating: "x", count: size - #"{"aps":{"alert":""}}"#.utf8.count)
        let content = try Self.content(#"{"alert":"\#(text)"\#(more)}"#)
        let format = APNSFormat(.http2, payloadLimit: 4096)
        if fits {
            #expect(try format.compose(content, for: .default).payload.utf8.count == size)
        } else {
            let error = #expect(throws: ChatError.self) { try format.compose(content, for: .default) }
            #expect(error?.field == "payload")
        }
    }
}

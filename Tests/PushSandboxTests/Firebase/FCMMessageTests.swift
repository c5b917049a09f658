import Foundation
import Testing

@testable import PushSandbox

@Suite("FCM messages")
struct FCMMessageTests {
    static let installation = "cAAAAAAAAAAAAAAAAAAAA1"
    static let token = installation + ":APA91bHexampleexample"

    private static func message(_ members: String, around: String = "") throws(FCMRefusal) -> FCMMessage {
        try FCMMessage(Array(#"{"message":{\#(members)}\#(around)}"#.utf8))
    }

    private static func refusal(_ members: String, around: String = "") -> FCMRefusal? {
        do {
            _ = try message(members, around: around)
            return nil
        } catch {
            return error
        }
    }

    @Test("A message has one recipient, texts, and options for Android")
    func whole() throws {
        let message = try Self.message(
            #""token":"\#(Self.token)","notification":{"title":"T","body":"B"},"data":{"room":"7"},"#
                + #""android":{"collapseKey":"k","priority":"high","ttl":"3.5s","notification":{"body":"Own"}}"#,
            around: #","validateOnly":true"#)
        #expect(message.target == .token(Self.token))
        #expect(message.title == "T" && message.body == "Own" && message.data == ["room": "7"])
        #expect(message.isHighPriority && message.lifetime == 3 && message.collapseKey == "k")
        #expect(message.isOnlyChecked && message.hasNotification)
    }

    @Test(
        "Each kind of recipient is accepted",
        arguments: [
            ("fid", installation), ("token", installation), ("token", token), ("topic", "news~1"),
            ("condition", "'a' in topics && ('b' in topics || !('c' in topics))"),
        ])
    func recipients(_ member: String, _ text: String) throws {
        let target = try Self.message(#""\#(member)":"\#(text)""#).target
        let expected: FCMMessage.Target =
            switch member {
            case "fid": .installation(text)
            case "token": .token(text)
            case "topic": .topic(text)
            default: .condition(try #require(FCMCondition(text)), text: text)
            }
        #expect(target == expected)
    }

    @Test(
        "A wrong recipient is an invalid argument",
        arguments: [
            "", #""token":"""#, #""token":"short""#, #""fid":"\#(token)""#, #""topic":"/topics/a""#,
            #""fid":"\#(installation)","topic":"a""#, #""condition":"'a' in topics &&""#,
            #""condition":"('a' in topics""#,
            #""condition":"'1' in topics||'2' in topics||'3' in topics||'4' in topics||'5' in topics||'6' in topics""#,
        ])
    func wrongRecipients(_ members: String) {
        let refusal = Self.refusal(members)
        #expect(refusal?.status == 400 && refusal?.errorCode == "INVALID_ARGUMENT")
    }

    @Test(
        "A wrong field is named, with the path and the value, and without a code of FCM",
        arguments: [
            (
                #""data":{"n":12}"#, "message.data[0].value",
                "Invalid value at 'message.data[0].value' (TYPE_STRING), 12"
            ),
            (
                #""x":1"#, "message",
                #"Invalid JSON payload received. Unknown name "x" at 'message': Cannot find field."#
            ),
            (
                #""android":{"priority":"urgent"}"#, "message.android.priority",
                #"Invalid value at 'message.android.priority' (TYPE_ENUM), "urgent""#
            ),
            (
                #""android":{"notification":{"color":"red"}}"#, "message.android.notification.color",
                #"Invalid value at 'message.android.notification.color' (TYPE_STRING), "red""#
            ),
            (
                #""android":{"ttl":"1 day"}"#, "message.android.ttl",
                #"Invalid value at 'message.android.ttl' (type.googleapis.com/google.protobuf.Duration), "1 day""#
            ),
            (
                #""android":{"ttl":"-9223372036854775808.5s"}"#, "message.android.ttl",
                "Invalid value at 'message.android.ttl' (type.googleapis.com/google.protobuf.Duration), "
                    + #""-9223372036854775808.5s""#
            ),
            (#""android":{"ttl":"2419201s"}"#, "message.android.ttl", "Invalid ttl: must be from 0s to 2419200s."),
            (#""data":{"google.a":"1"}"#, "message.data", "Invalid data payload key: google.a"),
            (#""android":{"data":{"from":"1"}}"#, "message.android.data", "Invalid data payload key: from"),
        ])
    func wrongFields(_ members: String, _ field: String, _ description: String) {
        let refusal = Self.refusal(#""topic":"a","# + members)
        #expect(refusal?.violations == [.init(field: field, description: description)])
        #expect(refusal?.errorCode == nil && refusal?.status == 400)
    }

    @Test("Both forms of Android's options together are rejected")
    func twoForms() {
        #expect(Self.refusal(#""topic":"a","android":{},"android_v2":{}"#)?.errorCode == "INVALID_ARGUMENT")
        #expect(Self.refusal(#""topic":"a","android_v2":{"background_sync":{}}"#) == nil)
    }

    @Test("Data and notification together have at most 4,096 bytes, and 2,048 for topics")
    func size() {
        func content(_ count: Int) -> String { #""data":{"k":"\#(String(repeating: "x", count: count))"}"# }
        let device = #""token":"\#(Self.token)","#
        #expect(Self.refusal(device + content(4095)) == nil)
        #expect(Self.refusal(device + content(4096))?.errorCode == "INVALID_ARGUMENT")
        #expect(Self.refusal(#""topic":"a","# + content(2047)) == nil)
        #expect(Self.refusal(#""topic":"a","# + content(2048))?.errorCode == "INVALID_ARGUMENT")
    }

    @Test(
        "Text that is not JSON, and a body without a message, are rejected", arguments: ["", "{", "[]", "{}", "null"])
    func notAMessage(_ text: String) {
        #expect(throws: FCMRefusal.self) { try FCMMessage(Array(text.utf8)) }
    }

    @Test("An error has Google's form")
    func form() throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let text = String(decoding: try encoder.encode(FCMRefusal(.unregistered)), as: UTF8.self)
        #expect(
            text == #"{"error":{"code":404,"details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","#
                + #""errorCode":"UNREGISTERED"}],"message":"Requested entity was not found.","status":"NOT_FOUND"}}"#)
    }
}

import ChatDomain
import Foundation
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("Requirements of Apple's gateways on the queue's rows")
struct APNSFormatTests {
    private static let http2 = APNSFormat(.http2, payloadLimit: 4096)
    private static let binary = APNSFormat(.binary, payloadLimit: 2048)
    private static let id = "7c0e1f0a-32e8-4f14-9d8b-0a4a3a2f6c11"
    private static let token = String(repeating: "ab", count: 32)
    private static let alert = #"{"aps":{"alert":"x"}}"#

    /// Returns a row as another program writes it.
    private static func row(
        token: String = token, payload: String? = alert, isOurs: Bool = false, expiration: Int64? = nil,
        priority: Int64? = nil, type: String? = nil, collapseID: String? = nil, id: String = id
    ) -> QueuedPush {
        QueuedPush(
            id: 7, address: Array(token.utf8).withUnsafeBytes { Address(stored: $0) },
            payload: payload.map { Array($0.utf8) }, isOurs: isOurs, expiration: expiration, priority: priority,
            type: type, collapseID: collapseID, apnsID: id)
    }

    /// Returns the reason for which a row is rejected. `nil` if it can be sent.
    private static func reason(_ format: APNSFormat, _ row: QueuedPush) -> String? {
        do throws(PushRefusal) {
            _ = try format.push(row, identifier: 1)
            return nil
        } catch {
            return error.reason
        }
    }

    @Test("All values of a row go into its push; only HTTP/2 has an id")
    func whole() throws {
        let row = Self.row(expiration: 1_780_000_000, priority: 5, type: "voip", collapseID: "score")
        func push(id: String?) throws -> Push {
            Push(
                id: 7, identifier: 42, address: .token(try DeviceToken(parsing: Self.token)),
                payload: Array(Self.alert.utf8), expiration: 1_780_000_000, priority: 5, apnsID: id, type: "voip",
                collapseID: "score")
        }
        #expect(try Self.http2.push(row, identifier: 42) == push(id: Self.id))
        #expect(try Self.binary.push(row, identifier: 42) == push(id: nil))
    }

    private static func changed(urgent: Bool = false, text: String = "Up") throws -> ChatAlert {
        ChatAlert(
            nickname: try Nickname(parsing: "Bot"),
            content: MessageContent(stored: text, title: "Disk", priority: 10, isUrgent: urgent),
            code: try SecretCode(parsing: "code"), message: 42, isOfProgram: true)
    }

    @Test("A change rings as a new message does, in place of the first notification")
    func ring() throws {
        let alert = try Self.changed()
        #expect(
            try Self.http2.update(.ring, of: alert, endpoint: nil)
                == PushUpdate(payload: Self.http2.payload(of: alert), priority: 10, collapse: .firstPush))
        #expect(
            try Self.binary.update(.ring, of: alert, endpoint: nil)
                == PushUpdate(payload: Self.binary.payload(of: alert), priority: 10))
    }

    @Test("A silent change has no sound and the passive level, whatever the app leaves out", arguments: [true, false])
    func replace(urgent: Bool) throws {
        let update = try #require(try Self.http2.update(.replace, of: Self.changed(urgent: urgent), endpoint: nil))
        #expect(
            update.payload
                == #"{"aps":{"alert":{"title":"Disk","body":"Bot: Up"},"mutable-content":1,"category":"message","#
                + #""interruption-level":"passive","relevance-score":\#(urgent ? "1" : "0.5")},"message_id":42,"#
                + #""sender":"Bot","program":true}"#)
        #expect(update.pushType == nil && update.priority == 5 && update.collapse == .firstPush)
        let bare = APNSFormat(.http2, payloadLimit: 4096, fields: [])
        #expect(
            try bare.update(.replace, of: Self.changed(urgent: urgent), endpoint: nil)?.payload
                == #"{"aps":{"alert":{"title":"Disk","body":"Bot: Up"},"interruption-level":"passive"},"message_id":42,"#
                + #""sender":"Bot","program":true}"#)
        // Also if the payload must be shortened.
        let long = try Self.changed(urgent: urgent, text: String(repeating: "x", count: 500))
        let small = try #require(
            try APNSFormat(.http2, payloadLimit: 256).update(.replace, of: long, endpoint: nil))
        #expect(small.payload.utf8.count <= 256 && small.payload.contains(#""interruption-level":"passive""#))
    }

    @Test("A background push asks the app to remove a notification; the queue's row is sent unchanged")
    func remove() throws {
        let update = try #require(try Self.http2.update(.remove, of: Self.changed(), endpoint: nil))
        #expect(
            update
                == PushUpdate(
                    payload: #"{"aps":{"content-available":1},"type":"clear","message_id":42}"#, pushType: "background",
                    priority: 5))
        for isOurs in [true, false] {
            let row = Self.row(payload: update.payload, isOurs: isOurs, priority: 5, type: "background")
            let push = try Self.http2.push(row, identifier: 1)
            #expect(push.type == "background" && push.priority == 5 && push.payload == Array(update.payload.utf8))
        }
    }

    @Test("The binary gateway can only ring", arguments: [.replace, .remove] as [AlertUpdate])
    func binaryUpdates(update: AlertUpdate) throws {
        #expect(try Self.binary.update(update, of: Self.changed(), endpoint: nil) == nil)
    }

    @Test("An invalid priority is not sent", arguments: [-1, 256, .max] as [Int64])
    func priority(value: Int64) throws {
        #expect(try Self.http2.push(Self.row(priority: value), identifier: 1).priority == nil)
    }

    @Test(
        "The push type is the row's, or else follows from the payload",
        arguments: [
            (nil, #"{"aps":{"alert":"x"}}"#, "alert"), (nil, #"{"aps":{"content-available":1}}"#, "background"),
            (nil, #"{"aps":{"content-available":1,"sound":"a"}}"#, "alert"), (nil, #"{"aps":{}}"#, "alert"),
            ("voip", #"{"aps":{}}"#, "voip"), ("background", #"{"aps":{"alert":"x"}}"#, "background"),
        ] as [(String?, String, String)])
    func types(type: String?, payload: String, expected: String) throws {
        let row = Self.row(payload: payload, type: type)
        #expect(try Self.http2.push(row, identifier: 1).type == expected)
        #expect(try Self.binary.push(row, identifier: 1).type == expected)
    }

    @Test("The relay's own payloads are not parsed, and count as visible")
    func ours() throws {
        let own = Self.row(payload: #"{"aps":{"content-available":1}}"#, isOurs: true)
        #expect(try Self.http2.push(own, identifier: 1).type == "alert")
        #expect(Self.reason(Self.http2, Self.row(payload: "[1]", isOurs: true)) == nil)
        #expect(Self.reason(Self.http2, Self.row(payload: "", isOurs: true)) == "PayloadEmpty")
        #expect(
            Self.reason(Self.http2, Self.row(payload: String(repeating: "x", count: 4097), isOurs: true))
                == "PayloadTooLarge")
    }

    @Test(
        "Text that cannot be in a header is rejected over HTTP/2, and ignored by the binary protocol",
        arguments: [
            ("al\nert", nil, "InvalidPushType"), ("", nil, "InvalidPushType"), ("é", nil, "InvalidPushType"),
            (String(repeating: "t", count: 65), nil, "InvalidPushType"), (String(repeating: "t", count: 64), nil, nil),
            (nil, String(repeating: "c", count: 65), "BadCollapseId"), (nil, String(repeating: "c", count: 64), nil),
            (nil, "naïve", "BadCollapseId"), (nil, " leading", "BadCollapseId"), (nil, "trailing ", "BadCollapseId"),
            (nil, "", "BadCollapseId"), (nil, "a\u{7F}", "BadCollapseId"), (nil, "a\r\nb: c", "BadCollapseId"),
            (nil, "score of today", nil),
        ] as [(String?, String?, String?)])
    func headerTexts(type: String?, collapseID: String?, reason: String?) throws {
        let row = Self.row(type: type, collapseID: collapseID)
        #expect(Self.reason(Self.http2, row) == reason)
        #expect(Self.reason(Self.binary, row) == nil)
        guard reason == nil else { return }
        #expect(try Self.http2.push(row, identifier: 1).collapseID == collapseID)
    }

    @Test("An id from another program is kept, in lower case")
    func givenID() throws {
        #expect(try Self.http2.push(Self.row(id: Self.id), identifier: 1).apnsID == Self.id)
        #expect(try Self.http2.push(Self.row(id: Self.id.uppercased()), identifier: 1).apnsID == Self.id)
    }

    @Test(
        "An id that is no UUID is rejected over HTTP/2, and ignored by the binary protocol",
        arguments: [
            "mine", "", id + "0", String(id.dropLast()), id.replacing("-", with: ""), "{\(id.dropFirst().dropLast())}",
            id.replacing("7", with: "g"), id.replacing("-", with: "_"), "7c0e1f0a3-2e8-4f14-9d8b-0a4a3a2f6c11",
            "7c0e1f0a-32e8-4f14-9d8b-0a4a3a2f6cé",
        ])
    func noID(id: String) throws {
        #expect(UUID(uuidString: id) == nil)
        #expect(Self.reason(Self.http2, Self.row(id: id)) == "BadMessageId")
        #expect(try Self.binary.push(Self.row(id: id), identifier: 1).apnsID == nil)
    }

    private static func payload(_ bytes: Int) -> String { #"{"a":"\#(String(repeating: "x", count: bytes - 8))"}"# }

    @Test("The limit is that of the push type, and reasons have HTTP/2's spelling")
    func limits() {
        for (size, type, reason) in [
            (4096, "alert", nil), (4097, "alert", "PayloadTooLarge"), (5120, "voip", nil),
            (5121, "voip", "PayloadTooLarge"),
            (4096, nil, nil), (4097, nil, "PayloadTooLarge"),
        ] as [(Int, String?, String?)] {
            let row = Self.row(payload: Self.payload(size), type: type)
            #expect(row.payload?.count == size)
            #expect(Self.reason(Self.http2, row) == reason)
        }
        #expect(Self.reason(Self.http2, Self.row(payload: "", type: "alert")) == "PayloadEmpty")
        #expect(Self.reason(Self.http2, Self.row(token: "none", payload: "{}")) == "BadDeviceToken")
        #expect(Self.reason(Self.http2, Self.row(payload: "[1]")) == "InvalidJSON")
    }

    @Test("Over HTTP/2 Apple's larger limit applies unless another limit is configured")
    func configuredLimit() {
        #expect(Self.http2.limit(of: "alert") == 4096)
        #expect(Self.http2.limit(of: "voip") == 5120)
        #expect(APNSFormat(.http2, payloadLimit: 1000).limit(of: "voip") == 1000)
        #expect(Self.binary.limit(of: "alert") == 2048)
        #expect(APNSFormat(.binary, payloadLimit: 4096).limit(of: "voip") == 4096)
    }

    @Test(
        "An invalid row is rejected with the binary protocol's reason",
        arguments: [
            ("not a token", #"{"aps":{}}"#, "InvalidToken"), ("", #"{"aps":{}}"#, "InvalidToken"),
            ("aa", #"{"aps":{}}"#, "InvalidToken"), (token, "", "MissingPayload"),
            (token, #"{"aps":{"alert":"}}"#, "InvalidJSON"), (token, "[1]", "InvalidJSON"), (token, nil, "InvalidJSON"),
            (token, #"{"aps":{"alert":"\#(String(repeating: "x", count: 2048))"}}"#, "InvalidPayloadSize"),
            (token, payload(2048), nil), (token, payload(2049), "InvalidPayloadSize"),
        ] as [(String, String?, String?)])
    func poisoned(token: String, payload: String?, reason: String?) {
        #expect(Self.reason(Self.binary, Self.row(token: token, payload: payload)) == reason)
    }

    @Test("Both protocols reject a payload that is not UTF-8")
    func noUTF8() {
        let row = QueuedPush(
            id: 7, address: Self.row().address, payload: Array(#"{"a":""#.utf8) + [0xFF] + Array(#""}"#.utf8),
            apnsID: Self.id)
        #expect(Self.reason(Self.binary, row) == "InvalidJSON")
        #expect(Self.reason(Self.http2, row) == "InvalidJSON")
    }

    @Test(
        "A payload with nothing but an empty alert is not sent, over either protocol",
        arguments: [
            (#"{"aps":{"alert":""}}"#, "NoText"), (#"{"aps": {"alert": { } } }"#, "NoText"),
            (#"{"aps":{"alert":null}}"#, "NoText"), (#"{"aps":{"alert":{"title":"", "body" : ""}}}"#, "NoText"),
            (#"{"aps":{"alert":{"title":null,"loc-key":"","loc-args":["x"],"launch-image":"i"}}}"#, "NoText"),
            // These do something: an icon without a number, a sound, a pass of Wallet, content for the app.
            (#"{"aps":{"alert":"","badge":0}}"#, nil), (#"{"aps":{"sound":"s","alert":""}}"#, nil),
            (#"{"aps":{}}"#, nil), (#"{"aps":{"alert":""},"k":1}"#, nil), (#"{"aps":{"alert":" "}}"#, nil),
            (#"{"aps":{"alert":{"loc-key":"K"}}}"#, nil), (#"{"aps":{"alert":{"body":"b","title":""}}}"#, nil),
            (#"{"aps":{"alert":{"title":"t","body":""}}}"#, nil), (#"{"aps":{"alert":{"title":{"x":1}}}}"#, nil),
            (#"{"aps":{"alert":{"body":""},"badge":1}}"#, nil),
        ])
    func emptyAlert(payload: String, reason: String?) {
        #expect(Self.reason(Self.binary, Self.row(payload: payload)) == reason)
        #expect(Self.reason(Self.http2, Self.row(payload: payload)) == reason)
    }

    @Test(
        "A row that is not a JSON object, or too large, has a hint that says what is wrong",
        arguments: [
            (#"{"aps":{"alert":"a" "b"}}"#, "at byte 21"), ("Hello", "expected a value at byte 1"), ("[1]", "an array"),
            (payload(5000), "the payload has 5000 bytes, and the limit is"),
        ])
    func hints(payload: String, hint: String) {
        for format in [Self.binary, Self.http2] {
            let refusal = #expect(throws: PushRefusal.self) {
                try format.push(Self.row(payload: payload), identifier: 1)
            }
            #expect(refusal?.hint?.contains(hint) == true, "\(refusal?.hint ?? "no hint")")
        }
    }

    @Test("A token may be written as Apple prints it")
    func foreignForms() throws {
        let row = Self.row(token: "<" + String(repeating: "AAAAAAAA ", count: 8) + ">")
        #expect(try Self.binary.push(row, identifier: 1).address.description == String(repeating: "a", count: 64))
    }

    @Test("The thread-id reveals nothing about a room's code to Apple, and depends on the key")
    func threads() {
        func id(_ code: String, key: UInt8) -> String {
            RoomThreads(secret: [UInt8](repeating: key, count: 32)).id(of: SecretCode(stored: code))
        }
        // HMAC-SHA256, computed by Python's hmac.
        #expect(id("room", key: 1) == "983fa01a448c9385" && id("room", key: 2) == "8d9ad87d9540a822")
        #expect(id("room", key: 1) != id("Room", key: 1))
    }

    @Test("A chat message has the tutorial's payload over the binary protocol, and room and message ids over HTTP/2")
    func chat() throws {
        let alert = ChatAlert(
            nickname: Nickname(stored: "SteveJ"), content: MessageContent(stored: "Hello, world!"),
            code: SecretCode(stored: "room"), message: 42)
        #expect(
            try Self.binary.payload(of: alert)
                == #"{"aps":{"alert":"SteveJ: Hello, world!","sound":"default"}}"#)
        #expect(
            try Self.http2.payload(of: alert)
                == #"{"aps":{"alert":"SteveJ: Hello, world!","sound":"default","mutable-content":1,"#
                + #""category":"message","relevance-score":0.5},"message_id":42,"sender":"SteveJ"}"#)
        let threads = RoomThreads(secret: [UInt8](repeating: 1, count: 32))
        #expect(
            try APNSFormat(.http2, payloadLimit: 4096, threads: threads).payload(of: alert)
                == #"{"aps":{"alert":"SteveJ: Hello, world!","sound":"default","thread-id":"983fa01a448c9385","#
                + #""mutable-content":1,"category":"message","relevance-score":0.5,"#
                + #""target-content-id":"983fa01a448c9385"},"message_id":42,"room_id":"983fa01a448c9385","#
                + #""sender":"SteveJ"}"#
        )
        #expect(
            try APNSFormat(.binary, payloadLimit: 2048, threads: threads).payload(of: alert)
                == Self.binary.payload(of: alert))
        #expect(
            try APNSFormat(.binary, payloadLimit: 256, sound: nil).payload(of: alert)
                == #"{"aps":{"alert":"SteveJ: Hello, world!"}}"#)
        #expect(
            try APNSFormat(.binary, payloadLimit: 2048, threads: threads, showsUnread: true).payload(of: alert)
                == Self.binary.payload(of: alert))
        let short = try APNSFormat(.binary, payloadLimit: 58).payload(of: alert)
        #expect(short == #"{"aps":{"alert":"SteveJ: Hello, wo…","sound":"default"}}"#)
        #expect(throws: ChatError.self) { try APNSFormat(.binary, payloadLimit: 40).payload(of: alert) }
    }

    private static func message(priority: UInt8? = nil, isUrgent: Bool = false, text: String = "Fire") -> ChatAlert {
        ChatAlert(
            nickname: Nickname(stored: "Ann"),
            content: MessageContent(stored: text, priority: priority, isUrgent: isUrgent),
            code: SecretCode(stored: "room"), message: 7)
    }

    @Test(
        "Only an urgent message is time-sensitive, and the score follows from its priority",
        arguments: [(true, nil, "1"), (false, 10, "0.5"), (false, nil, "0.5"), (false, 5, "0.25"), (false, 1, "0")]
            as [(Bool, UInt8?, String)])
    func urgency(isUrgent: Bool, priority: UInt8?, score: String) throws {
        let message = Self.message(priority: priority, isUrgent: isUrgent)
        let payload = try Self.http2.payload(of: message)
        #expect(payload.contains(#""interruption-level":"time-sensitive""#) == isUrgent, "\(payload)")
        #expect(payload.contains(#""relevance-score":\#(score)}"#), "\(payload)")
        #expect(try !Self.binary.payload(of: message).contains("interruption"))
    }

    @Test("An app's chat messages lack the fields that it leaves out", arguments: ChatField.allCases)
    func leftOut(field: ChatField) throws {
        let threads = RoomThreads(secret: [UInt8](repeating: 1, count: 32))
        func aps(_ fields: Set<ChatField>) throws -> JSONObject {
            let format = APNSFormat(.http2, payloadLimit: 4096, threads: threads, fields: fields)
            let payload = try format.payload(of: Self.message(isUrgent: true))
            return try #require(try JSONValue(parsing: payload).object?["aps"]?.object)
        }
        let all = Set(ChatField.allCases)
        #expect(try Set(aps(all).members.map(\.name)) == Set(all.map(\.rawValue) + ["alert", "sound"]))
        #expect(try Set(aps(all.subtracting([field])).members.map(\.name)).contains(field.rawValue) == false)
        #expect(try aps([field]).members.map(\.name) == ["alert", "sound", field.rawValue])
    }

    @Test("The number of unread messages becomes the badge when a chat push is sent, and always fits")
    func badge() throws {
        let format = APNSFormat(.http2, payloadLimit: 512, showsUnread: true)
        let text = try format.payload(of: Self.message(text: String(repeating: "t", count: 600)))
        func sent(_ payload: String, unread: Int64?, by format: APNSFormat = format) throws -> String {
            var row = Self.row(payload: payload)
            row.unread = unread
            return String(decoding: try format.push(row, identifier: 1).payload, as: UTF8.self)
        }
        #expect(text.utf8.count < 512)
        let most = try sent(text, unread: UnreadCount.most)
        #expect(most.utf8.count == 512 && most.hasPrefix(#"{"aps":{"badge":99,"alert":"Ann: ttt"#))
        #expect(try JSONValue(parsing: most).object?["aps"]?.object?["badge"]?.integer == 99)
        #expect(try sent(text, unread: 0).hasPrefix(#"{"aps":{"badge":0,"alert":"#))
        #expect(try sent(text, unread: nil) == text)
        #expect(try sent(text, unread: 3, by: Self.binary) == text, "Never over the binary protocol")
        // Another program's document, and one that is full.
        for other in [#"{"aps":{"badge":1}}"#, #"{"aps":{"alert":"\#(String(repeating: "x", count: 492))"}}"#] {
            #expect(try sent(other, unread: 3) == other)
        }
    }
}

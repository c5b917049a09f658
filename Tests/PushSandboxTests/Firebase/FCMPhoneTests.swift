import Foundation
import Testing

@testable import PushSandbox

@Suite("A phone with FCM")
struct FCMPhoneTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)

    private static func message(_ members: String = "", key: String? = nil, ttl: String = "60s") throws -> FCMMessage {
        let key = key.map { #","collapse_key":"\#($0)""# } ?? ""
        return try FCMMessage(
            Array(
                #"{"message":{"topic":"a",\#(members.isEmpty ? "" : members + ",")"android":{"ttl":"\#(ttl)"\#(key)}}}"#
                    .utf8))
    }

    private static let notification = #""notification":{"title":"T"}"#

    private func offline() -> FCMPhone {
        var phone = FCMPhone()
        _ = phone.set(.offline, at: now)
        return phone
    }

    @Test("The system shows a notification only while the app is in the background; the app gets everything else")
    func receivers() throws {
        let remote =
            #"{"message":{"topic":"a","android_v2":{"remote_notification":{"notification":{"title":"T"}REST}}}}"#
        func version2(_ rest: String) throws -> FCMMessage {
            try FCMMessage(Array(remote.replacing("REST", with: rest).utf8))
        }
        var phone = FCMPhone()
        for (message, background, foreground) in [
            (
                try Self.message(#""data":{"a":"b"}"#), InboxEntry.PhoneDelivery.Receiver.onMessageReceived,
                InboxEntry.PhoneDelivery.Receiver.onMessageReceived
            ),
            (try Self.message(Self.notification), .tray, .onMessageReceived),
            (try Self.message(Self.notification + #","data":{"a":"b"}"#), .tray, .onMessageReceived),
            (try version2(""), .tray, .tray),
            (try version2(#","use_as_v1_data_message":true"#), .onMessageReceived, .onMessageReceived),
        ] {
            for (app, receiver) in [(FCMPhone.AppState.background, background), (.foreground, foreground)] {
                phone.app = app
                let changes = phone.receive(message, id: 1, at: now)
                #expect(changes == [.init(message: 1, progress: .delivered, receiver: receiver)])
            }
        }
    }

    @Test("An offline phone gets its messages in order when it connects, and those that have expired never")
    func lifetime() throws {
        var phone = offline()
        let waiting = [FCMPhone.Change(message: 1, progress: .waiting)]
        #expect(phone.receive(try Self.message(ttl: "10s"), id: 1, at: now) == waiting)
        _ = phone.receive(try Self.message(ttl: "60s"), id: 2, at: now)
        _ = phone.receive(try Self.message(Self.notification, ttl: "11s"), id: 3, at: now)
        #expect(phone.storedCount == 3)
        #expect(
            phone.set(.online, at: now.addingTimeInterval(10)) == [
                .init(message: 1, progress: .expired),
                .init(message: 2, progress: .delivered, receiver: .onMessageReceived),
                .init(message: 3, progress: .delivered, receiver: .tray),
            ])
        #expect(phone.storedCount == 0 && phone.deletedMessagesCalls == 0)
        #expect(phone.set(.online, at: now) == [])
    }

    @Test("A ttl of 0s means now or never")
    func nowOrNever() throws {
        var phone = offline()
        #expect(phone.receive(try Self.message(ttl: "0s"), id: 1, at: now) == [.init(message: 1, progress: .expired)])
        _ = phone.set(.online, at: now)
        #expect(phone.receive(try Self.message(ttl: "0s"), id: 2, at: now).map(\.progress) == [.delivered])
    }

    @Test("A message replaces the one with its collapse key, and notifications have the package's name as key")
    func collapsing() throws {
        var phone = offline()
        _ = phone.receive(try Self.message(key: "a"), id: 1, at: now)
        #expect(
            phone.receive(try Self.message(key: "a"), id: 2, at: now) == [
                .init(message: 1, progress: .replaced), .init(message: 2, progress: .waiting),
            ])
        _ = phone.receive(try Self.message(Self.notification), id: 3, at: now)
        #expect(phone.receive(try Self.message(Self.notification), id: 4, at: now).first?.progress == .replaced)
        #expect(phone.receive(try Self.message(Self.notification, key: "b"), id: 5, at: now).count == 1)
        #expect(phone.set(.online, at: now).map(\.message) == [2, 4, 5])
    }

    @Test("With a fifth collapse key, the oldest key's message is dropped; messages without a key stay")
    func keys() throws {
        var phone = offline()
        _ = phone.receive(try Self.message(), id: 1, at: now)
        for id in 2...5 { _ = phone.receive(try Self.message(key: "\(id)"), id: id, at: now) }
        #expect(
            phone.receive(try Self.message(key: "6"), id: 6, at: now) == [
                .init(message: 2, progress: .dropped), .init(message: 6, progress: .waiting),
            ])
        #expect(phone.set(.online, at: now).map(\.message) == [1, 3, 4, 5, 6])
        #expect(phone.deletedMessagesCalls == 0)
    }

    @Test("The message after 100 without a key drops all, and the app learns of it once, when the phone connects")
    func overflow() throws {
        var phone = offline()
        _ = phone.receive(try Self.message(key: "a"), id: 1, at: now)
        for id in 2...101 {
            #expect(phone.receive(try Self.message(), id: id, at: now).map(\.progress) == [.waiting])
        }
        let changes = phone.receive(try Self.message(), id: 102, at: now)
        #expect(changes.map(\.message) == Array(1...102) && changes.allSatisfy { $0.progress == .dropped })
        _ = phone.receive(try Self.message(), id: 103, at: now)
        #expect(phone.deletedMessagesCalls == 0)
        #expect(phone.set(.online, at: now).map(\.message) == [103])
        #expect(phone.deletedMessagesCalls == 1)
        _ = phone.set(.offline, at: now)
        _ = phone.set(.online, at: now)
        #expect(phone.deletedMessagesCalls == 1)
    }

    @Test("Expired messages do not count towards the limits")
    func expiredAndLimits() throws {
        var phone = offline()
        for id in 1...100 { _ = phone.receive(try Self.message(ttl: "1s"), id: id, at: now) }
        let changes = phone.receive(try Self.message(), id: 101, at: now.addingTimeInterval(1))
        #expect(changes.map(\.progress) == Array(repeating: .expired, count: 100) + [.waiting])
    }

    @Test("The messages of a removed app are lost")
    func removed() throws {
        var phone = offline()
        phone.topics = ["a": now]
        _ = phone.receive(try Self.message(), id: 1, at: now)
        #expect(phone.remove() == [.init(message: 1, progress: .unregistered)])
        #expect(phone.topics.isEmpty && phone.set(.online, at: now).isEmpty)
    }

    @Test(
        "A condition is evaluated from left to right, and parentheses first",
        arguments: [
            ("'a' in topics", "a", true), ("'a' in topics", "b", false), ("!('a' in topics)", "b", true),
            ("'a' in topics && 'b' in topics", "a", false), ("'a' in topics && 'b' in topics", "ab", true),
            ("'a' in topics || 'b' in topics && 'c' in topics", "a", false),
            ("'a' in topics || ('b' in topics && 'c' in topics)", "a", true),
            ("'a' in topics && !'b' in topics", "a", true), ("'a' in topics && !'b' in topics", "ab", false),
            ("!!'a' in topics", "a", true), ("!(!('a' in topics) || 'b' in topics)", "a", true),
            ("((('a' in topics)))&&('b'in topics||'c' in topics)", "ac", true),
        ])
    func conditions(text: String, topics: String, holds: Bool) throws {
        let condition = try #require(FCMCondition(text))
        #expect(condition.holds(for: Dictionary(uniqueKeysWithValues: topics.map { (String($0), now) })) == holds)
    }

    @Test("A condition may be nested as deep as a request is long")
    func depth() throws {
        let depth = FCMMessage.maxBody / 2
        let text = String(repeating: "(", count: depth) + "'a' in topics" + String(repeating: ")", count: depth)
        #expect(try #require(FCMCondition(text)).holds(for: ["a": 1]))
    }
}

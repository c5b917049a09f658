import Foundation
import PushWire
import Testing

@testable import PushSandbox

/// The notifications on the screen of a device, from the notifications in the inbox.
@Suite("The screen of a device")
struct ScreenTests {
    private static let token: [UInt8] = [0xAA]
    private var state = SandboxState.forTests()
    private let now = Date(timeIntervalSince1970: 1_796_169_600)

    private mutating func apple(
        _ payload: String, collapseID: String? = nil, type: String? = "alert", answer: InboxEntry.Response = .accepted,
        token: [UInt8] = Self.token
    ) {
        var headers: [String: String] = [:]
        headers[ProviderHeader.collapseID] = collapseID
        headers[ProviderHeader.pushType] = type
        let details = ProviderDetails(gateway: .http2, stream: 1, id: "id", headers: headers, authentication: nil)
        state.record(answer, details, token: token, payload: Array(payload.utf8), at: now)
    }

    private mutating func browser(_ payload: String) {
        state.record(
            .accepted, BrowserDetails(headers: [:]), token: Self.token, payload: Array(payload.utf8), at: now)
    }

    /// Sends a message over FCM. Its phones get it as the sandbox decides.
    private mutating func android(_ message: String, to target: String) throws {
        let body = Array(#"{"message":{\#(message),"token":"\#(target)"}}"#.utf8)
        let details = FCMDetails(target: target, name: nil, project: "p", headers: [:])
        state.record(.accepted, details, token: SandboxInstallation.token(of: target), payload: body, at: now)
        let changes = state.installations.deliver(try FCMMessage(body), project: "p", id: state.inbox.lastID, at: now)
        state.inbox.notePhones(
            changes.map { .init(installation: 1, progress: $0.change.progress, receiver: $0.change.receiver) })
    }

    private struct Answer: Decodable, Equatable {
        struct Shown: Decodable, Equatable {
            let notification: Int
            var title, body, key, messageId: String?
            let rings: Bool
        }
        struct Past: Decodable, Equatable {
            let notification: Int
            var replacedBy, removedBy: Int?
        }
        let shown: [Shown]
        let past: [Past]
        let rings: Int
    }

    private func screen(of token: [UInt8] = Self.token) throws -> Answer {
        let (entries, phone) = state.delivered(to: token)
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return try decoder.decode(Answer.self, from: JSONEncoder().encode(Screen(entries, phone: phone)))
    }

    @Test("Apple: a notification with the same collapse id replaces the earlier one, silently if it is passive")
    mutating func collapse() throws {
        apple(#"{"aps":{"alert":{"title":"Disk","body":"90 %"},"sound":"default"},"message_id":7}"#, collapseID: "a")
        apple(#"{"aps":{"alert":"Other"}}"#, collapseID: "b")
        apple(
            #"{"aps":{"alert":{"title":"Disk","body":"95 %"},"sound":"default","interruption-level":"passive"},"message_id":7}"#,
            collapseID: "a")
        apple(#"{"aps":{"alert":"No id","sound":"default"}}"#)
        apple(#"{"aps":{"alert":"No id","sound":"default"}}"#, type: nil)
        #expect(
            try screen()
                == Answer(
                    shown: [
                        .init(notification: 2, body: "Other", key: "b", rings: false),
                        .init(notification: 3, title: "Disk", body: "95 %", key: "a", messageId: "7", rings: false),
                        .init(notification: 4, body: "No id", rings: true),
                        .init(notification: 5, body: "No id", rings: true),
                    ], past: [.init(notification: 1, replacedBy: 3)], rings: 3))
    }

    @Test("Apple: a background push of the type clear removes the notifications of its message")
    mutating func clear() throws {
        apple(#"{"aps":{"alert":"Seven","sound":"x"},"message_id":7}"#, collapseID: "a")
        apple(#"{"aps":{"alert":"Eight","sound":"x"},"message_id":"8"}"#, collapseID: "b")
        apple(#"{"aps":{"content-available":1},"type":"clear","message_id":7}"#, type: "background")
        apple(#"{"aps":{"content-available":1},"type":"sync","message_id":8}"#, type: "background")
        #expect(
            try screen()
                == Answer(
                    shown: [.init(notification: 2, body: "Eight", key: "b", messageId: "8", rings: true)],
                    past: [.init(notification: 1, removedBy: 3)], rings: 2))
    }

    @Test(
        "Refused pushes, those of another device or type, and those without a text are not on the screen")
    mutating func nothing() throws {
        apple(#"{"aps":{"alert":"Refused"}}"#, answer: .error("Unregistered"))
        apple(#"{"aps":{"alert":"Lost"}}"#, answer: .dropped)
        apple(#"{"aps":{"alert":"Other"}}"#, token: [1])
        apple(#"{"aps":{"alert":"Call"}}"#, type: "voip")
        apple(#"{"aps":{"badge":1}}"#)
        apple("no JSON")
        apple("[1]")
        browser("any text")
        #expect(try screen() == Answer(shown: [], past: [], rings: 0))
    }

    @Test("The binary protocol replaces nothing")
    mutating func binary() throws {
        for number in 1...2 as ClosedRange<UInt32> {
            let details = BinaryDetails(command: .framed, identifier: number)
            state.record(
                .accepted, details, token: Self.token,
                payload: Array(#"{"aps":{"alert":{"loc-key":"K"},"sound":"default"}}"#.utf8), at: now)
        }
        let shown = try screen()
        #expect(shown.shown.map(\.body) == ["K", "K"] && shown.past == [] && shown.rings == 2)
    }

    @Test(
        "A browser rings unless a notification is silent, or replaces another one without renotify",
        arguments: [
            ("", 1), (#","silent":true"#, 1), (#","renotify":true"#, 2), (#","renotify":true,"silent":true"#, 1),
        ])
    mutating func browsers(member: String, rings: Int) throws {
        browser(#"{"notification":{"title":"T","body":"1","tag":"message-7","data":{"message_id":7}}}"#)
        browser(#"{"notification":{"title":"T","body":"2","tag":"message-7"\#(member)}}"#)
        let shown = try screen()
        #expect(shown.shown.map(\.body) == ["2"])
        #expect(shown.past == [.init(notification: 1, replacedBy: 2)] && shown.rings == rings)
        browser(#"{"notification":{"title":"T","body":"3"}}"#)
        #expect(try screen().rings == rings + 1)
    }

    @Test("Android: the system replaces by tag, and an app that gets data by tag or message; an update is silent")
    mutating func android() throws {
        let target = InstallationRegistry.target(isInstallationID: false) { [UInt8](repeating: 1, count: $0) }
        _ = try state.installations.install(target, project: "p", at: now)
        let token = SandboxInstallation.token(of: target)
        try android(
            #""notification":{"title":"T","body":"1"},"android":{"notification":{"tag":"message-7","sound":"s"}}"#,
            to: target)
        try android(
            #""notification":{"title":"T","body":"2"},"android":{"notification":{"tag":"message-7"}}"#, to: target)
        try android(#""data":{"title":"D","body":"1","message_id":"8","sound":"s"}"#, to: target)
        try android(#""data":{"title":"D","body":"2","message_id":"8","sound":"s","update":"true"}"#, to: target)
        #expect(
            try screen(of: token)
                == Answer(
                    shown: [
                        .init(notification: 2, title: "T", body: "2", key: "message-7", rings: false),
                        .init(notification: 4, title: "D", body: "2", key: "message-8", messageId: "8", rings: false),
                    ], past: [.init(notification: 1, replacedBy: 2), .init(notification: 3, replacedBy: 4)], rings: 2)
        )
        try android(#""data":{"type":"clear","message_id":"7","tag":"message-7"}"#, to: target)
        try android(#""data":{"type":"clear","message_id":"8"}"#, to: target)
        #expect(try screen(of: token).shown == [])
        // In the foreground, the app gets the notification. Offline, the phone gets nothing yet.
        _ = state.installations.set(id: 1, connection: nil, app: .foreground, at: now)
        try android(#""notification":{"title":"T"}"#, to: target)
        _ = state.installations.set(id: 1, connection: .offline, app: .background, at: now)
        try android(#""notification":{"title":"T"}"#, to: target)
        #expect(try screen(of: token).shown == [])
        _ = state.removeInstallation(id: 1, at: now)
        #expect(try screen(of: token) == Answer(shown: [], past: [], rings: 0))
    }

    @Test("An app that was installed again shows nothing from before")
    mutating func installedAgain() throws {
        apple(#"{"aps":{"alert":"Before"}}"#)
        _ = try state.devices.install(token: Self.token, topic: "t", at: now + 1)
        #expect(try screen().shown == [])
        _ = try state.devices.install(token: Self.token, topic: "t", at: now)
        #expect(try screen().shown.map(\.body) == ["Before"])
        _ = state.devices.remove(token: Self.token, at: now)
        #expect(try screen().shown == [])
    }

    @Test("The lists have the newest 1,000")
    mutating func limit() throws {
        for number in 1...1001 { apple(#"{"aps":{"alert":"\#(number)"}}"#, collapseID: "k\(number)") }
        #expect(try screen().shown.map(\.notification) == Array(2...1001))
        for number in 1...1001 { apple(#"{"aps":{"alert":"\#(number)"}}"#, collapseID: "k\(number)") }
        #expect(try screen().past.map(\.notification) == Array(2...1001))
    }
}

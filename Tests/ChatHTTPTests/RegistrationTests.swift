import ChatDomain
import Foundation
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("Registration without a room")
struct RegistrationTests {
    private func post(_ path: String, _ form: String, to relay: Relay) async throws -> TestResponse {
        try await relay.send(
            .post, path, headers: [.contentType: "application/x-www-form-urlencoded; charset=utf-8"],
            body: Array(form.utf8))
    }

    @Test("The Chinese tutorial's client registers with a token and an appid behind a team id")
    func pushChatService() async throws {
        let relay = Relay(ScriptedStore(register: { .created }))
        let answer = try await post(
            "/push_chat_service.php", "token=\(Sample.token)&appid=98Z3R5XU29.com.51work6.PushChat", to: relay)
        #expect(answer.status == .ok)
        #expect(answer.text == "OK\n")
        #expect(try relay.store.calls == [.register(RegistrationRequest(token: Sample.device, app: AppName("second")))])
    }

    @Test(
        "The Ruby tutorial's client registers a token as Apple prints it, and gets JSON",
        arguments: [
            Sample.token,
            "%3C740f4707%20bebcf74f%209b7c25d4%208e335894%205f6aa01d%20a5ddb387%20462c7eaf%2061bb78ad%3E",
        ])
    func apnsDevices(token: String) async throws {
        let relay = Relay(ScriptedStore(register: { .unchanged }))
        let answer = try await post("/admin/apns_devices.json", "token=\(token)", to: relay)
        #expect(answer.status == .ok)
        #expect(answer.text == #"{"ok":true}"#)
        #expect(answer.headers[.contentType] == "application/json")
        #expect(try relay.store.calls == [.register(RegistrationRequest(token: Sample.device, app: .default))])
    }

    @Test(
        "The error names invalid fields, and nothing is registered",
        arguments: [
            ("", "Missing token"), ("token=", "Invalid token"), ("token=xyz", "Invalid token"),
            ("token=0", "Invalid token"),
            ("token=\(Sample.token)&appid=no.such.app", "Invalid appid"),
        ])
    func refused(form: String, text: String) async throws {
        let relay = Relay(ScriptedStore())
        for path in ["/push_chat_service.php", "/admin/apns_devices.json"] {
            let answer = try await post(path, form, to: relay)
            #expect(answer.status == .badRequest)
            #expect(answer.header("X-Error-Description")?.hasPrefix(text) == true)
        }
        #expect(relay.store.calls.isEmpty)
    }

    @Test("The app's description of itself is stored with the device")
    func says() async throws {
        let relay = Relay(ScriptedStore(register: { .created }))
        let form = "token=\(Sample.token)&app_version=2.1&os_version=iOS+18&device_model=iPhone17%2C1"
        #expect(try await post("/push_chat_service.php", form, to: relay).status == .ok)
        let client = ClientInfo(appVersion: "2.1", osVersion: "iOS 18", deviceModel: "iPhone17,1")
        #expect(
            try relay.store.calls == [
                .register(
                    RegistrationRequest(token: Sample.device, app: .default, edit: DeviceEdit(client: client)))
            ])
        // No log line contains these values.
        let log = relay.log.lines.joined(separator: "\n")
        #expect(log.contains("device registered"))
        for text in ["2.1", "iOS", "iPhone"] { #expect(!log.contains(text), "\(text)") }
    }

    @Test("A custom text is stored with the device; if absent it stays, if empty it is removed")
    func clientInfo() async throws {
        for (field, change) in [
            ("", DeviceEdit.Change<String>.keep), ("&client_info=iPod%0Abadges", .set("iPod\nbadges")),
            ("&client_info=", .remove),
        ] {
            let relay = Relay(ScriptedStore(register: { .created }))
            _ = try await post("/push_chat_service.php", "token=\(Sample.token)\(field)", to: relay)
            #expect(
                try relay.store.calls == [
                    .register(
                        RegistrationRequest(
                            token: Sample.device, app: .default, edit: DeviceEdit(clientInfo: change)))
                ])
        }
        let relay = Relay(ScriptedStore())
        let long = "token=\(Sample.token)&client_info=" + String(repeating: "x", count: 4097)
        #expect(try await post("/push_chat_service.php", long, to: relay).text.hasPrefix("Invalid client_info"))
    }

    @Test("A device can unregister, even twice; another command is an error")
    func unregister() async throws {
        for isKnown in [true, false] {
            let relay = Relay(ScriptedStore(admin: AdminResponses(unregister: { isKnown })))
            let answer = try await post("/admin/apns_devices.json", "token=\(Sample.token)&cmd=unregister", to: relay)
            #expect(answer.text == #"{"ok":true}"#)
            #expect(try relay.store.calls == [.unregister(Sample.device, .default)])
        }
        let relay = Relay(ScriptedStore())
        let answer = try await post("/push_chat_service.php", "token=\(Sample.token)&cmd=delete", to: relay)
        #expect(answer.status == .badRequest)
        #expect(relay.store.calls.isEmpty)
    }

    @Test(
        "A browser is named by its subscription, never by its token",
        arguments: [
            ("/api.php", "cmd=join&udid=\(Sample.udid)&name=A&code=c"), ("/push_chat_service.php", "cmd=register"),
            ("/push_chat_service.php", "cmd=unregister"), ("/admin/apns_devices.json", "cmd=register"),
            ("/admin/apns_devices.json", "cmd=unregister"),
        ])
    func browsers(path: String, form: String) async throws {
        let answers = AdminResponses(unregister: { true })
        var relay = Relay(ScriptedStore(join: { true }, register: { .created }, admin: answers))
        relay.browsers = OneSubscription()
        let refused = try await post(path, "\(form)&token=\(Sample.token)&appid=webpush", to: relay)
        #expect(refused.status == .badRequest)
        #expect(refused.header("X-Error-Description") == ChatError.browserNeedsSubscription.message)
        #expect(relay.store.calls.isEmpty)
        let text = OneSubscription.text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
        #expect(try await post(path, "\(form)&subscription=\(text)", to: relay).status == .ok)
        let known = try OneSubscription.known()
        #expect(relay.store.calls.first == (form.contains("unregister") ? .unregisterBrowser(known) : .keep(known)))
    }

    @Test("Only POST is accepted, and a store that cannot write gives a 503")
    func others() async throws {
        let busy = Relay(ScriptedStore(register: { () throws(ChatError) in throw ChatError(.unavailable, "full") }))
        #expect(try await busy.send(.get, "/push_chat_service.php").status == .methodNotAllowed)
        #expect(
            try await post("/push_chat_service.php", "token=\(Sample.token)", to: busy).status == .serviceUnavailable)
    }
}

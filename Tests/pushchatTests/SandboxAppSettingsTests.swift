import Foundation
import Logging
import PushSandbox
import TestSupport
import Testing

@testable import pushchat

@Suite("The settings of a relay that uses a sandbox")
struct SandboxAppSettingsTests {
    @Test("The app for Android names the listener of FCM, and a service account that only the user can read")
    func android() async throws {
        let folder = try TemporaryFolder()
        let addresses = SandboxAddresses(
            host: "127.0.0.1",
            ports: [.binary: 1, .feedback: 2, .http2: 3, .channels: 4, .control: 5, .webPush: 6, .fcm: 7, .proxy: 8])
        let credentials = try await SandboxConfiguration(directory: folder.path + "/sandbox")
            .credentials(logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        try await credentials.prepareServiceAccount(fcm: addresses[.fcm])
        let settings = SandboxAppSettings(gateway: .http2, addresses: addresses, credentials: credentials)
        let android = Dictionary(
            uniqueKeysWithValues: try #require(settings.others.first).settings.map { ($0.name, $0.value) })
        let file = folder.path + "/sandbox/service-account.json"
        #expect(
            android == [
                "gateway": "fcm", "service_account": file, "host": "127.0.0.1", "port": "7",
                "trust": folder.path + "/sandbox/ca.pem", "answer_timeout": "5s",
            ])
        let attributes = try FileManager.default.attributesOfItem(atPath: file)
        #expect(attributes[.posixPermissions] as? Int == 0o600)
        func content() throws -> String { try String(contentsOfFile: file, encoding: .utf8) }
        let written = try content()
        #expect(written.contains(#""token_uri" : "https://localhost:7/token""#))
        // A running sandbox may have written the file. It stays.
        try await credentials.prepareServiceAccount(fcm: SandboxAddress(host: "127.0.0.1", port: 9))
        #expect(try content() == written)
        #expect(settings.others.map(\.app) == ["android"])
        func keys(_ gateway: AppConfiguration.Gateway) -> String {
            let settings = SandboxAppSettings(gateway: gateway, addresses: addresses, credentials: credentials)
            return settings.yaml.split(separator: "\n").drop { $0 != "apps:" }.dropFirst()
                .map { $0.split(separator: ":")[0].trimmingPrefix(while: \.isWhitespace) }.joined(separator: " ")
        }
        let phone = "gateway trust host port service_account answer_timeout"
        let http2 = "gateway topic trust host port channels_host channels_port key key_id team_id answer_timeout"
        #expect(keys(.http2) == "android \(phone) default \(http2)")
        #expect(
            keys(.binary) == "android \(phone) default gateway topic trust host port feedback_host feedback_port "
                + "feedback_interval certificate settle")
        #expect(keys(.fcm) == "default \(phone)")
    }
}

import Foundation
import Testing

extension Programs {
    @Suite("The admin API and its description")
    struct DescriptionTests {
        @Test(
            "A schema-driven fuzzer finds no server error, and no response that the document does not describe")
        func schemathesis() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(
                folder, configuration: try await sandbox.relayConfiguration(),
                ["--set", "admin.token=the-token-of-the-fuzzer"])
            // Data to find: three devices with a user, tags and history, and a pending notification.
            for number in 1...3 {
                let (status, answer) = try await relay.admin(
                    "PUT", "/v1/devices/\(Name.token(number))",
                    #"{"user_reference":"user\#(number)","client_info":"test","tags":["news"]}"#, headers: Self.token)
                #expect(status == 201, "\(answer)")
            }
            for more in ["", #","not_before":"\#(Self.tomorrow)""#] {
                let (status, answer) = try await relay.admin(
                    "POST", "/v1/notifications", #"{"to":{"all":true},"alert":"Hello"\#(more)}"#, headers: Self.token)
                #expect(status == 202, "\(answer)")
            }
            let (_, made) = try await relay.admin(
                "POST", "/v1/tokens", #"{"name":"fuzzer","scopes":["post"],"room":"room"}"#, headers: Self.token)
            let token = try #require(made.firstMatch(of: /"token":"([^"]+)"/)?.1)
            let run = try await ClientProgram.run(
                [
                    Python.program("schemathesis"), "run", "http://127.0.0.1:\(relay.port)/v1/openapi.json", "--header",
                    "Authorization: Bearer the-token-of-the-fuzzer", "--header", "X-Gotify-Key: \(token)", "--checks",
                    "all",
                    // A schema cannot express everything: limits in bytes of UTF-8, the configured apps, fields that
                    // require each other. Wrong tokens for each call would exceed the limit that then rejects the right
                    // token as well (TokenAccessTests covers them). ntfy's calls without a token get 403, not 401. A
                    // notification that was cancelled with DELETE keeps its record.
                    "--exclude-checks",
                    "positive_data_acceptance,ignored_auth,missing_required_header,use_after_free", "--max-examples",
                    "\(Stress.scaled(150))", "--seed",
                    "20261121",
                    "--generation-database", "none", "--request-timeout", "60", "--no-color",
                ], within: 500)
            #expect(run.status == 0, "\(run.text.suffix(6000)) \(run.errors.suffix(1000))")
            print("schemathesis: " + (run.text.split(separator: "\n").last.map(String.init) ?? ""))
            #expect(relay.process.isRunning)
            let (status, _) = try await relay.admin("GET", "/v1/stats", headers: Self.token)
            #expect(status == 200)
        }

        private static let token = [("Authorization", "Bearer the-token-of-the-fuzzer")]
        private static var tomorrow: String {
            ISO8601DateFormatter().string(from: Date(timeIntervalSinceNow: 86_400))
        }
    }
}

import Foundation
import Testing

extension EndToEnd {
    @Suite("Sessions")
    struct SessionTests {
        /// Returns a session token as the operator's own system issues it, signed by openssl: HS256 with a secret,
        /// ES256 with a key file.
        static func token(_ claims: String, algorithm: String, with key: String) async throws -> String {
            let script = """
                set -e
                base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
                text=$(printf '{"alg":"%s","typ":"JWT"}' "$1" | base64url).$(printf %s "$3" | base64url)
                if [ "$1" = HS256 ]; then
                    signature=$(printf %s "$text" | openssl dgst -sha256 -mac HMAC -macopt "key:$2" -binary | base64url)
                else
                    # openssl writes DER; a token has the two numbers, 32 bytes each.
                    signature=$(printf %s "$text" | openssl dgst -sha256 -sign "$2" | openssl asn1parse -inform DER \\
                        | sed -n 's/.*INTEGER *://p' | while read -r n; do printf '%64s' "$n" | tr ' ' 0; done \\
                        | python3 -c 'import sys; sys.stdout.buffer.write(bytes.fromhex(sys.stdin.read()))' | base64url)
                fi
                printf %s "$text.$signature"
                """
            return try await tool("bash", ["-c", script, "-", algorithm, key, claims])
        }

        static func claims(_ user: String, audience: String = "pushchat", lives seconds: Int = 600) -> String {
            #"{"sub":"\#(user)","aud":"\#(audience)","exp":\#(Int(Date().timeIntervalSince1970) + seconds)}"#
        }

        @Test(
            "A client without a valid token is rejected; one with a valid token registers devices as its user",
            arguments: ["HS256", "ES256"])
        func sessions(algorithm: String) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            var key = "a-shared-secret-of-at-least-32-characters"
            var settings = "session:\n  audience: pushchat\n"
            if algorithm == "HS256" {
                settings += "  secret: \(key)\n"
            } else {
                key = folder.file("private.pem").path
                try await tool("openssl", ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key])
                try await tool("openssl", ["ec", "-in", key, "-pubout", "-out", folder.file("public.pem").path])
                settings += "  key: public.pem\n"
            }
            let configuration = try await sandbox.relayConfiguration(
                gateway: "http2", "registration: session\n" + settings)
            let relay = try await RelayProcess.start(folder, configuration: configuration)
            func form(_ path: String, _ fields: String, _ token: String?) async throws -> (Int, String) {
                try await HTTP.post(
                    "http://127.0.0.1:\(relay.port)\(path)", body: Data(fields.utf8),
                    headers: [("Content-Type", "application/x-www-form-urlencoded")]
                        + (token.map { [("Authorization", "Bearer \($0)")] } ?? []))
            }
            let good = try await Self.token(Self.claims("alice"), algorithm: algorithm, with: key)
            let calls = [
                ("/push_chat_service.php", "token=\(Name.token(1))"),
                ("/admin/apns_devices.json", "token=\(Name.token(2))"),
                ("/api.php", "cmd=join&udid=\(Name.udid(1))&token=\(Name.token(3))&name=Alice&code=c"),
                ("/api.php", "cmd=update&udid=\(Name.udid(1))&token=\(Name.token(4))"),
                ("/api.php", "cmd=message&udid=\(Name.udid(1))&text=Hello"),
                ("/api.php", "cmd=messages&udid=\(Name.udid(1))"), ("/events/ticket", "udid=\(Name.udid(1))"),
            ]
            let bad = [
                (nil, "token"), ("nonsense", "JSON Web Token"),
                (try await Self.token(Self.claims("alice", lives: -600), algorithm: algorithm, with: key), "expired"),
                (
                    try await Self.token(Self.claims("alice", audience: "shop"), algorithm: algorithm, with: key),
                    "audience"
                ),
                (String(good.dropLast(10)) + "AAAAAAAAAA", "signature"),
            ]
            for (path, fields) in calls {
                for (token, reason) in bad {
                    let (status, text) = try await form(path, fields, token)
                    #expect(status == 401 && text.contains(reason), "\(path): \(status) \(text)")
                }
            }
            #expect(try relay.count("SELECT (SELECT count(*) FROM devices) + (SELECT count(*) FROM active_users)") == 0)
            for (path, fields) in calls {
                let (status, text) = try await form(path, fields, good)
                #expect(status == 200, "\(path): \(text)")
            }
            #expect(try relay.count("SELECT count(*) FROM devices WHERE user_reference = 'alice'") == 4)

            // Her user name reaches all her devices.
            let (status, answer) = try await relay.admin(
                "POST", "/v1/notifications", #"{"to":{"users":["alice"]},"alert":"hi"}"#)
            #expect(status == 202 && answer.contains(#""devices":4"#), "\(answer)")
            try await relay.drained()
            #expect(Set(try await sandbox.notifications().map(\.token)) == Set((1...4).map(Name.token)))
        }
    }
}

import Testing

@testable import PushSandbox

@Suite("The proxy's routes")
struct ProxyRoutesTests {
    private static func addresses(host: String = "127.0.0.1") -> SandboxAddresses {
        SandboxAddresses(
            host: host,
            ports: [.binary: 1, .feedback: 2, .http2: 3, .channels: 4, .control: 5, .webPush: 6, .fcm: 7, .proxy: 8])
    }

    private static func route(_ target: String, host: String = "127.0.0.1") throws -> SandboxAddress {
        try ProxyRoutes(addresses(host: host)).address(of: ProxyTarget(target))
    }

    @Test(
        "Each host leads to the listener that plays it",
        arguments: [
            ("api.push.apple.com:443", 3), ("api.push.apple.com:2197", 3), ("api.sandbox.push.apple.com:443", 3),
            ("api.development.push.apple.com:2197", 3), ("api-broadcast.push.apple.com:443", 3),
            ("gateway.push.apple.com:2195", 1), ("gateway.sandbox.push.apple.com:2195", 1),
            ("feedback.push.apple.com:2196", 2), ("api-manage-broadcast.push.apple.com:2196", 4),
            ("api-manage-broadcast.sandbox.push.apple.com:2195", 4), ("fcm.googleapis.com:443", 7),
            ("FCM.GoogleAPIs.com.:443", 7), ("oauth2.googleapis.com:443", 7),
            ("updates.push.services.mozilla.com:443", 6), ("web.push.apple.com:443", 6),
            ("wns2-by3p.notify.windows.com:443", 6),
        ])
    func hosts(target: String, port: Int) throws {
        #expect(try Self.route(target).port == port)
    }

    @Test("The sandbox's own ports with TLS are reached by the names of this machine", arguments: [1, 2, 3, 4, 6, 7])
    func own(port: Int) throws {
        for host in ["localhost", "127.0.0.1", "[::1]", "192.0.2.7"] {
            #expect(try Self.route("\(host):\(port)", host: "192.0.2.7") == .init(host: "192.0.2.7", port: port))
        }
    }

    @Test(
        "Every other host and port is refused with a text that names the permitted ones",
        arguments: [
            "example.org:443", "fcm.googleapis.com:80", "api.push.apple.com:22", "gateway.push.apple.com:443",
            "googleapis.com:443", "x.fcm.googleapis.com:443", "fcm.googleapis.com.example.org:443",
            "notify.windows.com:443", ".notify.windows.com:443", "a.b.notify.windows.com:443", "localhost:22",
            "localhost:5", "localhost:8", "192.0.2.1:7", "[::1]:443", "169.254.169.254:80",
        ])
    func refused(target: String) throws {
        #expect {
            _ = try Self.route(target)
        } throws: { error in
            guard let refusal = error as? ProxyRefusal else { return false }
            return refusal.status == 403 && refusal.message.contains(target)
                && refusal.message.contains("api.push.apple.com:443/2197, ")
                && refusal.message.contains("fcm.googleapis.com:443, ")
                && refusal.message.hasSuffix("localhost:1/2/3/4/6/7.")
        }
    }

    @Test("A listener on every address is reached by loopback", arguments: [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
    func wildcard(host: String, expected: String) throws {
        #expect(try Self.route("fcm.googleapis.com:443", host: host).host == expected)
        #expect(try Self.route("localhost:7", host: host).host == expected)
    }
}

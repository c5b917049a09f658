import NIOCore
import Testing

@testable import PushSandbox

@Suite("The head of a request to the proxy")
struct ConnectHeadTests {
    private static let head = "CONNECT FCM.googleapis.com.:443 HTTP/1.1\r\nHost: fcm.googleapis.com:443\r\nA: \r\n\r\n"

    private static func read(_ text: String) throws(ProxyRefusal) -> ProxyTarget? {
        var head = ConnectHead()
        var buffer = ByteBuffer(string: text)
        return try head.read(&buffer)
    }

    @Test("A head in any two parts gives the target, and the tunnel's bytes stay in the buffer")
    func parts() throws {
        let bytes = Array((Self.head + "\u{16}\u{3}").utf8)
        for split in 0...Self.head.utf8.count {
            var head = ConnectHead()
            var first = ByteBuffer(bytes: bytes[..<split])
            var target = try head.read(&first)
            #expect((target == nil) == (split < Self.head.utf8.count) && first.readableBytes == 0)
            var second = ByteBuffer(bytes: bytes[split...])
            if target == nil { target = try head.read(&second) }
            #expect(target?.description == "fcm.googleapis.com:443")
            #expect(Array(second.readableBytesView) == [0x16, 3])
        }
    }

    @Test(
        "A malformed head gets 400",
        arguments: [
            "CONNECT fcm.googleapis.com:443\r\n", "CONNECT  fcm.googleapis.com:443 HTTP/1.1\r\n",
            "CONNECT fcm.googleapis.com:443 HTTP/2.0\r\n", "CONNECT fcm.googleapis.com HTTP/1.1\r\n",
            "CONNECT fcm.googleapis.com: HTTP/1.1\r\n", "CONNECT fcm.googleapis.com:0 HTTP/1.1\r\n",
            "CONNECT fcm.googleapis.com:65536 HTTP/1.1\r\n", "CONNECT fcm.googleapis.com:+443 HTTP/1.1\r\n",
            "CONNECT :443 HTTP/1.1\r\n", "CONNECT a@fcm.googleapis.com:443 HTTP/1.1\r\n",
            "CONNECT http://fcm.googleapis.com:443 HTTP/1.1\r\n", "CONNECT fcm.googleapis.com:443 HTTP/1.1\n",
            "CONNECT ::1:443 HTTP/1.1\r\n", "CONNECT [fcm]:443 HTTP/1.1\r\n",
            "CONNECT fcm.googleapis.com:443 HTTP/1.1\r\nno colon\r\n",
            "CONNECT fcm.googleapis.com:443 HTTP/1.1\r\n folded: a\r\n",
            "CONNECT fcm.googleapis.com:443 HTTP/1.1\r\nA\r: b\r\n", "\r\n", "\u{16}\u{3}\u{1}", "CON\u{7F}",
        ])
    func malformed(text: String) throws {
        #expect { _ = try Self.read(text) } throws: { ($0 as? ProxyRefusal)?.status == 400 }
    }

    @Test("Other methods get 405", arguments: ["GET http://fcm.googleapis.com/ HTTP/1.1", "POST /token HTTP/1.0"])
    func methods(line: String) throws {
        #expect {
            _ = try Self.read(line + "\r\n")
        } throws: { error in
            let refusal = error as? ProxyRefusal
            return refusal?.status == 405 && refusal?.response.contains("\r\nAllow: CONNECT\r\n") == true
        }
    }

    @Test("A head of the maximum size is read, and a larger one refused")
    func size() throws {
        let start = "CONNECT [::1]:443 HTTP/1.1\r\nA: "
        func head(_ size: Int) -> String {
            start + String(repeating: "a", count: size - start.utf8.count - 4) + "\r\n\r\n"
        }
        #expect(try Self.read(head(ConnectHead.maxSize))?.description == "[::1]:443")
        #expect { _ = try Self.read(head(ConnectHead.maxSize + 1)) } throws: { $0 as? ProxyRefusal == .tooLarge }
    }
}

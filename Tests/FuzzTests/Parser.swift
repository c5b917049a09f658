import ChatDomain
import Crypto
import Foundation
import NIOCore

@testable import APNSGateway
@testable import APNSWire
@testable import ChatHTTP
@testable import ChatSession
@testable import HTTP2Wire
@testable import WebPushGateway
@testable import WebPushWire
@testable import pushchat

/// Ends the process with the message, also in an optimised build.
private func require(_ holds: Bool, _ message: @autoclosure () -> String) {
    if !holds { fatalError(message()) }
}

/// What reads bytes that strangers send, or that an operator or another program has written.
enum Parser: String, CaseIterable {
    case form, multipart, json, binary, feedback, http2, providerToken, sessionToken, configuration, subscription,
        webPush

    /// Valid inputs, to start from.
    var seeds: [[UInt8]] {
        switch self {
        case .form:
            [
                "cmd=message&udid=0123456789abcdef0123456789abcdef01234567&text=Hello+%F0%9F%91%8B",
                "cmd=join&udid=1&token=0&name=n%C3%A4me&code=room&appid=com.example&os_version=6.0",
            ].map { Array($0.utf8) }
        case .multipart:
            [
                "--b\r\nContent-Disposition: form-data; name=\"cmd\"\r\n\r\nmessage\r\n--b--\r\n",
                "x\n--b\nContent-Disposition: form-data; name=text; filename=\"a\"\nContent-Type: text/plain; charset=latin1\n\nv\n--b--",
                "multipart/form-data; boundary=\"b\"; charset=utf-8",
            ].map { Array($0.utf8) }
        case .json:
            [
                #"{"aps":{"alert":{"title":"t","body":"\u00e4\ud83d\ude00"},"badge":1,"sound":"default"},"x":[1,-2.5e3,null,true]}"#,
                #"{"aps":{"content-available":1}}"#, #" [ "a" , {} ] "#,
            ].map { Array($0.utf8) }
        case .binary:
            [
                [7, 0, 0, 2, 0xAA, 0xBB, 0, 2, 0x7B, 0x7D],
                [7, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 2, 0xAA, 0xBB, 0, 2, 0x7B, 0x7D],
                [
                    3, 2, 0, 0, 0, 29, 1, 0, 2, 0xAA, 0xBB, 2, 0, 2, 0x7B, 0x7D, 3, 0, 4, 0, 0, 0, 1, 4, 0, 4, 0, 0, 0,
                    0, 5,
                    0, 1, 10,
                ],
            ]
        case .feedback: [[0x50, 0, 0, 0, 0, 2, 0xAA, 0xBB, 0x50, 0, 0, 1, 0, 1, 0xCC], [8, 8, 0, 0, 0, 1]]
        case .http2:
            [
                [
                    0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100, 0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88, 0, 0, 2, 0, 1, 0, 0,
                    0, 1,
                    0x7B, 0x7D,
                ],
                [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
                [0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0],
                [
                    0, 0, 1, 1, 0, 0, 0, 0, 1, 0x88, 0, 0, 12, 9, 4, 0, 0, 0, 1, 0x40, 4, 0x61, 0x70, 0x6E, 0x73, 5, 1,
                    2, 3, 4,
                    5,
                ],
            ]
        case .providerToken:
            ["eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQzEyM0RFRkcifQ.eyJpc3MiOiJERUYxMjNHSElKIiwiaWF0IjoxNzAwMDAwMDAwfQ.AAAA"]
                .map { Array($0.utf8) }
        case .sessionToken:
            [
                "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbGljZSIsImV4cCI6NDEwMjQ0NDgwMH0.AAAA",
                "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.",
            ].map { Array($0.utf8) }
        case .subscription:
            [
                #"{"endpoint":"https://updates.push.services.mozilla.com/wpush/v2/gAAAA","expirationTime":null,"keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}"#,
                "https://push.test:8443/a?b#c", "https://[::ffff:127.0.0.1]/", "https://0x7f.1/",
            ].map { Array($0.utf8) }
        case .webPush:
            [
                "vapid t=eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA, k=BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs"
            ].map { Array($0.utf8) }
        case .configuration:
            [
                """
                environment: development
                http: {host: 127.0.0.1, port: 44447, trusted_proxies: [10.0.0.0/8, "::1"]}
                database: {path: pushchat.db}
                push: {sound: default, text_limit: 190}
                messages: {retention: 30d}
                apps:
                  default: {topic: com.example.App, gateway: binary, connections: 2, settle: 500ms}
                development:
                  http: {port: 1}
                """
            ].map { Array($0.utf8) }
        }
    }

    /// What takes one input. Nothing that it reports counts, only what it does.
    func function() async throws -> ([UInt8]) -> Void {
        switch self {
        case .form: Self.form
        case .multipart: Self.multipart
        case .json: Self.json
        case .binary: Self.binary
        case .feedback: Self.feedback
        case .http2: Self.http2
        case .providerToken: Self.providerToken
        case .sessionToken: try await Self.sessionToken()
        case .configuration: Self.configuration()
        case .subscription: try Self.subscription()
        case .webPush: Self.webPush()
        }
    }

    private static func readFields(_ form: FormFields) {
        for field in FormField.allCases where form.has(field) { _ = try? form.text(field) }
    }

    private static let charsets = [Charset.utf8, .latin1, .windows1252]

    private static func form(_ bytes: [UInt8]) {
        for charset in charsets {
            if let form = try? URLEncodedForm.parse(bytes, charset: charset) { readFields(form) }
        }
    }

    private static func multipart(_ bytes: [UInt8]) {
        _ = try? FormType(parsing: String(decoding: bytes, as: UTF8.self))
        if let form = try? MultipartForm.parse(bytes, boundary: [UInt8(ascii: "b")], charset: .utf8) {
            readFields(form)
        }
    }

    /// The scanner of the queue takes what the parser takes, if it is an object, and else only what is nested deeper, or has a member twice.
    private static func json(_ bytes: [UInt8]) {
        let isScanned = bytes.withUnsafeBytes { PayloadScan($0) } != nil
        do {
            let value = try JSONValue(parsing: bytes)
            require(isScanned == (value.object != nil), "the scanner and the parser differ")
            let again = try JSONValue(parsing: Array("\(value)".utf8))
            require(again == value, "what is written is read differently")
        } catch {
            require(
                !isScanned || ["nested deeper", "stands twice"].contains { "\(error)".contains($0) },
                "the scanner takes what is no JSON: \(error)")
        }
    }

    /// The first byte says how long the pieces are. What comes in pieces is read like the whole.
    private static func binary(_ bytes: [UInt8]) {
        func read(piece: Int) -> (notifications: [BinaryNotification], refused: BinaryNotificationParser.Malformed?) {
            var parser = BinaryNotificationParser()
            var notifications: [BinaryNotification] = []
            var rest = bytes.dropFirst()
            repeat {
                var buffer = ByteBuffer(bytes: rest.prefix(piece))
                rest = rest.dropFirst(piece)
                parser.append(&buffer)
                do throws(BinaryNotificationParser.Malformed) {
                    while let notification = try parser.next() { notifications.append(notification) }
                } catch {
                    return (notifications, error)
                }
            } while !rest.isEmpty
            return (notifications, nil)
        }
        let whole = read(piece: .max)
        let pieces = read(piece: Int(bytes.first ?? 0) + 1)
        require(
            whole.notifications == pieces.notifications && whole.refused == pieces.refused,
            "pieces are read differently")
    }

    private static func feedback(_ bytes: [UInt8]) {
        var buffer = ByteBuffer(bytes: bytes)
        var written = ByteBuffer()
        while let tuple = FeedbackTuple.read(from: &buffer) { tuple.write(to: &written) }
        require(
            written.readableBytesView.elementsEqual(bytes.prefix(written.readableBytes)), "written differently")
        var answer = ByteBuffer(bytes: bytes)
        _ = try? BinaryErrorResponse.read(from: &answer)
    }

    /// What a gateway may answer to requests on two streams.
    private static func http2(_ bytes: [UInt8]) {
        var session = HTTP2Session()
        do throws(HTTP2Failure) {
            for stream in [1, 3] {
                try session.open(stream, headers: [":method": "POST", ":path": "/3/device/00"], body: [0x7B, 0x7D])
            }
            session.feed(ByteBuffer(bytes: bytes), now: .uptimeNanoseconds(1))
            while try session.next() != nil { _ = session.takeOutput() }
        } catch {
            session.goAway(error.code)
        }
        _ = session.takeOutput()
    }

    private static let publicKey = P256.Signing.PrivateKey().publicKey

    private static func providerToken(_ bytes: [UInt8]) {
        guard let token = try? ProviderToken(parsing: String(decoding: bytes, as: UTF8.self)) else { return }
        require(!token.isSigned(by: publicKey), "a forged token is taken")
    }

    private static func sessionToken() async throws -> ([UInt8]) -> Void {
        let key = Array(P256.Signing.PrivateKey().rawRepresentation)
        let verifier = try await TokenVerifier([.secret(key)])
        return { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            let isDone = DispatchSemaphore(value: 0)
            Task.detached {
                if (try? await verifier.user(of: text)) != nil { fatalError("a forged token is taken") }
                isDone.signal()
            }
            isDone.wait()
        }
    }

    /// What is taken as an endpoint leads to a host that is allowed.
    private static func subscription() throws -> ([UInt8]) -> Void {
        let rules = try EndpointRules()
        let reader = WebPushSubscriptions(key: VAPIDKey(), rules: rules)
        return { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            if let subscription = try? reader.subscription(text) {
                require(subscription.publicKey.count == 65 && subscription.secret.count == 16, "keys of a wrong size")
                require(subscription.endpoint.utf8.count <= 1000, "an endpoint that is too long")
            }
            if let endpoint = try? PushEndpoint(text) { _ = try? rules.check(endpoint) }
        }
    }

    /// What a push service reads: who sends, and the encrypted body.
    private static func webPush() -> ([UInt8]) -> Void {
        let key = P256.KeyAgreement.PrivateKey()
        let secret = MessageEncryption.randomSalt()
        return { bytes in
            _ = try? VAPIDAuthorization(header: String(decoding: bytes, as: UTF8.self))
            require((try? MessageEncryption.decrypt(bytes, key: key, secret: secret)) == nil, "it was not encrypted")
        }
    }

    private static func configuration() -> ([UInt8]) -> Void {
        // In memory where there is such a file system.
        let folder = FileManager.default.isWritableFile(atPath: "/dev/shm") ? "/dev/shm" : NSTemporaryDirectory()
        let file = "\(folder)/pushchat-fuzz-\(getpid()).yaml"
        return { bytes in
            _ = FileManager.default.createFile(atPath: file, contents: Data(bytes))
            var sources = ConfigurationSources(file: file)
            sources.variables = [:]
            _ = try? Configuration.load(sources)
        }
    }
}

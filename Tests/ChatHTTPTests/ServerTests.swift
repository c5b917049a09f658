import APNSGateway
import ChatDomain
import HTTPTypes
import NIOCore
import NIOEmbedded
import NIOHTTPTypes
import NIOSSL
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("Connections", .timeLimit(.minutes(1)))
struct ServerTests {
    @Test("A connection stays open for the next request; pipelined requests get their responses in order")
    func keepAlive() async throws {
        let relay = Relay(ScriptedStore(leave: { true }, post: Sample.receipt))
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                for _ in 0..<3 {
                    try await connection.write(post(Sample.leave))
                    #expect(try await connection.answer().body == "OK\n")
                }
                try await connection.write(post("cmd=leave") + post(Sample.message) + post("cmd=x"))
                #expect(try await connection.answer().body == "Missing udid\n")
                #expect(try await connection.answer().body == "OK\n")
                #expect(try await connection.answer().status == 400)
                try await connection.write(
                    post(
                        Sample.leave, headers: ["Content-Type: application/x-www-form-urlencoded", "Connection: close"])
                )
                #expect(try await connection.answer().status == 200)
                try await connection.closed()
            }
        }
    }

    @Test(
        "Bytes that are not HTTP get a 400, and the connection is closed",
        arguments: ["HELO\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n"])
    func notHTTP(bytes: String) async throws {
        try await Relay().listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(bytes)
                #expect(try await connection.answer().status == 400)
                try await connection.closed()
            }
        }
    }

    @Test(
        "A request to upgrade the protocol gets an ordinary response, nothing after it is read, and the connection closes",
        arguments: [
            "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        ])
    func upgrade(request: String) async throws {
        try await Relay().listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(request)
                let answer = try await connection.answer()
                #expect(
                    answer.status == (request.hasPrefix("GET") ? 200 : 405) || answer.status == 400
                        || answer.status == 404)
                #expect(answer.headers["upgrade"] == nil)
                try await connection.closed()
            }
        }
    }

    @Test("The size of headers is limited")
    func headers() async throws {
        try await Relay().listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(
                    "GET /healthz HTTP/1.1\r\nX: \(String(repeating: "x", count: 40_000))\r\n\r\n")
                // The server does not read the rest, so a reset may lose the response.
                let answer = try? await connection.answer()
                #expect(answer?.status ?? 400 == 400)
                try await connection.closed()
            }
        }
    }

    @Test(
        "The client's address is stored, from a trusted proxy's header if there is one",
        arguments: [true, false])
    func address(isTrusted: Bool) async throws {
        let relay = Relay(
            ScriptedStore(post: Sample.receipt),
            settings: ChatHTTPSettings(
                trustedProxies: [AddressRange(isTrusted ? "127.0.0.0/8" : "10.0.0.1")].compactMap(\.self)))
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(
                    post(
                        Sample.message,
                        headers: [
                            "Content-Type: application/x-www-form-urlencoded", "X-Forwarded-For: 1.1.1.1, 2001:db8::7",
                        ]))
                #expect(try await connection.answer().status == 200)
            }
        }
        guard case .post(let request) = relay.store.calls.first else {
            Issue.record("Unexpected calls of the store: \(relay.store.calls)")
            return
        }
        #expect(request.client.address == (isTrusted ? "2001:db8::7" : "127.0.0.1"))
    }

    @Test(
        "An address above its limit gets a 429 with Retry-After before its body is read, until the time has passed"
    )
    func addressRate() async throws {
        var relay = Relay(
            ScriptedStore(leave: { true }), settings: ChatHTTPSettings(addressRate: RateLimit(perSecond: 1, burst: 2)))
        let clock = TestClock()
        relay.clock = clock
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                for _ in 0..<2 {
                    try await connection.write(post(Sample.leave))
                    #expect(try await connection.answer().status == 200)
                }
                try await connection.write(post("cmd=nonsense"))
                let answer = try await connection.answer()
                #expect(answer.status == 429)
                #expect(answer.headers["retry-after"] == "1")
                #expect(answer.body.contains("this address"))
                clock.advance(by: .seconds(1))
                try await connection.write(post(Sample.leave))
                #expect(try await connection.answer().status == 200)
                try await connection.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                #expect(try await connection.answer().status == 200)
            }
        }
    }

    @Test("On shutdown a request in progress gets its response, and idle connections close")
    func shutdown() async throws {
        let (begun, begin) = AsyncStream.makeStream(of: Void.self)
        let (release, go) = AsyncStream.makeStream(of: Void.self)
        let relay = Relay(
            ScriptedStore(leave: {
                begin.yield()
                for await _ in release { break }
                return true
            }))
        try await withThrowingTaskGroup(of: Void.self) { group in
            let (ports, port) = AsyncStream.makeStream(of: Int.self)
            let (opened, open) = AsyncStream.makeStream(of: Void.self)
            group.addTask {
                try await relay.listening { listening in
                    port.yield(listening)
                    // Both connections are open. One has a request that waits for the store.
                    for await _ in begun { break }
                    for await _ in opened { break }
                }
                // The server has stopped.
                port.finish()
            }
            let found = try #require(await ports.first { _ in true })
            group.addTask {
                try await RawConnection.open(port: found) { busy in
                    try await busy.write(post(Sample.leave))
                    #expect(try await busy.answer().body == "OK\n")
                    try await busy.closed()
                }
            }
            group.addTask {
                try await RawConnection.open(port: found) { idle in
                    try await idle.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    #expect(try await idle.answer().status == 200)
                    open.yield()
                    // The request in progress may end only now: the idle connection must close without waiting for it.
                    try await idle.closed()
                    go.yield()
                }
            }
            try await group.waitForAll()
        }
        #expect(relay.store.calls.count == 1)
    }

    @Test(
        "A connection closes after the response if its client expects that, and otherwise stays open",
        arguments: [
            ("1.0", "", true), ("1.0", "Connection: keep-alive\r\n", false), ("1.0", "Connection: close\r\n", true),
            ("1.1", "", false), ("1.1", "Connection: Close\r\n", true), ("1.1", "Connection: x, close\r\n", true),
        ])
    func versions(version: String, header: String, isClosed: Bool) async throws {
        try await Relay().listening { port in
            try await RawConnection.open(port: port) { connection in
                let request = "GET /healthz HTTP/\(version)\r\nHost: localhost\r\n\(header)\r\n"
                try await connection.write(request)
                #expect(try await connection.answer().status == 200)
                if isClosed { return try await connection.closed() }
                try await connection.write(request)
                #expect(try await connection.answer().status == 200)
            }
        }
    }

    @Test(
        "A request without exactly one Host is refused and its connection closed; HTTP/1.0 need not have one",
        arguments: [
            ("1.1", "", 400), ("1.1", "Host: a\r\nHost: a\r\n", 400), ("1.1", "host: a\r\nHOST: b\r\n", 400),
            ("1.0", "Host: a\r\nHost: b\r\n", 400), ("1.0", "", 200), ("1.1", "Host:\r\n", 200),
        ])
    func hosts(version: String, headers: String, status: Int) async throws {
        try await Relay().listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write("GET /healthz HTTP/\(version)\r\n\(headers)\r\n")
                let answer = try await connection.answer()
                #expect(answer.status == status)
                if status == 400 { #expect(answer.headers["x-error-description"]?.hasPrefix("Host: ") == true) }
                if status == 400 || version == "1.0" { try await connection.closed() }
            }
        }
    }

    @Test("The error names an address that is in use and its settings")
    func taken() async throws {
        try await Relay().listening { port in
            let second = Relay().server(port: port)
            let error = await #expect(throws: ChatServer.CannotListen.self) { try await second.run() }
            #expect(
                error?.description.hasPrefix("cannot listen on 127.0.0.1:\(port): another program uses this port")
                    == true)
        }
    }
}

@Suite("TLS", .timeLimit(.minutes(1)))
struct TLSTests {
    private func client(trusting files: TestCertificate) throws -> TLSConfiguration {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.trustRoots = .certificates(try NIOSSLCertificate.fromPEMFile(files.certificate))
        configuration.certificateVerification = .noHostnameVerification
        return configuration
    }

    @Test("With a certificate the server speaks TLS, and uses a renewed one after its reload")
    func reload() async throws {
        let files = try TestCertificate()
        var relay = Relay(ScriptedStore(leave: { true }))
        let certificate = try ServerCertificate(certificate: files.certificate, key: files.key)
        relay.certificate = certificate
        let before = try client(trusting: files)
        try files.renew()
        let after = try client(trusting: files)
        try await relay.listening { port in
            #expect(try await leaves(port, before))
            #expect(try await !leaves(port, after))
            try certificate.reload()
            #expect(try await leaves(port, after))
            #expect(try await !leaves(port, before))
        }
    }

    @Test(
        "The minimum version is TLS 1.2",
        arguments: [(.tlsv1, false), (.tlsv11, false), (.tlsv12, true), (.tlsv13, true)] as [(TLSVersion, Bool)])
    func versions(version: TLSVersion, isSpoken: Bool) async throws {
        let files = try TestCertificate()
        var relay = Relay(ScriptedStore(leave: { true }))
        relay.certificate = try ServerCertificate(certificate: files.certificate, key: files.key)
        var tls = try client(trusting: files)
        tls.minimumTLSVersion = .tlsv1
        tls.maximumTLSVersion = version
        // By default a client offers cipher suites for TLS 1.0 and 1.1 that no server accepts.
        tls.cipherSuites = "ALL"
        let answers = try await relay.listening { [tls] port in try await leaves(port, tls) }
        #expect(answers == isSpoken)
    }

    private func leaves(_ port: Int, _ tls: TLSConfiguration) async throws -> Bool {
        do {
            return try await RawConnection.open(port: port, tls: tls) { connection in
                try await connection.write(post(Sample.leave))
                return try await connection.answer().status == 200
            }
        } catch
            where error is NIOSSLError || error is ChannelError || error is IOError
            || error is RawConnection.Problem
        {
            // The error depends on whether the client was writing or waiting when the handshake failed.
            return false
        }
    }

    @Test("Certificate and key may be in one file")
    func oneFile() throws {
        let files = try TestCertificate()
        let key = try String(contentsOfFile: files.key, encoding: .utf8)
        let both = try key + "\n" + String(contentsOfFile: files.certificate, encoding: .utf8)
        try files.write(both, to: files.certificate)
        _ = try ServerCertificate(certificate: files.certificate, key: nil)
    }

    @Test("The error names an unusable file, its setting and the reason")
    func errors() throws {
        let files = try TestCertificate()
        let other = try TestCertificate()
        func failure(_ certificate: String, _ key: String?) -> String {
            do {
                _ = try ServerCertificate(certificate: certificate, key: key)
                return ""
            } catch {
                return error.description
            }
        }
        let missing = files.directory.path + "/missing.pem"
        #expect(failure(missing, nil).hasPrefix("http.certificate: cannot read \(missing): No such file"))
        #expect(failure(files.certificate, missing).hasPrefix("http.key: cannot read \(missing)"))
        #expect(failure(files.key, files.key).contains("holds no certificate in PEM format"))
        #expect(failure(files.certificate, nil).contains("holds no private key in PEM format"))
        #expect(failure(files.certificate, other.key).contains("does not belong to the certificate"))
    }

    @Test("A failed reload keeps the previous certificate")
    func failedReload() throws {
        let files = try TestCertificate()
        let certificate = try ServerCertificate(certificate: files.certificate, key: files.key)
        try files.write("", to: files.certificate)
        #expect(throws: ServerCertificate.Failure.self) { try certificate.reload() }
        #expect(certificate.configuration().certificateChain.count == 1)
    }
}

@Suite("Slow clients")
struct ConnectionGuardTests {
    private let head = HTTPRequest(method: .post, scheme: "http", authority: "x", path: "/api.php")

    @Test("A request that is incomplete after its time limit closes its connection; a complete one and a pause do not")
    func deadline() throws {
        let channel = EmbeddedChannel(handler: ConnectionGuard(connections: ConnectionCounter()))
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        try channel.writeInbound(HTTPRequestPart.head(head))
        channel.embeddedEventLoop.advanceTime(by: .seconds(20))
        try channel.writeInbound(HTTPRequestPart.end(nil))
        channel.embeddedEventLoop.advanceTime(by: .seconds(600))
        #expect(channel.isActive)

        try channel.writeInbound(HTTPRequestPart.head(head))
        channel.embeddedEventLoop.advanceTime(by: .seconds(29))
        // A byte in between does not extend the time.
        try channel.writeInbound(HTTPRequestPart.body(ByteBuffer(string: "x")))
        #expect(channel.isActive)
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(!channel.isActive)
        _ = try channel.finish(acceptAlreadyClosed: true)
    }

    @Test("A connection without a request head is closed after 15 seconds; one with a head is not")
    func firstHead() throws {
        for sendsHead in [false, true] {
            let channel = EmbeddedChannel(handler: ConnectionGuard(connections: ConnectionCounter()))
            try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
            channel.embeddedEventLoop.advanceTime(by: .seconds(14))
            #expect(channel.isActive)
            if sendsHead { try channel.writeInbound(HTTPRequestPart.head(head)) }
            channel.embeddedEventLoop.advanceTime(by: .seconds(1))
            #expect(channel.isActive == sendsHead)
            _ = try channel.finish(acceptAlreadyClosed: true)
        }
    }

    @Test("When the server stops, a request that it is reading has three seconds left")
    func stopWhileReading() throws {
        for isWhole in [false, true] {
            let channel = EmbeddedChannel(handler: ConnectionGuard(connections: ConnectionCounter()))
            try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
            try channel.writeInbound(HTTPRequestPart.head(head))
            channel.pipeline.fireUserInboundEventTriggered(ChannelShouldQuiesceEvent())
            channel.embeddedEventLoop.advanceTime(by: .seconds(2))
            #expect(channel.isActive)
            if isWhole { try channel.writeInbound(HTTPRequestPart.end(nil)) }
            channel.embeddedEventLoop.advanceTime(by: .seconds(1))
            #expect(channel.isActive == isWhole)
            _ = try channel.finish(acceptAlreadyClosed: true)
        }
    }

    @Test(
        "A stopping server waits for responses, but not for clients that do not read, and reads no new request"
    )
    func stopWhileAnswering() throws {
        let channel = EmbeddedChannel(handler: ConnectionGuard(connections: ConnectionCounter()))
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        try channel.writeInbound(HTTPRequestPart.head(head))
        try channel.writeInbound(HTTPRequestPart.end(nil))
        #expect(try channel.readInbound(as: HTTPRequestPart.self) != nil)
        #expect(try channel.readInbound(as: HTTPRequestPart.self) != nil)
        channel.pipeline.fireUserInboundEventTriggered(ChannelShouldQuiesceEvent())
        channel.embeddedEventLoop.advanceTime(by: .seconds(60))
        #expect(channel.isActive)
        try channel.writeInbound(HTTPRequestPart.head(head))
        try channel.writeInbound(HTTPRequestPart.end(nil))
        #expect(try channel.readInbound(as: HTTPRequestPart.self) == nil)
        try channel.writeOutbound(HTTPResponsePart.head(HTTPResponse(status: .ok)))
        channel.embeddedEventLoop.advanceTime(by: .seconds(3))
        #expect(channel.isActive)
        channel.embeddedEventLoop.advanceTime(by: .seconds(3))
        #expect(!channel.isActive)
        _ = try channel.finish(acceptAlreadyClosed: true)
    }

    @Test("A connection above its address's limit is closed; a connection that ends makes room for another")
    func tooMany() throws {
        let counter = ConnectionCounter(limit: 1)
        func open() throws -> EmbeddedChannel {
            let channel = EmbeddedChannel()
            channel.remoteAddress = try SocketAddress(ipAddress: "192.0.2.1", port: 1)
            try channel.pipeline.syncOperations.addHandler(ConnectionGuard(connections: counter))
            try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
            return channel
        }
        let first = try open()
        let second = try open()
        #expect(first.isActive && !second.isActive)
        _ = try first.finish()
        _ = try second.finish(acceptAlreadyClosed: true)
        let third = try open()
        #expect(third.isActive)
        _ = try third.finish()
    }

    @Test("The number of bytes dropped from a body that is too large is limited for each request")
    func dropped() {
        var progress = ReadProgress()
        for _ in 0..<2 {
            progress.began()
            #expect(progress.read(HTTPLimits.body) == true)
            #expect(progress.read(HTTPLimits.discardedBody) == true)
            progress.ended()
        }
        progress.began()
        #expect(progress.read(HTTPLimits.batchBody + HTTPLimits.discardedBody + 1) == false)
    }
}

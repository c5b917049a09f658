import ChatDomain
import Testing

@testable import ChatHTTP

/// Tests bodies on real connections: compressed, in pieces, too large, cut off.
@Suite("Request bodies", .timeLimit(.minutes(1)))
struct BodyTests {
    private static let urlEncoded = "Content-Type: application/x-www-form-urlencoded"

    /// `cmd=leave` with the sample's udid, compressed by Python's gzip and zlib.
    private static let gzip = bytes(
        "1f8b08000000000002034bce4db1cd494d2c4b552b4dc94cb1354b34314d4d3248324d314e3349314db104b22c92d30cd2cc538c130d938c928"
            + "d534c524dd3cc00d38eaba637000000")
    private static let deflate = bytes(
        "789c4bce4db1cd494d2c4b552b4dc94cb1354b34314d4d3248324d314e3349314db104b22c92d30cd2cc538c130d938c928d534c524dd3cc00fd"
            + "4a1167")

    private static func bytes(_ hex: String) -> [UInt8] { Hex.bytes(Array(hex.utf8)) ?? [] }

    private func compressed(_ body: [UInt8], _ coding: String) -> [UInt8] {
        Array(
            ("POST /api.php HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.count)\r\n\(Self.urlEncoded)\r\n"
                + "Content-Encoding: \(coding)\r\n\r\n").utf8) + body
    }

    @Test("Compressed bodies are read", arguments: ["gzip", "GZIP", "x-gzip", "deflate", "identity"])
    func compression(coding: String) async throws {
        let relay = Relay(ScriptedStore(leave: { true }))
        let body = coding == "deflate" ? Self.deflate : coding == "identity" ? Array(Sample.leave.utf8) : Self.gzip
        #expect(try await relay.exchange(compressed(body, coding)).status == 200)
        #expect(try relay.store.calls == [.leave(Sample.member)])
    }

    @Test("A body that does not match its Content-Encoding is refused with 400")
    func badCompression() async throws {
        var damaged = Self.gzip
        damaged[30] ^= 0xFF
        var badSum = Self.gzip
        badSum[badSum.count - 6] ^= 1
        for body in [damaged, badSum, Array(Self.gzip.dropLast(9)), Array(Sample.leave.utf8), Self.gzip + Self.gzip] {
            let answer = try await Relay().exchange(compressed(body, "gzip"))
            #expect(answer.status == 400)
            #expect(answer.body.contains("gzip"))
            #expect(answer.body.contains("in one piece") == (body.count == 2 * Self.gzip.count))
        }
    }

    @Test("An unknown Content-Encoding is refused with 415", arguments: ["br", "gzip, gzip", "zstd"])
    func unknownCoding(coding: String) async throws {
        let answer = try await Relay().exchange(compressed(Self.gzip, coding))
        #expect(answer.status == 415)
        #expect(answer.body.contains(coding))
    }

    @Test("The limit counts decompressed bytes: a small body that grows large is refused with 413")
    func bomb() async throws {
        // 10,000,000 times `a` compresses to 9.8 kB. The connection stays usable.
        try await Relay(ScriptedStore(leave: { true })).listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(compressed(try Zeros.gzip(count: 10_000_000), "gzip"))
                let answer = try await connection.answer()
                #expect(answer.status == 413)
                #expect(answer.body == "The body has more than 65536 bytes when decompressed\n")
                try await connection.write(post(Sample.leave))
                #expect(try await connection.answer().status == 200)
            }
        }
    }

    @Test("A chunked body is read, however it is divided")
    func chunked() async throws {
        let relay = Relay(ScriptedStore(leave: { true }))
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                for size in [1, 7, 1000] {
                    try await connection.write(
                        "POST /api HTTP/1.1\r\nHost: localhost\r\n\(Self.urlEncoded)\r\nTransfer-Encoding: chunked\r\n\r\n"
                    )
                    var rest = Array(Sample.leave.utf8)[...]
                    while !rest.isEmpty {
                        let piece = rest.prefix(size)
                        rest = rest.dropFirst(size)
                        try await connection.write(
                            "\(String(piece.count, radix: 16))\r\n\(String(decoding: piece, as: UTF8.self))\r\n")
                    }
                    try await connection.write("0\r\n\r\n")
                    #expect(try await connection.answer().body == "OK\n")
                }
            }
        }
        #expect(try relay.store.calls == Array(repeating: .leave(Sample.member), count: 3))
    }

    @Test("A body of exactly the limit is read; one byte more is refused", arguments: [0, 1])
    func limit(over: Int) async throws {
        let relay = Relay(ScriptedStore(leave: { true }))
        let body =
            Sample.leave + "&x=" + String(repeating: "y", count: HTTPLimits.body - Sample.leave.utf8.count - 3 + over)
        let answer = try await relay.exchange(Array(post(body).utf8))
        #expect(answer.status == (over == 0 ? 200 : 413))
        #expect(relay.store.calls.count == 1 - over)
    }

    /// HAProxy 2.6 stops sending a request's body once it has the response, if its client speaks HTTP/2, and sends the
    /// next request on the same connection. The server must not read that request as the rest of a body, nor the rest
    /// of a body as a request.
    @Test(
        "A Content-Length over the limit gets a 413 before the body is sent, and the connection ends with the body"
    )
    func contentLength() async throws {
        let relay = Relay(ScriptedStore(leave: { true }))
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(
                    "POST /api.php HTTP/1.1\r\nHost: localhost\r\n\(Self.urlEncoded)\r\nContent-Length: 100000\r\n\r\n")
                let answer = try await connection.answer()
                #expect(answer.status == 413)
                #expect(answer.headers["x-error-description"] == "The body has more than 65536 bytes")
                #expect(answer.headers["connection"] == "close")
                try await connection.write(String(repeating: "x", count: 100_000) + post(Sample.leave))
                try await connection.closed()
            }
        }
        #expect(relay.store.calls.isEmpty)
    }

    @Test("Each pipelined request gets its response, even while the next request is half sent")
    func pipelined() async throws {
        let relay = Relay(ScriptedStore(leave: { true }))
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                let request = post(Sample.leave)
                let cut = request.index(request.endIndex, offsetBy: -4)
                try await connection.write(request + request[..<cut])
                let first = try await connection.answer()
                #expect(first.status == 200 && first.headers["connection"] != "close")
                try await connection.write(String(request[cut...]))
                #expect(try await connection.answer().status == 200)
                try await connection.write(request)
                #expect(try await connection.answer().status == 200)
            }
        }
        #expect(relay.store.calls.count == 3)
    }

    @Test("A chunked body over the limit gets a 413; the connection of an endless one is closed")
    func endless() async throws {
        try await Relay().listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(
                    "POST /api.php HTTP/1.1\r\nHost: localhost\r\n\(Self.urlEncoded)\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
                let chunk = "8000\r\n" + String(repeating: "x", count: 0x8000) + "\r\n"
                for _ in 0..<3 { try await connection.write(chunk) }
                #expect(try await connection.answer().status == 413)
                do {
                    // Far more than the server reads and drops.
                    for _ in 0..<1000 { try await connection.write(chunk) }
                } catch {
                    // The server closes the connection during the write, as expected.
                }
                try await connection.closed()
            }
        }
    }

    @Test("A truncated body never reaches the store", arguments: [true, false])
    func cutOff(isChunked: Bool) async throws {
        let relay = Relay()
        try await relay.listening { port in
            for halfClose in [true, false] {
                try await RawConnection.open(port: port) { connection in
                    let framing =
                        isChunked
                        ? "Transfer-Encoding: chunked\r\n\r\n\(String(Sample.message.utf8.count, radix: 16))\r\n\(Sample.message)\r\n"
                        : "Content-Length: \(Sample.message.utf8.count + 5)\r\n\r\n\(Sample.message)"
                    try await connection.write(
                        "POST /api.php HTTP/1.1\r\nHost: localhost\r\n\(Self.urlEncoded)\r\n\(framing)")
                    if halfClose {
                        connection.finish()
                        try await connection.closed()
                    }
                }
            }
        }
        #expect(relay.store.calls.isEmpty)
    }

    @Test("A client that expects 100 Continue gets it, unless the body is too large")
    func expectContinue() async throws {
        try await Relay(ScriptedStore(leave: { true })).listening { port in
            try await RawConnection.open(port: port) { connection in
                let head = "POST /api.php HTTP/1.1\r\nHost: localhost\r\n\(Self.urlEncoded)\r\nExpect: 100-continue\r\n"
                try await connection.write(head + "Content-Length: \(Sample.leave.utf8.count)\r\n\r\n")
                #expect(try await connection.answer().status == 100)
                try await connection.write(Sample.leave)
                #expect(try await connection.answer().status == 200)
                try await connection.write(head + "Content-Length: 70000\r\n\r\n")
                #expect(try await connection.answer().status == 413)
            }
        }
    }

    @Test(
        "Each route sends 100 Continue only for bodies that it accepts, and only after it has checked the token",
        arguments: [
            ("/v1/notifications:batch", HTTPLimits.batchBody, 100),
            ("/v1/notifications:batch", HTTPLimits.batchBody + 1, 413),
            ("/v1/notifications", HTTPLimits.adminBody, 100),
            ("/v1/notifications", HTTPLimits.adminBody + 1, 413), ("/v1/messages?room=r", HTTPLimits.body, 100),
            ("/v1/messages?room=r", HTTPLimits.body + 1, 413), ("/ntfy/r", HTTPLimits.discardedBody, 100),
            ("/ntfy/r", HTTPLimits.discardedBody + 1, 413), ("/api.php", HTTPLimits.body, 100), ("/none", 1, 404),
        ])
    func expectContinue(path: String, length: Int, status: Int) async throws {
        let relay = Relay(settings: ChatHTTPSettings(adminTokens: ["geheim"]))
        try await relay.listening { port in
            for isKnown in [true, false] {
                try await RawConnection.open(port: port) { connection in
                    try await connection.write(
                        "POST \(path) HTTP/1.1\r\nHost: localhost\r\n\(Self.urlEncoded)\r\nExpect: 100-Continue\r\n"
                            + "Authorization: Bearer \(isKnown ? "geheim" : "x")\r\nContent-Length: \(length)\r\n\r\n")
                    let answer = try await connection.answer()
                    #expect(
                        answer.status == ((path.hasPrefix("/v1") || path.hasPrefix("/ntfy")) && !isKnown ? 401 : status)
                    )
                    // The body may follow or not, so the connection cannot be reused.
                    if status != 100 { #expect(answer.headers["connection"] == "close") }
                }
            }
        }
    }

    @Test("An HTTP/1.0 client gets no 100 Continue, because it does not know that status")
    func expectInHTTP10() async throws {
        try await Relay(ScriptedStore(leave: { true })).listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(
                    "POST /api.php HTTP/1.0\r\n\(Self.urlEncoded)\r\nExpect: 100-continue\r\n"
                        + "Content-Length: \(Sample.leave.utf8.count)\r\n\r\n\(Sample.leave)")
                #expect(try await connection.answer().status == 200)
            }
        }
    }
}

/// A gzip file of many equal bytes, built from stored and repeated blocks that were compressed once.
enum Zeros {
    /// Builds the deflate stream by hand: one literal, then copies of 258 bytes at distance 1, in fixed Huffman codes
    /// (RFC 1951 §3.2.6).
    static func gzip(count: Int) throws -> [UInt8] {
        var bits = BitWriter()
        bits.write(1, 1)
        bits.write(1, 2)
        // The literal 0x00 has the code 00110000, a copy of 258 the code 11000101, the distance 1 the code 00000.
        bits.writeCode(0b0011_0000, 8)
        for _ in 0..<(count / 258) {
            bits.writeCode(0b1100_0101, 8)
            bits.writeCode(0, 5)
        }
        bits.writeCode(0, 7)
        return [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3] + bits.bytes + [UInt8](repeating: 0, count: 8)
    }

    private struct BitWriter {
        var bytes: [UInt8] = []
        private var used = 8

        mutating func write(_ value: Int, _ count: Int) {
            for bit in 0..<count { append(value >> bit & 1) }
        }

        /// Writes a Huffman code, most significant bit first.
        mutating func writeCode(_ code: Int, _ count: Int) {
            for bit in (0..<count).reversed() { append(code >> bit & 1) }
        }

        private mutating func append(_ bit: Int) {
            if used == 8 {
                bytes.append(0)
                used = 0
            }
            bytes[bytes.count - 1] |= UInt8(bit << used)
            used += 1
        }
    }
}

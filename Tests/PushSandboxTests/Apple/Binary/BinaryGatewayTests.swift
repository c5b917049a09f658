import Foundation
import NIOCore
import PushWire
import TestSupport
import Testing

@testable import PushSandbox

/// Tests the gateway through real sockets and TLS.
@Suite("The binary gateway", .timeLimit(.minutes(10)))
struct BinaryGatewayTests {
    private func packet(_ status: BinaryStatus, _ identifier: UInt32) -> [UInt8] {
        var buffer = ByteBuffer()
        BinaryErrorResponse(status: status, identifier: identifier).write(to: &buffer)
        return Array(buffer.readableBytesView)
    }

    @Test("Good notifications of all commands are recorded in order, and get no response")
    func good() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            var framed = BinaryNotification.good(3, payload: #"{"aps":{"alert":"Grüße"}}"#)
            framed.expiration = 1_304_805_449
            framed.priority = 5
            try await client.send(.good(1, command: .simple), .good(2, command: .enhanced), framed)
            let ending = try await client.finish()
            #expect(ending.bytes == [])
            #expect(ending.isClean)

            let found = try await sandbox.notifications()
            #expect(found.map { $0["command"] as? Int } == [0, 1, 2])
            let last = try #require(found.last)
            #expect(last["id"] as? Int == 3)
            #expect(last["protocol"] as? String == "binary")
            #expect(last["connection"] as? Int == 1)
            #expect(last["token"] as? String == String(repeating: "ab", count: 32))
            #expect(last["topic"] as? String == "com.example.PushChat")
            #expect(last["identifier"] as? Int == 3)
            #expect(last["payload"] as? String == #"{"aps":{"alert":"Grüße"}}"#)
            #expect(last["answer"] as? String == "accepted")
            #expect(last["headers"] as? [String: String] == ["apns-expiration": "1304805449", "apns-priority": "5"])
            let time = try #require(last["received_at"] as? String)
            #expect(time.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil, "\(time)")
        }
    }

    @Test("The worked bytes are accepted unchanged")
    func goldenBytes() async throws {
        let dump = """
            02 00 00 00 73 01 00 20 0f 74 47 07 be bc f7 4f
            9b 7c 25 d4 8e 33 58 94 5f 6a a0 1d a5 dd b3 87
            46 2c 7e af 61 bb ad 78 02 00 3b 7b 22 61 70 73
            22 3a 7b 22 61 6c 65 72 74 22 3a 22 53 74 65 76
            65 4a 3a 20 48 65 6c 6c 6f 2c 20 77 6f 72 6c 64
            21 22 2c 22 73 6f 75 6e 64 22 3a 22 64 65 66 61
            75 6c 74 22 7d 7d 03 00 04 00 00 00 01 04 00 04
            4d c5 c0 49 05 00 01 0a
            """
        let bytes = dump.split(whereSeparator: \.isWhitespace).compactMap { UInt8($0, radix: 16) }
        #expect(bytes.count == 120)
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            try await client.send(bytes: bytes)
            _ = try await client.finish()
            let found = try #require(try await sandbox.notifications().first)
            #expect(
                found["token"] as? String == "0f744707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bbad78")
            #expect(
                found["payload"] as? String == #"{"aps":{"alert":"SteveJ: Hello, world!","sound":"default"}}"#)
            #expect(found["identifier"] as? Int == 1)
        }
    }

    @Test(
        "A bad notification gets its packet even while the client keeps writing, and later ones are discarded",
        arguments: [BinaryCommand.framed, .enhanced])
    func badNotification(command: BinaryCommand) async throws {
        try await TestSandbox.with { sandbox in
            _ = try await sandbox.control(.delete, "/devices/" + String(repeating: "cd", count: 32))
            let client = try await sandbox.gateway()
            for identifier in 1...300 as ClosedRange<UInt32> {
                // The packet may arrive and the connection close before the last notification is written.
                try? await client.send(.good(identifier, token: identifier == 100 ? 0xCD : 0xAB, command: command))
            }
            let ending = try await client.end()
            #expect(ending.bytes == packet(.invalidToken, 100))
            #expect(ending.isClean)
            let found = try await sandbox.notifications("?limit=1000")
            #expect(found.count == 100)
            #expect(found.last?["answer"] as? String == "InvalidToken")
        }
    }

    @Test("A flood after the bad one does not destroy the packet")
    func flood() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            try await client.send(.sentinel(identifier: 7))
            var flood = ByteBuffer()
            for _ in 0..<20_000 { BinaryNotification.good(8).write(to: &flood) }
            // The connection may close during this write.
            try? await client.channel.writeAndFlush(flood)
            #expect(try await client.end().bytes == packet(.missingDeviceToken, 7))
        }
    }

    @Test(
        "Notifications that break a rule get its status",
        arguments: [
            (
                BinaryNotification(token: [], payload: ByteBuffer(string: "{}"), identifier: 5),
                BinaryStatus.missingDeviceToken
            ),
            (BinaryNotification(token: [1], payload: ByteBuffer(), identifier: 5), .missingPayload),
            (
                BinaryNotification(
                    token: [1], payload: ByteBuffer(repeating: 0x20, count: 257), identifier: 5), .invalidPayloadSize
            ),
            (
                BinaryNotification(
                    token: [UInt8](repeating: 1, count: 33), payload: ByteBuffer(string: "{}"), identifier: 5),
                .invalidTokenSize
            ),
            (
                BinaryNotification(
                    token: [1], payload: ByteBuffer(string: "{}"), identifier: 5, priority: 7), .protocolError
            ),
        ])
    func rules(notification: BinaryNotification, status: BinaryStatus) async throws {
        try await TestSandbox.with { configuration in
            configuration.payloadLimit = 256
            configuration.tokenSizes = 1...32
        } _: { sandbox in
            let client = try await sandbox.gateway()
            try await client.send(notification)
            #expect(try await client.end().bytes == packet(status, 5))
            #expect(try await sandbox.notifications().first?["answer"] as? String == status.name)
        }
    }

    @Test(
        "Bytes that are no notification get the configured response",
        arguments: [
            (SandboxConfiguration.MalformedResponse.protocolError, [8, 128, 0, 0, 0, 0] as [UInt8]),
            (.unknown, [8, 255, 0, 0, 0, 0]), (.close, []),
        ])
    func noise(answer: SandboxConfiguration.MalformedResponse, bytes: [UInt8]) async throws {
        try await TestSandbox.with { configuration in
            configuration.malformedResponse = answer
        } _: { sandbox in
            let client = try await sandbox.gateway()
            try await client.send(bytes: Array("GET / HTTP/1.1\r\n\r\n".utf8))
            let ending = try await client.end()
            #expect(ending.bytes == bytes)
            #expect(ending.isClean)
        }
    }

    @Test("A closed connection ends cleanly, a reset one does not", arguments: ["close", "reset"])
    func endings(action: String) async throws {
        try await TestSandbox.with { sandbox in
            let fault = #"{"protocol":"binary","after":1,"action":"\#(action)"}"#
            #expect(try await sandbox.control(.post, "/faults", json: fault).status == 201)
            let client = try await sandbox.gateway()
            try await client.send(.good(1), .good(2), .good(3))
            let ending = try await client.end()
            #expect(ending.bytes == [])
            #expect(ending.isClean == (action == "close"))
            let answers = try await sandbox.notifications().map { $0["answer"] as? String }
            #expect(answers == ["accepted", action == "close" ? "closed" : "reset"])
        }
    }

    @Test("Status 10 accepts the faulted notification and names it")
    func shutdown() async throws {
        try await TestSandbox.with { sandbox in
            let fault = #"{"protocol":"binary","after":1,"action":"status","status":10,"delay_ms":20}"#
            #expect(try await sandbox.control(.post, "/faults", json: fault).status == 201)
            let client = try await sandbox.gateway()
            try await client.send(.good(1), .good(2), .good(3))
            #expect(try await client.end().bytes == packet(.shutdown, 2))
            #expect(try await sandbox.notifications().map { $0["identifier"] as? Int } == [1, 2])
        }
    }

    @Test("After an error the client can reconnect as before")
    func reconnect() async throws {
        try await TestSandbox.with { sandbox in
            for round in 1...3 as ClosedRange<UInt32> {
                let client = try await sandbox.gateway()
                try await client.send(.good(round), .sentinel(identifier: 100 + round))
                #expect(try await client.end().bytes == packet(.missingDeviceToken, 100 + round))
            }
            #expect(try await sandbox.notifications().map { $0["connection"] as? Int } == [1, 1, 2, 2, 3, 3])
        }
    }

    @Test(
        "Notifications from a client without a certificate, or with a foreign one, do not count",
        arguments: [false, true])
    func strangers(hasForeign: Bool) async throws {
        try await TestSandbox.with { sandbox in
            try await withTemporaryDirectory { directory in
                let foreign = try await SandboxCredentials.prepare(
                    directory: directory, topic: "com.example.PushChat", logger: .silent)
                // With TLS 1.3 the client learns of the rejection only after its own handshake.
                let client = try await sandbox.gateway(identity: hasForeign ? .files(foreign.clientFile) : .none)
                try? await client.send(.good(1))
                let ending = try await client.end()
                #expect(!ending.isClean)
            }
            #expect(try await sandbox.notifications().isEmpty)
            // The client may notice before the sandbox has counted.
            try await eventually {
                let stats = try await sandbox.control(.get, "/stats").object()
                let binary = try #require(stats["binary"] as? [String: Any])
                return (binary["connections"] as? [String: Int])?["handshakes_failed"] == 1
            }
        }
    }

    @Test("Connections over the limit are refused")
    func connectionLimit() async throws {
        try await TestSandbox.with { configuration in
            configuration.connectionLimit = 1
        } _: { sandbox in
            let first = try await sandbox.gateway()
            try await first.send(.good(1))
            let second = try? await sandbox.gateway()
            if let second { #expect(try await !second.end().isClean) }
            try await first.send(.sentinel(identifier: 2))
            #expect(try await first.end().bytes == packet(.missingDeviceToken, 2))
        }
    }

    @Test("A third-party client sends and gets its packet", .enabled(if: OpenSSLTool.isPresent))
    func openssl() async throws {
        try await TestSandbox.with { sandbox in
            var bytes = ByteBuffer()
            BinaryNotification.good(1).write(to: &bytes)
            BinaryNotification.sentinel(identifier: 2).write(to: &bytes)
            let output = try await OpenSSLTool.run(
                [
                    "s_client", "-connect", sandbox.addresses[.binary].description, "-quiet", "-ign_eof",
                    "-verify_return_error", "-verify_hostname", "localhost",
                    "-CAfile", sandbox.credentials.authorityFile, "-cert", sandbox.credentials.clientFile,
                    "-key", sandbox.credentials.clientFile,
                ], input: Array(bytes.readableBytesView))
            #expect(output.bytes.suffix(6) == packet(.missingDeviceToken, 2)[...], "\(output.text)")
            #expect(
                try await sandbox.notifications().map { $0["answer"] as? String } == ["accepted", "MissingDeviceToken"])
        }
    }
}

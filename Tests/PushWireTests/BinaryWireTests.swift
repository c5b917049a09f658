import NIOCore
import Testing

@testable import PushWire

/// Worked bytes of the formats in Apple's "Binary Provider API" and "Legacy Notification Format". They were computed
/// apart from this code, and the commands' bytes equal those of PyAPNs' encoders. So the tests never compare only our
/// encoder with our decoder.
private enum Golden {
    static let token = bytes("0f744707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bbad78")
    static let payload = #"{"aps":{"alert":"SteveJ: Hello, world!","sound":"default"}}"#
    static let payloadHex =
        "7b22617073223a7b22616c657274223a2253746576654a3a2048656c6c6f2c20776f726c6421222c22736f756e64223a2264656661756c74227d7d"
    static let tokenHex = "0f744707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bbad78"

    static let simple = bytes("000020" + tokenHex + "003b" + payloadHex)
    static let enhanced = bytes("01000000014dc5c0490020" + tokenHex + "003b" + payloadHex)
    static let framed = bytes(
        "0200000073010020" + tokenHex + "02003b" + payloadHex + "03000400000001" + "0400044dc5c049" + "0500010a")
    static let smallest = bytes("0200000061010020" + tokenHex + "02003b" + payloadHex)
    static let feedback = bytes("4dc5c0490020" + tokenHex)

    static func bytes(_ hex: String) -> [UInt8] {
        stride(from: 0, to: hex.utf8.count, by: 2).map { offset in
            let start = hex.index(hex.startIndex, offsetBy: offset)
            return UInt8(hex[start...hex.index(after: start)], radix: 16) ?? 0
        }
    }

    static func notification(_ command: BinaryCommand) -> BinaryNotification {
        BinaryNotification(
            command: command, token: token, payload: ByteBuffer(string: payload),
            identifier: command == .simple ? nil : 1, expiration: command == .simple ? nil : 1_304_805_449,
            priority: command == .framed ? 10 : nil)
    }
}

@Suite("The bytes of the binary protocol")
struct BinaryWireTests {
    private static let cases: [(BinaryCommand, [UInt8])] = [
        (.simple, Golden.simple), (.enhanced, Golden.enhanced), (.framed, Golden.framed),
    ]

    @Test(
        "The worked examples have the documented lengths",
        arguments: [
            (Golden.simple, 96), (Golden.enhanced, 104), (Golden.framed, 120), (Golden.smallest, 102),
        ])
    func lengths(bytes: [UInt8], count: Int) {
        #expect(bytes.count == count)
    }

    @Test("Notifications are written as in the worked examples", arguments: cases)
    func encodes(command: BinaryCommand, bytes: [UInt8]) {
        var buffer = ByteBuffer()
        Golden.notification(command).write(to: &buffer)
        #expect(Array(buffer.readableBytesView) == bytes)
    }

    @Test("Notifications are read from the worked examples", arguments: cases)
    func decodes(command: BinaryCommand, bytes: [UInt8]) throws {
        #expect(try parse(bytes) == [Golden.notification(command)])
    }

    @Test("The smallest frame has no optional items")
    func smallestFrame() throws {
        var expected = Golden.notification(.framed)
        (expected.identifier, expected.expiration, expected.priority) = (nil, nil, nil)
        #expect(try parse(Golden.smallest) == [expected])
        var buffer = ByteBuffer()
        expected.write(to: &buffer)
        #expect(Array(buffer.readableBytesView) == Golden.smallest)
    }

    @Test("Lengths take two bytes: 256 is 01 00")
    func twoByteLengths() {
        var buffer = ByteBuffer()
        BinaryNotification(
            command: .simple, token: Golden.token, payload: ByteBuffer(repeating: 0x20, count: 256)
        ).write(to: &buffer)
        #expect(Array(buffer.readableBytesView)[35..<37] == [1, 0])
    }

    @Test("Notifications may be split anywhere", arguments: 1...17)
    func split(size: Int) throws {
        let stream = Golden.framed + Golden.simple + Golden.enhanced + Golden.smallest
        var parser = BinaryNotificationParser()
        var count = 0
        var position = 0
        while position < stream.count {
            var piece = ByteBuffer(bytes: stream[position..<min(position + size, stream.count)])
            parser.append(&piece)
            position += size
            while try parser.next() != nil { count += 1 }
        }
        #expect(count == 4)
        #expect(parser.pendingBytes == 0)
    }

    @Test("Items of a frame may come in any order")
    func anyOrder() throws {
        let t = "010020" + Golden.tokenHex
        let p = "02003b" + Golden.payloadHex
        let rest = ["03000400000001", "0400044dc5c049", "0500010a"]
        for order in [[rest[0], t, p, rest[1], rest[2]], [rest[2], rest[1], p, rest[0], t]] {
            #expect(try parse(Golden.bytes("0200000073" + order.joined())) == [Golden.notification(.framed)])
        }
    }

    private static let refused: [(String, String, BinaryStatus, UInt32?)] = [
        ("unknown command", "09", .protocolError, nil),
        ("command 1 without token", "01000000074dc5c0490000", .missingDeviceToken, 7),
        ("command 1 without payload", "01000000074dc5c0490020" + Golden.tokenHex + "0000", .missingPayload, 7),
        (
            "command 1, payload over the limit", "01000000074dc5c0490020" + Golden.tokenHex + "0801",
            .invalidPayloadSize, 7
        ),
        ("command 1, token of 101 bytes", "01000000074dc5c0490065", .invalidTokenSize, 7),
        ("empty frame", "0200000000", .protocolError, nil),
        ("frame longer than any", "02ffffffff", .protocolError, nil),
        ("sentinel", "020000000f" + "010000" + "0200027b7d" + "03000400000009", .missingDeviceToken, 9),
        ("no token item", "020000000c" + "0200027b7d" + "03000400000009", .missingDeviceToken, 9),
        ("no payload item", "020000000b" + "010001aa" + "03000400000009", .missingPayload, 9),
        ("duplicate item", "0200000012" + "03000400000009" + "0200027b7d" + "010001aa" + "010001", .protocolError, 9),
        ("unknown item", "0200000014" + "03000400000009" + "0200027b7d" + "010001aa" + "06000100", .protocolError, 9),
        ("item overruns the frame", "020000000a" + "03000400000009" + "0200ff", .protocolError, 9),
        ("priority 7", "0200000014" + "03000400000009" + "0200027b7d" + "010001aa" + "05000107", .protocolError, 9),
        ("identifier of 3 bytes", "0200000006" + "030003000009", .protocolError, nil),
    ]

    @Test("Invalid notifications are refused with the status and the identifier", arguments: refused)
    func refusals(name: String, hex: String, status: BinaryStatus, identifier: UInt32?) throws {
        var parser = BinaryNotificationParser()
        var bytes = ByteBuffer(bytes: Golden.bytes(hex))
        parser.append(&bytes)
        let report = #expect(throws: BinaryNotificationParser.Malformed.self) { try parser.next() }
        #expect(report?.status == status)
        #expect(report?.identifier == identifier)
        // The parser discards all bytes after a bad notification.
        var more = ByteBuffer(bytes: Golden.framed)
        parser.append(&more)
        #expect(throws: BinaryNotificationParser.Malformed.self) { try parser.next() }
        #expect(parser.pendingBytes == 0)
    }

    @Test("The limit of a payload is a setting")
    func payloadLimit() throws {
        var parser = BinaryNotificationParser(limits: .init(payload: 58))
        var bytes = ByteBuffer(bytes: Golden.framed)
        parser.append(&bytes)
        let report = #expect(throws: BinaryNotificationParser.Malformed.self) { try parser.next() }
        #expect(report?.status == .invalidPayloadSize)
        #expect(report?.identifier == 1)
    }

    @Test(
        "Error responses match the worked examples",
        arguments: [
            ("080800000001", BinaryStatus.invalidToken, UInt32(1)), ("080a0000002a", .shutdown, 42),
            ("08ff00000000", .unknown, 0), ("0863ffffffff", BinaryStatus(rawValue: 0x63), .max),
        ])
    func answers(hex: String, status: BinaryStatus, identifier: UInt32) throws {
        var bytes = ByteBuffer(bytes: Golden.bytes(hex).prefix(5))
        #expect(try BinaryErrorResponse.read(from: &bytes) == nil)
        bytes.writeBytes(Golden.bytes(hex).suffix(1))
        let response = BinaryErrorResponse(status: status, identifier: identifier)
        #expect(try BinaryErrorResponse.read(from: &bytes) == response)
        var written = ByteBuffer()
        response.write(to: &written)
        #expect(Array(written.readableBytesView) == Golden.bytes(hex))
    }

    @Test("Six other bytes are not read as an error response")
    func noResponse() {
        var bytes = ByteBuffer(string: "HTTP/1")
        #expect(throws: BinaryErrorResponse.UnexpectedBytes.self) { try BinaryErrorResponse.read(from: &bytes) }
    }

    @Test("A status outside Apple's table has a name")
    func names() {
        #expect(BinaryStatus(rawValue: 99).name == "Status99")
        #expect(Set(BinaryStatus.documented.map(\.value)).count == 12)
    }

    @Test("Feedback tuples are read by their length, however they are split")
    func feedback() {
        var written = ByteBuffer()
        FeedbackTuple(timestamp: 1_304_805_449, token: Golden.token).write(to: &written)
        #expect(Array(written.readableBytesView) == Golden.feedback)
        #expect(Golden.feedback.count == 38)

        let stream = Golden.feedback + Golden.bytes("ffffffff0003aabbcc") + Golden.feedback.prefix(37)
        var buffer = ByteBuffer()
        var tuples: [FeedbackTuple] = []
        for byte in stream {
            buffer.writeInteger(byte)
            while let tuple = FeedbackTuple.read(from: &buffer) { tuples.append(tuple) }
        }
        #expect(
            tuples == [
                FeedbackTuple(timestamp: 1_304_805_449, token: Golden.token),
                FeedbackTuple(timestamp: .max, token: [0xAA, 0xBB, 0xCC]),
            ])
        #expect(buffer.readableBytes == 37)
    }

    private func parse(_ bytes: [UInt8]) throws -> [BinaryNotification] {
        var parser = BinaryNotificationParser()
        var buffer = ByteBuffer(bytes: bytes)
        parser.append(&buffer)
        var all: [BinaryNotification] = []
        while let notification = try parser.next() { all.append(notification) }
        #expect(parser.pendingBytes == 0)
        return all
    }
}

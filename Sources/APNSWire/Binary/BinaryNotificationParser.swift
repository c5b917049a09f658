package import NIOCore

/// The gateway's reading side: bytes, split anywhere, become notifications of any of the three commands.
///
/// Apple specifies neither a duplicate item, an unknown item, an overrun nor trailing bytes. Here all of them are
/// ``BinaryStatus/protocolError`` with the identifier if one was read (a gateway that wants Pushy's 255 or a close
/// without a packet maps it). After the first failure the parser stays failed: what follows on a connection after a
/// bad notification is discarded, never parsed.
package struct BinaryNotificationParser: Sendable {
    /// What may stand in a notification before it is refused.
    package struct Limits: Sendable, Hashable {
        /// Bytes of a payload: 256 before iOS 8, 2,048 after (apns-binary.md §6).
        package var payload: Int
        /// Bytes of a token. Today's have 32; Apple said "up to 100" and asks not to assume a size.
        package var token: ClosedRange<Int>

        package init(payload: Int = 2048, token: ClosedRange<Int> = 1...BinaryNotification.longestToken) {
            self.payload = payload
            self.token = token
        }
    }

    /// A notification that the gateway must refuse, and the outcome.
    package struct Malformed: Error, Sendable, Hashable {
        package var status: BinaryStatus
        /// Nil when the format has no identifier, or it was not read before the failure.
        package var identifier: UInt32?
        /// Nil when the first byte was no command.
        package var command: BinaryCommand?
    }

    /// The most bytes of a frame that are waited for: two items of the longest two-byte length, and the small ones.
    /// A longer frame cannot be valid and is refused by its header.
    package static let longestFrame = 2 * (3 + 65_535) + 7 + 7 + 4

    private let limits: Limits
    private var buffer = ByteBuffer()
    private var failure: Malformed?

    package init(limits: Limits = Limits()) {
        self.limits = limits
    }

    /// Bytes that wait for their notification to be complete.
    package var pendingBytes: Int { buffer.readableBytes }

    package mutating func append(_ bytes: inout ByteBuffer) {
        guard failure == nil else { return }
        // Without this a leftover that is always appended to makes every read copy all that ever came.
        buffer.discardReadBytes()
        buffer.writeBuffer(&bytes)
    }

    /// The next whole notification, or nil while its last byte has not come.
    /// - Throws: the outcome on a bad notification, and the same outcome on each later call.
    package mutating func next() throws(Malformed) -> BinaryNotification? {
        if let failure { throw failure }
        do throws(Malformed) {
            guard let first = buffer.getInteger(at: buffer.readerIndex, as: UInt8.self) else { return nil }
            guard let command = BinaryCommand(rawValue: first) else {
                throw Malformed(status: .protocolError, identifier: nil, command: nil)
            }
            return command == .framed ? try nextFramed() : try nextPlain(command)
        } catch {
            failure = error
            buffer.clear()
            throw error
        }
    }

    /// Commands 0 and 1: a fixed header, the token, the payload.
    private mutating func nextPlain(_ command: BinaryCommand) throws(Malformed) -> BinaryNotification? {
        var bytes = buffer
        bytes.moveReaderIndex(forwardBy: 1)
        var identifier: UInt32?
        var expiration: UInt32?
        if command == .enhanced {
            guard let header = bytes.readMultipleIntegers(as: (UInt32, UInt32).self) else { return nil }
            (identifier, expiration) = header
        }
        guard let tokenLength = bytes.readInteger(as: UInt16.self) else { return nil }
        try checkToken(Int(tokenLength), identifier, command)
        guard let token = bytes.readBytes(length: Int(tokenLength)),
            let payloadLength = bytes.readInteger(as: UInt16.self)
        else { return nil }
        try checkPayload(Int(payloadLength), identifier, command)
        guard let payload = bytes.readSlice(length: Int(payloadLength)) else { return nil }
        buffer.moveReaderIndex(to: bytes.readerIndex)
        return BinaryNotification(
            command: command, token: token, payload: payload, identifier: identifier, expiration: expiration)
    }

    /// Command 2: a frame of items in any order.
    private mutating func nextFramed() throws(Malformed) -> BinaryNotification? {
        var bytes = buffer
        guard let (_, length) = bytes.readMultipleIntegers(as: (UInt8, UInt32).self) else { return nil }
        guard length > 0, length <= Self.longestFrame else {
            throw Malformed(status: .protocolError, identifier: nil, command: .framed)
        }
        guard var frame = bytes.readSlice(length: Int(length)) else { return nil }
        buffer.moveReaderIndex(to: bytes.readerIndex)

        var token: [UInt8]?
        var payload: ByteBuffer?
        var identifier: UInt32?
        var expiration: UInt32?
        var priority: UInt8?
        var wellFormed = true
        while frame.readableBytes > 0 {
            guard let (id, itemLength) = frame.readMultipleIntegers(as: (UInt8, UInt16).self),
                var data = frame.readSlice(length: Int(itemLength)), let item = BinaryNotification.Item(rawValue: id)
            else {
                wellFormed = false
                break
            }
            switch item {
            case .token where token == nil:
                token = data.readBytes(length: data.readableBytes)
            case .payload where payload == nil:
                payload = data
            case .identifier where identifier == nil && itemLength == 4:
                identifier = data.readInteger()
            case .expiration where expiration == nil && itemLength == 4:
                expiration = data.readInteger()
            case .priority where priority == nil && itemLength == 1:
                priority = data.readInteger()
            default:
                wellFormed = false
            }
        }
        guard wellFormed, priority == nil || priority == 5 || priority == 10 else {
            throw Malformed(status: .protocolError, identifier: identifier, command: .framed)
        }
        try checkToken(token?.count ?? 0, identifier, .framed)
        try checkPayload(payload?.readableBytes ?? 0, identifier, .framed)
        return BinaryNotification(
            command: .framed, token: token ?? [], payload: payload ?? ByteBuffer(), identifier: identifier,
            expiration: expiration, priority: priority)
    }

    private func checkToken(_ count: Int, _ identifier: UInt32?, _ command: BinaryCommand) throws(Malformed) {
        guard count > 0 else {
            throw Malformed(status: .missingDeviceToken, identifier: identifier, command: command)
        }
        guard limits.token.contains(count) else {
            throw Malformed(status: .invalidTokenSize, identifier: identifier, command: command)
        }
    }

    private func checkPayload(_ count: Int, _ identifier: UInt32?, _ command: BinaryCommand) throws(Malformed) {
        guard count > 0 else {
            throw Malformed(status: .missingPayload, identifier: identifier, command: command)
        }
        guard count <= limits.payload else {
            throw Malformed(status: .invalidPayloadSize, identifier: identifier, command: command)
        }
    }
}

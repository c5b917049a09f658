package import NIOCore

/// The gateway's side of the protocol: parses bytes, split at any position, into notifications of all three commands.
///
/// Apple does not specify how the gateway treats duplicate or unknown items, overruns and trailing bytes. This parser
/// reports all of them as ``BinaryStatus/protocolError``, with the identifier if it was read. A gateway that prefers
/// Pushy's 255, or a close without a packet, must map the error. After the first failure the parser stays failed: bytes
/// that follow a bad notification are discarded and never parsed.
package struct BinaryNotificationParser: Sendable {
    /// The limits beyond which a notification is rejected.
    package struct Limits: Sendable, Hashable {
        /// The maximum size of a payload in bytes: 2,048 (Apple, "Binary Provider API"), and 256 before iOS 8 (Apple,
        /// "Legacy Notification Format").
        package var payload: Int
        /// The valid sizes of a token in bytes. Today's tokens have 32 bytes. Apple says "up to 100" and asks not to
        /// assume a size.
        package var token: ClosedRange<Int>

        package init(payload: Int = 2048, token: ClosedRange<Int> = 1...BinaryNotification.longestToken) {
            self.payload = payload
            self.token = token
        }
    }

    /// A notification that the gateway must reject, with its status.
    package struct Malformed: Error, Sendable, Hashable {
        package var status: BinaryStatus
        /// `nil` if the format has no identifier, or if it was not read before the failure.
        package var identifier: UInt32?
        /// `nil` if the first byte was not a command.
        package var command: BinaryCommand?
    }

    /// The maximum size of a frame in bytes: two items with the maximum two-byte length, and the small items. A longer
    /// frame cannot be valid and is rejected as soon as its header is read.
    package static let maxFrameSize = 2 * (3 + 65_535) + 7 + 7 + 4

    private let limits: Limits
    private var buffer = ByteBuffer()
    private var failure: Malformed?

    package init(limits: Limits = Limits()) {
        self.limits = limits
    }

    /// The number of bytes that belong to an incomplete notification.
    package var pendingBytes: Int { buffer.readableBytes }

    package mutating func append(_ bytes: inout ByteBuffer) {
        guard failure == nil else { return }
        // Without this, the buffer would keep all bytes ever read while some remain unread, and every read would copy
        // them.
        buffer.discardReadBytes()
        buffer.writeBuffer(&bytes)
    }

    /// Returns the next complete notification. `nil` if more bytes are needed.
    /// - Throws: The status of a bad notification. Every later call throws the same error.
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

    /// Reads a notification of command 0 or 1: a fixed header, the token, the payload.
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

    /// Reads a notification of command 2: a frame of items in any order.
    private mutating func nextFramed() throws(Malformed) -> BinaryNotification? {
        var bytes = buffer
        guard let (_, length) = bytes.readMultipleIntegers(as: (UInt8, UInt32).self) else { return nil }
        guard length > 0, length <= Self.maxFrameSize else {
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

package import NIOCore

/// The three formats of the legacy binary protocol, named by their first byte (apns-binary.md §3–§5).
package enum BinaryCommand: UInt8, Sendable, Hashable, CaseIterable {
    /// Token and payload only: a refusal cannot be attributed to a notification.
    case simple = 0
    /// With identifier and expiry.
    case enhanced = 1
    /// Items in a frame; one frame is one notification.
    case framed = 2
}

/// One notification of the legacy binary protocol, as a value.
package struct BinaryNotification: Sendable, Hashable {
    /// The most bytes that Apple ever named for a token (2018 edition: "up to 100 bytes").
    package static let longestToken = 100

    package var command: BinaryCommand
    package var token: [UInt8]
    /// UTF-8 JSON, never NUL-terminated.
    package var payload: ByteBuffer
    /// Nil where the format has none (command 0) or the item was left out (command 2).
    package var identifier: UInt32?
    /// UNIX seconds; 0 means one attempt and no storing. Nil where absent.
    package var expiration: UInt32?
    /// 10 or 5. Nil where absent; the gateway then assumes 10.
    package var priority: UInt8?

    package init(
        command: BinaryCommand = .framed, token: [UInt8], payload: ByteBuffer, identifier: UInt32? = nil,
        expiration: UInt32? = nil, priority: UInt8? = nil
    ) {
        self.command = command
        self.token = token
        self.payload = payload
        self.identifier = identifier
        self.expiration = expiration
        self.priority = priority
    }

    /// Appends the notification in the format of its command; all integers are big endian.
    ///
    /// Lengths are two bytes everywhere: a 256-byte payload is `01 00`, not the `00` of many old samples.
    /// - Precondition: token and payload are shorter than 65,536 bytes.
    package func write(to buffer: inout ByteBuffer) {
        let tokenLength = UInt16(token.count)
        let payloadLength = UInt16(payload.readableBytes)
        switch command {
        case .simple, .enhanced:
            buffer.writeInteger(command.rawValue)
            if command == .enhanced { buffer.writeMultipleIntegers(identifier ?? 0, expiration ?? 0) }
            buffer.writeInteger(tokenLength)
            buffer.writeBytes(token)
            buffer.writeInteger(payloadLength)
            buffer.writeImmutableBuffer(payload)
        case .framed:
            var length = Item.headerSize + token.count + Item.headerSize + payload.readableBytes
            if identifier != nil { length += Item.headerSize + 4 }
            if expiration != nil { length += Item.headerSize + 4 }
            if priority != nil { length += Item.headerSize + 1 }
            buffer.writeMultipleIntegers(command.rawValue, UInt32(length), Item.token.rawValue, tokenLength)
            buffer.writeBytes(token)
            buffer.writeMultipleIntegers(Item.payload.rawValue, payloadLength)
            buffer.writeImmutableBuffer(payload)
            if let identifier {
                buffer.writeMultipleIntegers(Item.identifier.rawValue, UInt16(4), identifier)
            }
            if let expiration {
                buffer.writeMultipleIntegers(Item.expiration.rawValue, UInt16(4), expiration)
            }
            if let priority {
                buffer.writeMultipleIntegers(Item.priority.rawValue, UInt16(1), priority)
            }
        }
    }

    /// A deliberately bad notification: a frame whose token has no bytes.
    ///
    /// The gateway answers it with ``BinaryStatus/missingDeviceToken`` and this identifier, which proves that it
    /// processed everything written before it (apns-binary.md §8, "graceful flush trick"). The connection ends with it.
    package static func sentinel(identifier: UInt32) -> BinaryNotification {
        BinaryNotification(token: [], payload: ByteBuffer(string: "{}"), identifier: identifier)
    }

    /// The items of a frame (apns-binary.md §5): id (1 byte), length (2 bytes), data.
    enum Item: UInt8 {
        case token = 1
        case payload = 2
        case identifier = 3
        case expiration = 4
        case priority = 5

        static let headerSize = 3
    }
}

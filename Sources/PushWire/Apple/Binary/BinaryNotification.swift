package import NIOCore

/// The three formats of the legacy binary protocol, named by their first byte. Sources: Apple, "Binary Provider API"
/// (command 2) and "Legacy Notification Format" (commands 0 and 1).
package enum BinaryCommand: UInt8, Sendable, Hashable, CaseIterable {
    /// Contains only token and payload. An error response cannot name the notification.
    case simple = 0
    /// Contains token and payload, identifier and expiration.
    case enhanced = 1
    /// A frame of items. Each frame is one notification.
    case framed = 2
}

/// One notification of the legacy binary protocol, as a value.
package struct BinaryNotification: Sendable, Hashable {
    /// The maximum size of a token in bytes. Apple's edition of 2018 says "up to 100 bytes".
    package static let longestToken = 100

    package var command: BinaryCommand
    package var token: [UInt8]
    /// JSON in UTF-8, never NUL-terminated.
    package var payload: ByteBuffer
    /// `nil` if the format has no identifier (command 0) or the item was left out (command 2).
    package var identifier: UInt32?
    /// UNIX seconds. 0 means one attempt without storage. `nil` if absent.
    package var expiration: UInt32?
    /// 10 or 5. `nil` if absent; the gateway then assumes 10.
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

    /// Appends the notification in the format of its command. All integers are big endian.
    ///
    /// Every length of a token, payload or item takes two bytes. The length of a 256-byte payload is `01 00`, not the
    /// `00` that many old samples write.
    /// - Precondition: Token and payload are shorter than 65,536 bytes.
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

    /// Returns a notification that is invalid on purpose: a frame whose token is empty.
    ///
    /// The gateway responds with ``BinaryStatus/missingDeviceToken`` and this identifier. The response proves that the
    /// gateway has processed everything written before. The gateway then ends the connection. Pushy 0.4.3 sends the
    /// same notification before it disconnects. See `docs/binary-gateway.md`.
    package static func sentinel(identifier: UInt32) -> BinaryNotification {
        BinaryNotification(token: [], payload: ByteBuffer(string: "{}"), identifier: identifier)
    }

    /// The items of a frame: id (1 byte), length (2 bytes), data (Apple, "Binary Provider API").
    enum Item: UInt8 {
        case token = 1
        case payload = 2
        case identifier = 3
        case expiration = 4
        case priority = 5

        static let headerSize = 3
    }
}

package import NIOCore

/// The six bytes that the legacy gateway writes before it closes: `08`, status, identifier (apns-binary.md §7).
///
/// The only thing that the gateway ever writes. The identifier names the bad notification, or with
/// ``BinaryStatus/shutdown`` the last good one; 0 says that the gateway does not know which.
package struct BinaryErrorResponse: Sendable, Hashable {
    package static let command: UInt8 = 8
    /// Bytes of the packet, always.
    package static let size = 6

    package var status: BinaryStatus
    /// The four bytes of the notification, read as big endian and otherwise opaque.
    package var identifier: UInt32

    package init(status: BinaryStatus, identifier: UInt32) {
        self.status = status
        self.identifier = identifier
    }

    package func write(to buffer: inout ByteBuffer) {
        buffer.writeMultipleIntegers(Self.command, status.rawValue, identifier)
    }

    /// Reads one packet; nil, with nothing consumed, while fewer than six bytes are there.
    /// - Throws: ``UnexpectedBytes`` when the first byte is not the command 8.
    package static func read(from buffer: inout ByteBuffer) throws(UnexpectedBytes) -> BinaryErrorResponse? {
        guard buffer.readableBytes >= size else { return nil }
        guard let (command, status, identifier) = buffer.readMultipleIntegers(as: (UInt8, UInt8, UInt32).self),
            command == Self.command
        else { throw UnexpectedBytes() }
        return BinaryErrorResponse(status: BinaryStatus(rawValue: status), identifier: identifier)
    }

    /// The peer sent something that is no error packet: it does not speak this protocol.
    package struct UnexpectedBytes: Error {}
}

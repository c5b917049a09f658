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

/// The status byte of the legacy gateway's error packet (apns-binary.md §7).
///
/// A struct and not an enum, because the real gateway has sent codes that no table of Apple's lists: an unknown
/// code is carried, never a crash. The byte is unsigned: 255 is `unknown`, not −1.
package struct BinaryStatus: RawRepresentable, Sendable, Hashable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    package static let noErrors = BinaryStatus(rawValue: 0)
    package static let processingError = BinaryStatus(rawValue: 1)
    package static let missingDeviceToken = BinaryStatus(rawValue: 2)
    package static let missingTopic = BinaryStatus(rawValue: 3)
    package static let missingPayload = BinaryStatus(rawValue: 4)
    package static let invalidTokenSize = BinaryStatus(rawValue: 5)
    package static let invalidTopicSize = BinaryStatus(rawValue: 6)
    package static let invalidPayloadSize = BinaryStatus(rawValue: 7)
    package static let invalidToken = BinaryStatus(rawValue: 8)
    /// The gateway is being closed for maintenance; the identifier names the last notification that succeeded.
    package static let shutdown = BinaryStatus(rawValue: 10)
    package static let protocolError = BinaryStatus(rawValue: 128)
    package static let unknown = BinaryStatus(rawValue: 255)

    /// Every status that Apple's tables list, in their order, with its reason.
    ///
    /// Source: "Local and Remote Notification Programming Guide", appendix "Binary Provider API", edition of 2018, the last.
    package static let documented: KeyValuePairs<BinaryStatus, String> = [
        .noErrors: "NoErrors", .processingError: "ProcessingError", .missingDeviceToken: "MissingDeviceToken",
        .missingTopic: "MissingTopic", .missingPayload: "MissingPayload", .invalidTokenSize: "InvalidTokenSize",
        .invalidTopicSize: "InvalidTopicSize", .invalidPayloadSize: "InvalidPayloadSize",
        .invalidToken: "InvalidToken", .shutdown: "Shutdown", .protocolError: "ProtocolError", .unknown: "Unknown",
    ]

    /// The reason as records and logs show it; `Status<n>` for a code that no table lists.
    package var name: String { Self.documented.first { $0.key == self }?.value ?? "Status\(rawValue)" }
}

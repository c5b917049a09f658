package import NIOCore

/// The six bytes that the legacy gateway writes before it closes: `08`, status, identifier (Apple, "Binary Provider
/// API").
///
/// The gateway never writes anything else. The identifier names the bad notification or, with
/// ``BinaryStatus/shutdown``, the last good one. The identifier is 0 if the gateway does not know which notification it
/// is.
package struct BinaryErrorResponse: Sendable, Hashable {
    package static let command: UInt8 = 8
    /// The size of the packet in bytes, which never varies.
    package static let size = 6

    package var status: BinaryStatus
    /// The four bytes of the notification's identifier, read as big endian and otherwise opaque.
    package var identifier: UInt32

    package init(status: BinaryStatus, identifier: UInt32) {
        self.status = status
        self.identifier = identifier
    }

    package func write(to buffer: inout ByteBuffer) {
        buffer.writeMultipleIntegers(Self.command, status.rawValue, identifier)
    }

    /// Reads one packet. Returns `nil`, with nothing consumed, if fewer than six bytes are available.
    /// - Throws: ``UnexpectedBytes`` if the first byte is not the command 8.
    package static func read(from buffer: inout ByteBuffer) throws(UnexpectedBytes) -> BinaryErrorResponse? {
        guard buffer.readableBytes >= size else { return nil }
        guard let (command, status, identifier) = buffer.readMultipleIntegers(as: (UInt8, UInt8, UInt32).self),
            command == Self.command
        else { throw UnexpectedBytes() }
        return BinaryErrorResponse(status: BinaryStatus(rawValue: status), identifier: identifier)
    }

    /// The peer sent bytes that are not an error packet, so it does not speak this protocol.
    package struct UnexpectedBytes: Error {}
}

/// The status byte of the legacy gateway's error packet.
///
/// A struct and not an enum, because the real gateway has sent codes that no table of Apple's lists, as the client
/// libraries Pushy 0.4.3 and rpush report. An unknown code is kept and never causes a crash. The byte is unsigned: 255
/// is `unknown`, not −1.
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
    /// The gateway is closing for maintenance. The identifier names the last notification that succeeded.
    package static let shutdown = BinaryStatus(rawValue: 10)
    package static let protocolError = BinaryStatus(rawValue: 128)
    package static let unknown = BinaryStatus(rawValue: 255)

    /// Every status of Apple's tables, in their order, with its reason.
    ///
    /// Source: Apple, "Local and Remote Notification Programming Guide", appendix "Binary Provider API", last edition
    /// (2018).
    package static let documented: KeyValuePairs<BinaryStatus, String> = [
        .noErrors: "NoErrors", .processingError: "ProcessingError", .missingDeviceToken: "MissingDeviceToken",
        .missingTopic: "MissingTopic", .missingPayload: "MissingPayload", .invalidTokenSize: "InvalidTokenSize",
        .invalidTopicSize: "InvalidTopicSize", .invalidPayloadSize: "InvalidPayloadSize",
        .invalidToken: "InvalidToken", .shutdown: "Shutdown", .protocolError: "ProtocolError", .unknown: "Unknown",
    ]

    /// The reason as records and logs show it. `Status<n>` for a code that no table lists.
    package var name: String { Self.documented.first { $0.key == self }?.value ?? "Status\(rawValue)" }
}

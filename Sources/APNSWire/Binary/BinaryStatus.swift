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

    /// Every status that Apple's tables list, in their order.
    package static let documented: [BinaryStatus] = [
        .noErrors, .processingError, .missingDeviceToken, .missingTopic, .missingPayload, .invalidTokenSize,
        .invalidTopicSize, .invalidPayloadSize, .invalidToken, .shutdown, .protocolError, .unknown,
    ]

    /// The reason as records and logs show it; `Status<n>` for a code that no table lists.
    package var name: String {
        switch self {
        case .noErrors: "NoErrors"
        case .processingError: "ProcessingError"
        case .missingDeviceToken: "MissingDeviceToken"
        case .missingTopic: "MissingTopic"
        case .missingPayload: "MissingPayload"
        case .invalidTokenSize: "InvalidTokenSize"
        case .invalidTopicSize: "InvalidTopicSize"
        case .invalidPayloadSize: "InvalidPayloadSize"
        case .invalidToken: "InvalidToken"
        case .shutdown: "Shutdown"
        case .protocolError: "ProtocolError"
        case .unknown: "Unknown"
        default: "Status\(rawValue)"
        }
    }
}

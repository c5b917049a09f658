/// Why a stream or a connection ends (RFC 9113 §7).
enum HTTP2Code: UInt32, Sendable {
    case noError, protocolError, internalError, flowControlError, settingsTimeout, streamClosed, frameSizeError
    case refusedStream, cancel, compressionError, connectError, enhanceYourCalm, inadequateSecurity, http11Required

    /// What a code is called in the RFC; a number where it is not in it.
    static func name(_ code: UInt32) -> String {
        switch HTTP2Code(rawValue: code) {
        case .noError: "NO_ERROR"
        case .protocolError: "PROTOCOL_ERROR"
        case .internalError: "INTERNAL_ERROR"
        case .flowControlError: "FLOW_CONTROL_ERROR"
        case .settingsTimeout: "SETTINGS_TIMEOUT"
        case .streamClosed: "STREAM_CLOSED"
        case .frameSizeError: "FRAME_SIZE_ERROR"
        case .refusedStream: "REFUSED_STREAM"
        case .cancel: "CANCEL"
        case .compressionError: "COMPRESSION_ERROR"
        case .connectError: "CONNECT_ERROR"
        case .enhanceYourCalm: "ENHANCE_YOUR_CALM"
        case .inadequateSecurity: "INADEQUATE_SECURITY"
        case .http11Required: "HTTP_1_1_REQUIRED"
        case nil: "code \(code)"
        }
    }
}

/// The peer has broken the rules in a way that ends the connection.
///
/// Also where the RFC would end only a stream: no peer that can be worked with sends malformed frames.
struct HTTP2Failure: Error, Sendable, Hashable, CustomStringConvertible {
    /// What the peer is told.
    let code: HTTP2Code
    /// What we say about it.
    let text: String

    init(_ code: HTTP2Code, _ text: String) {
        self.code = code
        self.text = text
    }

    var description: String { "\(text) (\(HTTP2Code.name(code.rawValue)))" }
}

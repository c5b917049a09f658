package import NIOCore

/// One line of the feedback service's list: since when a token is no longer wanted (apns-feedback.md §2).
package struct FeedbackTuple: Sendable, Hashable {
    /// UNIX seconds, unsigned: when the gateway found that the app was gone.
    package var timestamp: UInt32
    package var token: [UInt8]

    package init(timestamp: UInt32, token: [UInt8]) {
        self.timestamp = timestamp
        self.token = token
    }

    /// - Precondition: the token is shorter than 65,536 bytes.
    package func write(to buffer: inout ByteBuffer) {
        buffer.writeMultipleIntegers(timestamp, UInt16(token.count))
        buffer.writeBytes(token)
    }

    /// Reads one tuple by its length field; nil, with nothing consumed, while its last byte has not come.
    package static func read(from buffer: inout ByteBuffer) -> FeedbackTuple? {
        guard let length = buffer.getInteger(at: buffer.readerIndex + 4, as: UInt16.self),
            buffer.readableBytes >= 6 + Int(length),
            let (timestamp, _) = buffer.readMultipleIntegers(as: (UInt32, UInt16).self),
            let token = buffer.readBytes(length: Int(length))
        else { return nil }
        return FeedbackTuple(timestamp: timestamp, token: token)
    }
}

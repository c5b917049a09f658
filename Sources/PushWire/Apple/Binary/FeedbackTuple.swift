package import NIOCore

/// One tuple of the feedback service's list: a token, and the time at which the gateway found that the app was gone
/// (Apple, "Binary Provider API", section "The Feedback Service").
package struct FeedbackTuple: Sendable, Hashable {
    /// UNIX seconds, unsigned.
    package var timestamp: UInt32
    package var token: [UInt8]

    package init(timestamp: UInt32, token: [UInt8]) {
        self.timestamp = timestamp
        self.token = token
    }

    /// Appends the tuple. All integers are big endian.
    /// - Precondition: The token is shorter than 65,536 bytes.
    package func write(to buffer: inout ByteBuffer) {
        buffer.writeMultipleIntegers(timestamp, UInt16(token.count))
        buffer.writeBytes(token)
    }

    /// Reads one tuple, whose length field gives its size. Returns `nil`, with nothing consumed, if it is incomplete.
    package static func read(from buffer: inout ByteBuffer) -> FeedbackTuple? {
        guard let length = buffer.getInteger(at: buffer.readerIndex + 4, as: UInt16.self),
            buffer.readableBytes >= 6 + Int(length),
            let (timestamp, _) = buffer.readMultipleIntegers(as: (UInt32, UInt16).self),
            let token = buffer.readBytes(length: Int(length))
        else { return nil }
        return FeedbackTuple(timestamp: timestamp, token: token)
    }
}

import NIOCore
import NIOHPACK

/// Parses a server's bytes into events, and rejects violations of RFC 9113.
///
/// A pure value without a socket. It keeps at most one incomplete frame, one incomplete header block, and the table for
/// header compression. It does not know which streams are still open, so frames for closed streams are also events.
struct FrameReader: Sendable {
    /// The maximum size of a response's headers in bytes, compressed and as a list. The headers of push services have a
    /// few hundred bytes.
    static let maxHeaderBytes = 16 << 10
    /// The maximum number of frames that continue a header block.
    static let continuations = 16

    /// A header block that continues in the next frame.
    private struct Block {
        let stream: Int
        let endsStream: Bool
        var bytes: ByteBuffer
        var continuations = 0
    }

    private var unread = ByteBuffer()
    private var block: Block?
    private var hasSettings = false
    private var decoder = HPACKDecoder(
        allocator: ByteBufferAllocator(), maxDynamicTableSize: HPACKDecoder.maxDynamicTableSize,
        maxHeaderListSize: maxHeaderBytes)

    /// Adds bytes. The caller must read all events before the next call.
    mutating func feed(_ bytes: ByteBuffer) {
        guard unread.readableBytes > 0 else {
            unread = bytes
            return
        }
        // The buffer must not keep bytes that were read.
        unread.discardReadBytes()
        unread.writeImmutableBuffer(bytes)
    }

    /// Reads the next frame.
    /// - Parameter lastStream: The last stream that the relay has opened. The peer must not name a higher one.
    /// - Returns: The frame's event. `nil` if more bytes are needed.
    mutating func next(lastStream: Int) throws(HTTP2Failure) -> PeerEvent? {
        guard let header = FrameHeader(peekingAt: unread) else { return nil }
        guard header.length <= FrameHeader.defaultPayload else {
            throw HTTP2Failure(.frameSizeError, "a frame of \(header.length) bytes")
        }
        let type = FrameType(rawValue: header.type)
        if !hasSettings {
            guard type == .settings, !header.flags.contains(.ack) else {
                throw HTTP2Failure(.protocolError, "the first frame is not SETTINGS")
            }
        }
        if let block, type != .continuation || header.stream != block.stream {
            throw HTTP2Failure(.protocolError, "another frame within a header block")
        }
        guard unread.readableBytes >= FrameHeader.size + header.length else { return nil }
        unread.moveReaderIndex(forwardBy: FrameHeader.size)
        guard var payload = unread.readSlice(length: header.length) else { return nil }
        guard let type else { return .nothing }
        return try event(type, header, &payload, lastStream: lastStream)
    }

    private mutating func event(
        _ type: FrameType, _ header: FrameHeader, _ payload: inout ByteBuffer, lastStream: Int
    ) throws(HTTP2Failure) -> PeerEvent {
        switch type {
        case .data:
            try Self.requireOpened(header, lastStream)
            try Self.removePadding(header, &payload)
            return .data(
                stream: header.stream, bytes: payload, endsStream: header.flags.contains(.endStream),
                size: header.length)
        case .headers:
            try Self.requireOpened(header, lastStream)
            try Self.removePadding(header, &payload)
            if header.flags.contains(.priority), payload.readSlice(length: 5) == nil { throw Self.badSize }
            let endsStream = header.flags.contains(.endStream)
            if header.flags.contains(.endHeaders) {
                return try decode(&payload, stream: header.stream, endsStream: endsStream)
            }
            block = Block(stream: header.stream, endsStream: endsStream, bytes: payload)
            return .nothing
        case .continuation:
            return try continueHeaders(header, payload)
        case .priority:
            guard header.stream > 0 else { throw HTTP2Failure(.protocolError, "a PRIORITY frame without a stream") }
            guard header.length == 5 else { throw Self.badSize }
            return .nothing
        case .reset:
            try Self.requireOpened(header, lastStream)
            guard header.length == 4, let code = payload.readInteger(as: UInt32.self) else { throw Self.badSize }
            return .reset(stream: header.stream, code: code)
        case .settings:
            return try settings(header, &payload)
        case .pushPromise:
            throw HTTP2Failure(.protocolError, "a server push, which is not allowed")
        case .ping:
            try Self.requireConnection(header)
            guard header.length == 8, let opaque = payload.readInteger(as: UInt64.self) else { throw Self.badSize }
            return header.flags.contains(.ack) ? .nothing : .ping(opaque)
        case .goAway:
            try Self.requireConnection(header)
            guard let (last, code) = payload.readMultipleIntegers(as: (UInt32, UInt32).self) else { throw Self.badSize }
            return .goAway(lastStream: Int(last & 0x7fff_ffff), code: code, debug: payload)
        case .windowUpdate:
            if header.stream > 0 { try Self.requireOpened(header, lastStream) }
            guard header.length == 4, let word = payload.readInteger(as: UInt32.self) else { throw Self.badSize }
            let increment = Int(word & 0x7fff_ffff)
            guard increment > 0 else { throw HTTP2Failure(.protocolError, "a window update of 0") }
            return .windowUpdate(stream: header.stream, increment: increment)
        }
    }

    private mutating func settings(
        _ header: FrameHeader, _ payload: inout ByteBuffer
    ) throws(HTTP2Failure) -> PeerEvent {
        try Self.requireConnection(header)
        if header.flags.contains(.ack) {
            guard header.length == 0 else { throw Self.badSize }
            return .nothing
        }
        guard header.length.isMultiple(of: 6) else { throw Self.badSize }
        hasSettings = true
        return .settings(try PeerSettings(reading: &payload))
    }

    // MARK: Headers

    private mutating func continueHeaders(_ header: FrameHeader, _ payload: ByteBuffer) throws(HTTP2Failure)
        -> PeerEvent
    {
        guard var block else { throw HTTP2Failure(.protocolError, "a CONTINUATION frame outside a header block") }
        // Removes the second reference, so that appending does not copy the bytes.
        self.block = nil
        block.continuations += 1
        block.bytes.writeImmutableBuffer(payload)
        guard block.continuations <= Self.continuations, block.bytes.readableBytes <= Self.maxHeaderBytes else {
            throw HTTP2Failure(.enhanceYourCalm, "a header block that does not end")
        }
        if header.flags.contains(.endHeaders) {
            return try decode(&block.bytes, stream: block.stream, endsStream: block.endsStream)
        }
        self.block = block
        return .nothing
    }

    /// Also decodes headers that are not used, because each block may change the table for the next.
    private mutating func decode(
        _ bytes: inout ByteBuffer, stream: Int, endsStream: Bool
    ) throws(HTTP2Failure) -> PeerEvent {
        let headers: HPACKHeaders
        do {
            headers = try decoder.decodeHeaders(from: &bytes)
        } catch is NIOHPACKErrors.MaxHeaderListSizeViolation {
            throw HTTP2Failure(.enhanceYourCalm, "headers of more than \(Self.maxHeaderBytes) bytes")
        } catch {
            throw HTTP2Failure(.compressionError, "headers that cannot be decoded: \(error)")
        }
        let status = headers.first(name: ":status").flatMap { $0.utf8.count == 3 ? UInt16($0).map(Int.init) : nil }
        // Only error responses need the field. All responses pass through here, so skip the lookup for others.
        let retryAfter = (status ?? 0) >= 400 ? headers.first(name: "retry-after") : nil
        return .headers(stream: stream, status: status, retryAfter: retryAfter, endsStream: endsStream)
    }

    // MARK: Rules

    private static let badSize = HTTP2Failure(.frameSizeError, "a frame of the wrong length")

    private static func requireConnection(_ header: FrameHeader) throws(HTTP2Failure) {
        guard header.stream == 0 else {
            throw HTTP2Failure(.protocolError, "a frame for the connection on stream \(header.stream)")
        }
    }

    /// Requires a stream that the relay has opened. A server must not open streams.
    private static func requireOpened(_ header: FrameHeader, _ lastStream: Int) throws(HTTP2Failure) {
        guard header.stream <= lastStream, !header.stream.isMultiple(of: 2) else {
            throw HTTP2Failure(.protocolError, "a frame on stream \(header.stream), which was not opened")
        }
    }

    private static func removePadding(_ header: FrameHeader, _ payload: inout ByteBuffer) throws(HTTP2Failure) {
        guard header.flags.contains(.padded) else { return }
        guard let padding = payload.readInteger(as: UInt8.self) else { throw badSize }
        guard Int(padding) <= payload.readableBytes else {
            throw HTTP2Failure(.protocolError, "more padding than the frame has bytes")
        }
        payload.moveWriterIndex(to: payload.writerIndex - Int(padding))
    }
}

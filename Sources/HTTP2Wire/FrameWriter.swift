package import NIOCore
import NIOHPACK

/// Writes a client's frames into a buffer, as far as the peer's windows allow.
///
/// A pure value without a socket. Bodies that do not fit into a window wait here and are completed when the window
/// grows.
package struct FrameWriter: Sendable {
    /// The initial window of each side in bytes (RFC 9113 §6.9.2).
    static let initialWindow = 65_535
    /// The maximum size in bytes of the table for header compression, even if the peer offers more.
    private static let headerTable = HPACKEncoder.defaultDynamicTableSize
    private static let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    /// The unsent part of a body.
    private struct UnsentBody {
        var bytes: ArraySlice<UInt8>
        /// The window of its stream in bytes. Negative if the peer has lowered its initial window.
        var window: Int
    }

    private var output = ByteBuffer()
    /// The number of body bytes that the peer accepts on all streams together.
    private(set) var window = initialWindow
    private var streamWindow = initialWindow
    private var frameSize = FrameHeader.defaultPayload
    private var unsent: [Int: UnsentBody] = [:]
    /// The encoder of headers. It does not use Huffman coding, which would save a third of the hexadecimal digits,
    /// forty bytes per push, but would cost a fifth of the speed.
    private var encoder = HPACKEncoder(
        allocator: ByteBufferAllocator(), useHuffmanEncoding: false, maxDynamicTableSize: headerTable)

    package init() {}

    /// The number of bytes to send.
    var size: Int { output.readableBytes }

    /// Returns the bytes to send, and removes them. `nil` if there are none.
    package mutating func take() -> ByteBuffer? {
        guard output.readableBytes > 0 else { return nil }
        defer { output = ByteBuffer() }
        return output
    }

    /// Reuses the memory of sent bytes, so that the next flush need not allocate a buffer.
    mutating func reuse(_ sent: consuming ByteBuffer) {
        guard output.storageCapacity == 0 else { return }
        sent.clear()
        output = sent
    }

    // MARK: Requests

    /// Writes a whole request, or its headers and as much of its body as the windows allow.
    mutating func open(_ stream: Int, headers: HPACKHeaders, body: [UInt8]) throws(HTTP2Failure) {
        let start = output.writerIndex
        output.writeFrameHeader(FrameHeader(length: 0, type: .headers, flags: .endHeaders, stream: stream))
        do {
            try encoder.encode(headers: headers, to: &output)
        } catch {
            throw HTTP2Failure(.internalError, "headers that cannot be encoded: \(error)")
        }
        let length = output.writerIndex - start - FrameHeader.size
        if length <= frameSize {
            output.setFrameLength(length, at: start)
        } else {
            split(from: start, stream: stream)
        }
        var rest = UnsentBody(bytes: body[...], window: streamWindow)
        if !write(&rest, on: stream) { unsent[stream] = rest }
    }

    /// Splits a header block that is too long for one frame into several frames.
    private mutating func split(from start: Int, stream: Int) {
        let first = start + FrameHeader.size
        guard var block = output.getSlice(at: first, length: output.writerIndex - first) else { return }
        output.moveWriterIndex(to: start)
        var type = FrameType.headers
        while let part = block.readSlice(length: min(frameSize, block.readableBytes)), part.readableBytes > 0 {
            let flags: FrameFlags = block.readableBytes == 0 ? .endHeaders : []
            output.writeFrameHeader(
                FrameHeader(length: part.readableBytes, type: type, flags: flags, stream: stream))
            output.writeImmutableBuffer(part)
            type = .continuation
        }
    }

    /// Writes as much of a body as the windows allow.
    /// - Returns: Whether the whole body is written.
    private mutating func write(_ rest: inout UnsentBody, on stream: Int) -> Bool {
        repeat {
            let size = min(rest.bytes.count, window, rest.window, frameSize)
            guard size > 0 || rest.bytes.isEmpty else { return false }
            let isLast = size == rest.bytes.count
            output.writeFrameHeader(
                FrameHeader(length: size, type: .data, flags: isLast ? .endStream : [], stream: stream))
            output.writeBytes(rest.bytes.prefix(size))
            rest.bytes = rest.bytes.dropFirst(size)
            window -= size
            rest.window -= size
        } while !rest.bytes.isEmpty
        return true
    }

    /// Whether a stream's body is still incomplete.
    func hasUnsentBody(_ stream: Int) -> Bool { !unsent.isEmpty && unsent[stream] != nil }

    /// Ends a stream early.
    mutating func reset(_ stream: Int, _ code: HTTP2Code) {
        drop(stream)
        output.writeFrameHeader(FrameHeader(length: 4, type: .reset, stream: stream))
        output.writeInteger(code.rawValue)
    }

    /// Discards the rest of a stream's body, because the stream is closed.
    mutating func drop(_ stream: Int) {
        if !unsent.isEmpty { unsent[stream] = nil }
    }

    /// Discards the bodies of all streams after `last`, because the peer does not process them.
    mutating func drop(above last: Int) {
        unsent = unsent.filter { $0.key <= last }
    }

    // MARK: The connection

    /// Writes the start of a connection: the preface, and SETTINGS without server push and with a limit on headers. All
    /// other settings keep the RFC's defaults.
    mutating func begin() {
        output.writeString(Self.preface)
        output.writeFrameHeader(FrameHeader(length: 12, type: .settings))
        output.writeMultipleIntegers(UInt16(0x2), UInt32(0), UInt16(0x6), UInt32(FrameReader.maxHeaderBytes))
    }

    mutating func acknowledgeSettings() {
        output.writeFrameHeader(FrameHeader(length: 0, type: .settings, flags: .ack))
    }

    mutating func ping(_ opaque: UInt64 = 0, isResponse: Bool = false) {
        output.writeFrameHeader(FrameHeader(length: 8, type: .ping, flags: isResponse ? .ack : []))
        output.writeInteger(opaque)
    }

    /// Allows the peer to send more on all streams together.
    mutating func increaseWindow(by increment: Int) {
        output.writeFrameHeader(FrameHeader(length: 4, type: .windowUpdate))
        output.writeInteger(UInt32(truncatingIfNeeded: increment))
    }

    package mutating func goAway(_ code: HTTP2Code) {
        output.writeFrameHeader(FrameHeader(length: 8, type: .goAway))
        output.writeMultipleIntegers(UInt32(0), code.rawValue)
    }

    // MARK: Limits of the peer

    mutating func apply(_ settings: PeerSettings) throws(HTTP2Failure) {
        for size in [settings.minHeaderTable, settings.headerTable] {
            guard let size else { continue }
            do {
                try encoder.setDynamicTableSize(min(size, Self.headerTable))
            } catch {
                throw HTTP2Failure(.internalError, "a header table that cannot be allocated: \(error)")
            }
        }
        frameSize = settings.frameSize ?? frameSize
        guard let size = settings.streamWindow else { return }
        let growth = size - streamWindow
        streamWindow = size
        guard !unsent.isEmpty else { return }
        for stream in unsent.keys { try increaseWindow(of: stream, by: growth) }
        finish()
    }

    /// Applies a window update of the peer, and writes the waiting bodies that fit now.
    /// - Parameter stream: 0 for the connection's window. The update is ignored if the stream's body is already
    ///   written.
    mutating func received(increment: Int, on stream: Int) throws(HTTP2Failure) {
        if stream > 0 {
            try increaseWindow(of: stream, by: increment)
            finish(stream)
        } else {
            window += increment
            guard window <= PeerSettings.maxWindow else { throw Self.windowOverflow }
            finish()
        }
    }

    private mutating func increaseWindow(of stream: Int, by increment: Int) throws(HTTP2Failure) {
        guard hasUnsentBody(stream), let window = unsent[stream]?.window else { return }
        guard window + increment <= PeerSettings.maxWindow else { throw Self.windowOverflow }
        unsent[stream]?.window = window + increment
    }

    private static let windowOverflow = HTTP2Failure(.flowControlError, "a window beyond 2^31 - 1")

    /// Continues incomplete bodies, those of the oldest streams first.
    private mutating func finish() {
        guard !unsent.isEmpty else { return }
        for stream in unsent.keys.sorted() where window > 0 { finish(stream) }
    }

    /// Continues the body of one stream, as far as the windows allow.
    private mutating func finish(_ stream: Int) {
        guard hasUnsentBody(stream), var rest = unsent[stream] else { return }
        unsent[stream] = write(&rest, on: stream) ? nil : rest
    }
}

import NIOCore

/// A handler between HTTP/2 and TLS. It collects writes until they are flushed, and holds them back while a fault
/// pauses the connection. It also separates the library's stream limit from the client's.
///
/// NIOHTTP2 ends the connection if a client exceeds the limit that it has acknowledged. A gateway refuses only the
/// stream. So the library gets ``StreamLimit`` plus ``headroom``, and the client gets the limit itself.
final class WriteBuffer: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// A bit that no stream limit of the sandbox sets.
    static let headroom = 1 << 30
    /// The number of bytes to collect before they are written without a flush.
    private static let limit = 256 << 10

    private static let headerSize = 9
    private static let settingsType: UInt8 = 4
    private static let goAwayType: UInt8 = 7
    private static let goAwaySize = 17
    private static let settingSize = 6
    private static let streamLimitParameter: UInt16 = 3

    private var context: ChannelHandlerContext?
    private var pending = ByteBuffer()
    private var isPaused = false
    private var isFlushHeldBack = false
    /// Whether the library has ended the connection with its own GOAWAY.
    private(set) var isEndedByLibrary = false

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
    }

    /// Holds back all writes until ``resume()``.
    func pause() {
        isPaused = true
    }

    /// Resumes writing, and writes first what was held back.
    func resume() {
        isPaused = false
        if isFlushHeldBack {
            isFlushHeldBack = false
            flush()
        }
    }

    /// Flushes pending bytes. The library passes on a flush only after it has written a frame.
    func flush() {
        if let context, pending.readableBytes > 0 { flush(context: context) }
    }

    /// Writes a GOAWAY without the library. After a GOAWAY by the library, the library would refuse streams that this
    /// GOAWAY still allows.
    func writeGoAway(lastStream: Int, code: Int, text: String) {
        let size = Self.goAwaySize - Self.headerSize + text.utf8.count
        pending.writeInteger(UInt8(size >> 16))
        pending.writeInteger(UInt16(size & 0xFFFF))
        pending.writeInteger(Self.goAwayType)
        pending.writeInteger(UInt8(0))
        pending.writeInteger(UInt32(0))
        pending.writeInteger(UInt32(lastStream))
        pending.writeInteger(UInt32(code))
        pending.writeString(text)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        var bytes = unwrapOutboundIn(data)
        inspect(&bytes)
        pending.writeBuffer(&bytes)
        // No handler waits for a frame to be written.
        promise?.succeed()
        if pending.readableBytes >= Self.limit, !isPaused { writePending(context: context) }
    }

    func flush(context: ChannelHandlerContext) {
        guard !isPaused else {
            isFlushHeldBack = true
            return
        }
        writePending(context: context)
        context.flush()
    }

    private func writePending(context: ChannelHandlerContext) {
        guard pending.readableBytes > 0 else { return }
        context.write(wrapOutboundOut(pending), promise: nil)
        pending = context.channel.allocator.buffer(capacity: 4096)
    }

    /// Inspects a write of the library: a whole frame, a frame's header, or the rest of a frame. The rest of a frame is
    /// the JSON of a response, which resembles neither GOAWAY nor SETTINGS.
    private func inspect(_ bytes: inout ByteBuffer) {
        let start = bytes.readerIndex
        guard bytes.readableBytes >= Self.headerSize, let type: UInt8 = bytes.getInteger(at: start + 3) else { return }
        switch type {
        case Self.goAwayType where bytes.readableBytes == Self.goAwaySize:
            isEndedByLibrary = true
        case Self.settingsType where (bytes.readableBytes - Self.headerSize).isMultiple(of: Self.settingSize):
            var offset = start + Self.headerSize
            while offset < bytes.writerIndex {
                if bytes.getInteger(at: offset) == Self.streamLimitParameter,
                    let value: UInt32 = bytes.getInteger(at: offset + 2)
                {
                    bytes.setInteger(value & ~UInt32(Self.headroom), at: offset + 2)
                }
                offset += Self.settingSize
            }
        default: break
        }
    }
}

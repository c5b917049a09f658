import NIOCore

/// Stands between HTTP/2 and TLS: collects what is written until it is flushed, holds it back while a fault pauses the
/// connection, and keeps the library's stream limit apart from the one that the client is told.
///
/// NIOHTTP2 ends the connection when a client exceeds the limit that it has acknowledged. A gateway refuses only the
/// stream, so the library is told ``StreamLimit`` plus ``headroom``, and the client the limit itself.
final class WriteBuffer: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// A bit that no stream limit of the sandbox has.
    static let headroom = 1 << 30
    /// Bytes that are collected before they are written without a flush.
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
    /// The library has ended the connection with a GOAWAY of its own.
    private(set) var isEndedByLibrary = false

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
    }

    /// Writes nothing from now on.
    func pause() {
        isPaused = true
    }

    /// Writes again, beginning with what was held back.
    func resume() {
        isPaused = false
        if isFlushHeldBack {
            isFlushHeldBack = false
            flush()
        }
    }

    /// Writes what is still here; the library passes a flush on only after a frame of its own.
    func flush() {
        if let context, pending.readableBytes > 0 { flush(context: context) }
    }

    /// Writes a GOAWAY past the library, which after one of its own would refuse streams that this one still allows.
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

    /// Reads a write of the library: a whole frame, its header, or its rest, which is an answer's JSON and resembles
    /// neither of the two frames that count here.
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

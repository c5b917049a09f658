import NIOCore

/// Stands between HTTP/2 and TLS: gathers what is written until it is flushed, holds it back while the connection plays
/// dead, and keeps the library's stream limit apart from ours.
///
/// NIOHTTP2 ends the connection when a client goes over the limit that it has acknowledged. A gateway refuses only the
/// stream, so the library is told ``StreamLimit`` plus ``headroom``, and the client is told the limit itself.
final class WireValve: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// A bit that no limit of ours has.
    static let headroom = 1 << 30
    /// Bytes that are gathered before they are written without a flush.
    private static let gatheredLimit = 256 << 10

    private static let headerSize = 9
    private static let settingsType: UInt8 = 4
    private static let goAwayType: UInt8 = 7
    private static let goAwaySize = 17
    private static let settingSize = 6
    private static let streamLimitParameter: UInt16 = 3

    private var context: ChannelHandlerContext?
    private var gathered = ByteBuffer()
    private var isShut = false
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
    func shut() {
        isShut = true
    }

    /// Writes again, beginning with what was held back.
    func open() {
        isShut = false
        if isFlushHeldBack {
            isFlushHeldBack = false
            flush()
        }
    }

    /// Writes what is still here; the library passes a flush on only after a frame of its own.
    func flush() {
        if let context, gathered.readableBytes > 0 { flush(context: context) }
    }

    /// Writes a GOAWAY without the library's knowing: after one of its own it would refuse streams that ours still allows.
    func writeGoAway(lastStream: Int, code: Int, text: String) {
        let size = Self.goAwaySize - Self.headerSize + text.utf8.count
        gathered.writeInteger(UInt8(size >> 16))
        gathered.writeInteger(UInt16(size & 0xFFFF))
        gathered.writeInteger(Self.goAwayType)
        gathered.writeInteger(UInt8(0))
        gathered.writeInteger(UInt32(0))
        gathered.writeInteger(UInt32(lastStream))
        gathered.writeInteger(UInt32(code))
        gathered.writeString(text)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        var bytes = unwrapOutboundIn(data)
        inspect(&bytes)
        gathered.writeBuffer(&bytes)
        // Nobody here asks when a frame was written.
        promise?.succeed()
        if gathered.readableBytes >= Self.gatheredLimit, !isShut { writeGathered(context: context) }
    }

    func flush(context: ChannelHandlerContext) {
        guard !isShut else {
            isFlushHeldBack = true
            return
        }
        writeGathered(context: context)
        context.flush()
    }

    private func writeGathered(context: ChannelHandlerContext) {
        guard gathered.readableBytes > 0 else { return }
        context.write(wrapOutboundOut(gathered), promise: nil)
        gathered = context.channel.allocator.buffer(capacity: 4096)
    }

    /// Looks at a write of the library: a whole frame, or its header, or the rest of one, which is JSON of ours and looks
    /// like neither of the two frames that count here.
    private func inspect(_ bytes: inout ByteBuffer) {
        let start = bytes.readerIndex
        guard bytes.readableBytes >= Self.headerSize, let type: UInt8 = bytes.getInteger(at: start + 3) else { return }
        switch type {
        case Self.goAwayType where bytes.readableBytes == Self.goAwaySize:
            isEndedByLibrary = true
        case Self.settingsType where (bytes.readableBytes - Self.headerSize).isMultiple(of: Self.settingSize):
            var place = start + Self.headerSize
            while place < bytes.writerIndex {
                if bytes.getInteger(at: place) == Self.streamLimitParameter,
                    let value: UInt32 = bytes.getInteger(at: place + 2)
                {
                    bytes.setInteger(value & ~UInt32(Self.headroom), at: place + 2)
                }
                place += Self.settingSize
            }
        default: break
        }
    }
}

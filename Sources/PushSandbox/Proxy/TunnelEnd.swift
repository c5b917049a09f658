import NIOCore

/// One end of a tunnel. It passes bytes on to the other end, which has the same event loop.
///
/// An end reads only while the other end can write, so no more than a channel's write buffer waits. The end of one
/// direction is passed on, and the other direction goes on.
final class TunnelEnd: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var other: TunnelEnd?
    private var context: ChannelHandlerContext?
    private var isReadHeldBack = false
    private var isInputEnded = false
    private var isOutputEnded = false

    private init() {}

    static func pair() -> (TunnelEnd, TunnelEnd) {
        let (one, two) = (TunnelEnd(), TunnelEnd())
        one.other = two
        two.other = one
        return (one, two)
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        other = nil
    }

    func read(context: ChannelHandlerContext) {
        if other?.isWritable ?? true { context.read() } else { isReadHeldBack = true }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard let far = other?.context else { return }
        far.write(data, promise: nil)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        other?.context?.flush()
        context.fireChannelReadComplete()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { other?.resumeReading() }
        context.fireChannelWritabilityChanged()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case ChannelEvent.inputClosed = event { endInput() }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) {
        other?.otherClosed()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    /// Passes on the end of what this end reads.
    func endInput() {
        isInputEnded = true
        other?.endOutput()
    }

    private func resumeReading() {
        guard isReadHeldBack, let context else { return }
        isReadHeldBack = false
        context.read()
    }

    private var isWritable: Bool { context?.channel.isWritable ?? false }

    private func endOutput() {
        guard !isOutputEnded else { return }
        isOutputEnded = true
        // NIO first writes what waits.
        context?.close(mode: .output, promise: nil)
    }

    /// Closes this end, unless NIO closes it once everything is written.
    private func otherClosed() {
        guard !(isInputEnded && isOutputEnded) else { return }
        context?.close(promise: nil)
    }
}

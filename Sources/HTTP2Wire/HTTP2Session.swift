package import NIOCore
package import NIOHPACK

/// The client side of an HTTP/2 connection, without its socket (RFC 9113), as far as senders of pushes need it.
///
/// It answers SETTINGS and PING, keeps the windows of both sides, and ends a connection that is flooded. Its owner knows
/// which streams are open, and gets the frames for closed ones, too. Of our receive windows only the connection's is
/// enforced, not the streams': the bodies of answers are bounded where they are read.
package struct HTTP2Session: Sendable {
    /// What a peer may send, and how long.
    struct Limits: Sendable {
        /// Frames in each ``interval``, whatever they are. Apple changes the limit of streams as it likes.
        var frames = 20_000
        /// And as many more for each stream that we open.
        var framesPerStream = 8
        /// Frames that ask for an acknowledgement, while the peer does not read what we write.
        var acknowledgements = 5_000
        var interval = TimeAmount.seconds(30)
    }

    private let limits: Limits
    private var reader = FrameReader()
    private var writer = FrameWriter()
    /// The highest stream that we have opened.
    private var lastStream = 0
    /// Frames that the peer may still send before ``intervalEnd``.
    private var framesLeft: Int
    private var intervalEnd = NIODeadline.distantPast
    /// Written since the peer was last known to read what we write.
    private var acknowledgements = 0
    /// Bytes of bodies that the peer may send.
    private var inboundWindow = FrameWriter.firstWindow

    package init() { self.init(limits: Limits()) }

    init(limits: Limits) {
        self.limits = limits
        framesLeft = limits.frames
        writer.begin()
    }

    // MARK: From the peer

    /// Adds bytes; ``next()`` is to be called until it returns nil.
    package mutating func feed(_ bytes: ByteBuffer, now: NIODeadline) {
        if now >= intervalEnd {
            intervalEnd = now + limits.interval
            framesLeft = limits.frames
        }
        reader.feed(bytes)
    }

    /// The next frame's event; nil until more bytes come. Not to be called after an error.
    package mutating func next() throws(HTTP2Failure) -> PeerEvent? {
        guard let event = try reader.next(lastStream: lastStream) else { return nil }
        framesLeft -= 1
        guard framesLeft >= 0 else { throw HTTP2Failure(.enhanceYourCalm, "a flood of frames") }
        switch event {
        case .settings(let settings):
            try noteAcknowledgement()
            writer.acknowledgeSettings()
            try writer.apply(settings)
        case .ping(let opaque):
            try noteAcknowledgement()
            writer.ping(opaque, isResponse: true)
        case .windowUpdate(let stream, let increment):
            try writer.received(increment: increment, on: stream)
        case .data(_, _, _, let size):
            inboundWindow -= size
            guard inboundWindow >= 0 else { throw HTTP2Failure(.flowControlError, "more than the window allows") }
            guard inboundWindow < FrameWriter.firstWindow / 2 else { break }
            writer.increaseWindow(by: FrameWriter.firstWindow - inboundWindow)
            inboundWindow = FrameWriter.firstWindow
        case .reset(let stream, _):
            writer.drop(stream)
        case .goAway(let last, _, _):
            writer.drop(above: last)
        case .headers, .nothing:
            break
        }
        return event
    }

    private mutating func noteAcknowledgement() throws(HTTP2Failure) {
        acknowledgements += 1
        guard acknowledgements <= limits.acknowledgements else {
            throw HTTP2Failure(.enhanceYourCalm, "it sends requests for acknowledgement and does not read the answers")
        }
    }

    // MARK: To the peer

    /// Whether the peer's window allows a byte of another body.
    package var hasSendWindow: Bool { writer.window > 0 }

    /// Whether a stream's request is still to be finished.
    package func hasUnsentBody(_ stream: Int) -> Bool { writer.hasUnsentBody(stream) }

    /// - Parameter stream: an odd number above all before.
    package mutating func open(_ stream: Int, headers: HPACKHeaders, body: [UInt8]) throws(HTTP2Failure) {
        lastStream = stream
        framesLeft += limits.framesPerStream
        try writer.open(stream, headers: headers, body: body)
    }

    package mutating func reset(_ stream: Int, _ code: HTTP2Code) { writer.reset(stream, code) }

    package mutating func ping() { writer.ping() }

    /// The last that is written.
    package mutating func goAway(_ code: HTTP2Code) { writer.goAway(code) }

    /// Bytes that are to be sent.
    package var outputSize: Int { writer.size }

    /// What is to be sent; nil for nothing.
    package mutating func takeOutput() -> ByteBuffer? { writer.take() }

    /// - Parameter peerIsReading: the peer reads as fast as we write.
    package mutating func noteSent(_ bytes: consuming ByteBuffer, peerIsReading: Bool) {
        writer.reuse(bytes)
        if peerIsReading { acknowledgements = 0 }
    }
}

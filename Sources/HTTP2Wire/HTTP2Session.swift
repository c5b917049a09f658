package import NIOCore
package import NIOHPACK

/// The client side of an HTTP/2 connection without its socket (RFC 9113), as far as senders of pushes need it.
///
/// It acknowledges SETTINGS and PING, keeps the windows of both sides, and ends a connection that is flooded. Its owner
/// keeps track of the open streams, and also gets the frames for closed ones. The session enforces the connection's
/// receive window but not those of streams, because the owner limits response bodies as it reads them.
package struct HTTP2Session: Sendable {
    /// The name of HTTP/2 in TLS (ALPN).
    package static let tlsName = "h2"

    /// The limits of frames from the peer.
    struct Limits: Sendable {
        /// The maximum number of frames of any type in each ``interval``. SETTINGS may be among them at any time,
        /// because Apple may change the limit of streams.
        var frames = 20_000
        /// The number of further frames that are allowed for each stream that the relay opens.
        var framesPerStream = 8
        /// The maximum number of frames that request an acknowledgement while the peer does not read.
        var acknowledgements = 5_000
        var interval = TimeAmount.seconds(30)
    }

    private let limits: Limits
    private var reader = FrameReader()
    private var writer = FrameWriter()
    /// The highest stream that the relay has opened.
    private var lastStream = 0
    /// The number of frames that the peer may still send before ``intervalEnd``.
    private var framesLeft: Int
    private var intervalEnd = NIODeadline.distantPast
    /// The number of acknowledgements that were written since the peer was last known to read.
    private var acknowledgements = 0
    /// The number of body bytes that the peer may still send.
    private var inboundWindow = FrameWriter.initialWindow

    package init() { self.init(limits: Limits()) }

    init(limits: Limits) {
        self.limits = limits
        framesLeft = limits.frames
        writer.begin()
    }

    // MARK: From the peer

    /// Adds bytes. The caller must then call ``next()`` until it returns `nil`.
    package mutating func feed(_ bytes: ByteBuffer, now: NIODeadline) {
        if now >= intervalEnd {
            intervalEnd = now + limits.interval
            framesLeft = limits.frames
        }
        reader.feed(bytes)
    }

    /// Returns the next frame's event. `nil` if more bytes are needed. Must not be called after an error.
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
            guard inboundWindow < FrameWriter.initialWindow / 2 else { break }
            writer.increaseWindow(by: FrameWriter.initialWindow - inboundWindow)
            inboundWindow = FrameWriter.initialWindow
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
            throw HTTP2Failure(.enhanceYourCalm, "it requests acknowledgements and does not read them")
        }
    }

    // MARK: To the peer

    /// Whether the peer's window allows at least one more byte of a body.
    package var hasSendWindow: Bool { writer.window > 0 }

    /// Whether a stream's request is still incomplete.
    package func hasUnsentBody(_ stream: Int) -> Bool { writer.hasUnsentBody(stream) }

    /// Opens a stream with a request.
    /// - Parameter stream: An odd number that is higher than all before.
    package mutating func open(_ stream: Int, headers: HPACKHeaders, body: [UInt8]) throws(HTTP2Failure) {
        lastStream = stream
        framesLeft += limits.framesPerStream
        try writer.open(stream, headers: headers, body: body)
    }

    package mutating func reset(_ stream: Int, _ code: HTTP2Code) { writer.reset(stream, code) }

    package mutating func ping() { writer.ping() }

    /// Ends the connection. Nothing may be written afterwards.
    package mutating func goAway(_ code: HTTP2Code) { writer.goAway(code) }

    /// The number of bytes to send.
    package var outputSize: Int { writer.size }

    /// Returns the bytes to send, and removes them. `nil` if there are none.
    package mutating func takeOutput() -> ByteBuffer? { writer.take() }

    /// Records that bytes were sent.
    /// - Parameter peerIsReading: Whether the peer reads as fast as the relay writes.
    package mutating func noteSent(_ bytes: consuming ByteBuffer, peerIsReading: Bool) {
        writer.reuse(bytes)
        if peerIsReading { acknowledgements = 0 }
    }
}

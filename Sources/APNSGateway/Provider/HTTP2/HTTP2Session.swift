import NIOCore
import NIOHPACK

/// The client's end of an HTTP/2 connection, without its socket (RFC 9113): what the provider API needs of it.
///
/// It answers SETTINGS and PING, keeps the windows of both sides, and puts up with no flood. Which streams are open is
/// the owner's business: it is told of frames for closed ones as of others. Of the peer's windows the connection's is
/// enforced; those of streams are not, since the bodies of answers are bounded where they are read.
struct HTTP2Session: Sendable {
    /// What a peer may send, and how long.
    struct Limits: Sendable {
        /// Frames in each ``window``, whatever they are. Apple changes the limit of streams as it likes.
        var frames = 20_000
        /// And as many more for each stream that we open.
        var framesPerStream = 8
        /// Frames that ask for an acknowledgement, while the peer does not take what we write.
        var acknowledgements = 5_000
        var window = TimeAmount.seconds(30)
    }

    private let limits: Limits
    private var reader = FrameReader()
    private var writer = FrameWriter()
    /// The highest stream that we have opened.
    private var lastStream = 0
    /// Frames that the peer may still send before ``windowEnd``.
    private var framesLeft: Int
    private var windowEnd = NIODeadline.distantPast
    /// Written since the peer last was known to take what we write.
    private var acknowledgements = 0
    /// Bytes of bodies that the peer may send.
    private var inboundWindow = FrameWriter.firstWindow

    init(limits: Limits = Limits()) {
        self.limits = limits
        framesLeft = limits.frames
        writer.begin()
    }

    // MARK: From the peer

    /// Takes bytes; what they say is to be asked for until nothing more comes.
    mutating func feed(_ bytes: ByteBuffer, now: NIODeadline) {
        if now >= windowEnd {
            windowEnd = now + limits.window
            framesLeft = limits.frames
        }
        reader.feed(bytes)
    }

    /// What the next frame says; nil until more bytes come. After a failure nothing more is to be asked for.
    mutating func next() throws(HTTP2Failure) -> PeerEvent? {
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
            writer.ping(opaque, isAnswer: true)
        case .windowUpdate(let stream, let increment):
            try writer.received(increment: increment, on: stream)
        case .data(_, _, _, let size):
            inboundWindow -= size
            guard inboundWindow >= 0 else { throw HTTP2Failure(.flowControlError, "more than the window allows") }
            guard inboundWindow < FrameWriter.firstWindow / 2 else { break }
            writer.widen(by: FrameWriter.firstWindow - inboundWindow)
            inboundWindow = FrameWriter.firstWindow
        case .reset(let stream, _):
            writer.forget(stream)
        case .goAway(let last, _, _):
            writer.forget(above: last)
        case .headers, .nothing:
            break
        }
        return event
    }

    private mutating func noteAcknowledgement() throws(HTTP2Failure) {
        acknowledgements += 1
        guard acknowledgements <= limits.acknowledgements else {
            throw HTTP2Failure(.enhanceYourCalm, "it asks, and does not take the answers")
        }
    }

    // MARK: To the peer

    /// Whether the peer takes a byte of another body.
    var canOpen: Bool { writer.window > 0 }

    /// Whether a stream's request is still to be finished.
    func isUnfinished(_ stream: Int) -> Bool { writer.isUnfinished(stream) }

    /// - Parameter stream: an odd number above all before.
    mutating func open(_ stream: Int, headers: HPACKHeaders, body: [UInt8]) throws(HTTP2Failure) {
        lastStream = stream
        framesLeft += limits.framesPerStream
        try writer.open(stream, headers: headers, body: body)
    }

    mutating func reset(_ stream: Int, _ code: HTTP2Code) { writer.reset(stream, code) }

    mutating func ping() { writer.ping() }

    /// The last that is written.
    mutating func goAway(_ code: HTTP2Code) { writer.goAway(code) }

    /// Bytes that are to be sent.
    var outputSize: Int { writer.size }

    /// What is to be sent; nil for nothing.
    mutating func takeOutput() -> ByteBuffer? { writer.take() }

    /// - Parameter isTaken: the peer keeps up with what we write.
    mutating func noteSent(_ bytes: consuming ByteBuffer, isTaken: Bool) {
        writer.reuse(bytes)
        if isTaken { acknowledgements = 0 }
    }
}

import APNSWire
import NIOCore
import NIOHTTP2

/// What one connection of the provider API puts up with, and how long.
struct ProviderLimits: Sendable {
    /// How long a stream may stay unanswered.
    var answer = TimeAmount.seconds(30)
    /// Silence with streams open after which the peer is asked for a sign of life.
    var silence = TimeAmount.seconds(5)
    /// The same with none open.
    var quiet = TimeAmount.seconds(60)
    /// How long the peer has for that sign.
    var pong = TimeAmount.seconds(5)
    /// How long a drain may take.
    var drain = TimeAmount.seconds(8)
    /// First pause after the peer has refused streams again and again; doubles up to ``longestPause``.
    var firstPause = TimeAmount.milliseconds(50)
    var longestPause = TimeAmount.seconds(5)
    /// Refusals of streams in a row, each after a pause, that end the connection.
    var refusals = 10
    /// How long the first push may take until another connection is opened beside this one.
    var hesitation = TimeAmount.seconds(1)
    /// Answers in a row that say that the credentials are not accepted, after which a connection that has taken pushes is
    /// replaced.
    static let toleratedRefusals = 3
    /// Streams that are open at once until the peer has taken the credentials.
    var provingStreams = 1
    /// Streams after which a connection is replaced, long before their numbers run out at 2^30.
    var streams: UInt32 = 1 << 28

    /// Streams that are open at once, whatever the peer allows.
    static let openStreams = 2000
    /// What counts until the peer says how many streams it allows: NIOHTTP2 holds back more than these.
    static let unstatedStreams = 100
    /// Pushes in one lease.
    static let leaseLimit = 1000

    /// How often the clock is looked at.
    var tick: TimeAmount {
        let shortest = min(min(answer, silence), min(quiet, min(pong, drain)))
        return max(.milliseconds(10), min(.seconds(1), .nanoseconds(shortest.nanoseconds / 4)))
    }

    /// PING and SETTINGS frames, and resets of streams, that the peer may send in thirty seconds. Apple changes the limit
    /// of streams as it likes; NIOHTTP2 would call 200 an attack.
    private static let controlFrames = 20_000
    private static let resets = 100_000
    /// Streams that we have reset and whose late answers are overlooked. NIOHTTP2 remembers 32, and ends the connection
    /// over an answer to any other.
    private static let resetStreams = 2 * openStreams

    /// The handler that speaks HTTP/2: no server push, no PRIORITY, everything else as the RFC has it.
    static func http2Handler() -> NIOHTTP2Handler {
        var connection = NIOHTTP2Handler.ConnectionConfiguration()
        connection.initialSettings = [
            HTTP2Setting(parameter: .enablePush, value: 0),
            HTTP2Setting(parameter: .maxHeaderListSize, value: longestHeaders),
        ]
        // Costs a third of the speed. Of what we send the names are fixed; of answers only the status and a bounded body
        // are read, and a stream without a status is no answer.
        connection.headerBlockValidation = .disabled
        connection.contentLengthValidation = .disabled
        connection.maximumRecentlyResetStreams = resetStreams
        connection.controlFrameRateLimit.maximumCount = controlFrames
        var stream = NIOHTTP2Handler.StreamConfiguration()
        stream.streamResetFrameRateLimit.maximumCount = resets
        return NIOHTTP2Handler(mode: .client, connectionConfiguration: connection, streamConfiguration: stream)
    }

    /// Bytes of an answer's headers; Apple's have under two hundred.
    private static let longestHeaders = 16 << 10
    /// Bytes of bodies that the peer may send before it has to wait for us (RFC 9113 §6.9.2).
    static let inboundWindow = 65_535
}

import CSimulation
import NIOCore
import NIOHPACK

/// A push service, as its side of each connection calls it.
protocol HTTP2PeerOwner: AnyObject {
    var world: World { get }
    /// Handles a complete request.
    func received(_ request: HTTP2PeerRequest, from peer: HTTP2Peer)
    /// A request will get no response any more, because its stream or connection ended.
    func abandoned(_ request: HTTP2PeerRequest, by peer: HTTP2Peer)
}

/// A request on one stream of a connection.
final class HTTP2PeerRequest {
    let stream: Int
    let headers: HPACKHeaders
    var body = ByteBuffer()
    /// The push and its address, once its service has recognised them.
    var push: Int64?
    var token = ""
    /// Whether all of it has arrived.
    var isComplete = false
    /// Whether the service has accepted the push.
    var isAccepted = false
    /// Whether the relay cannot know that.
    var isInDoubt = false

    init(stream: Int, headers: HPACKHeaders) { (self.stream, self.headers) = (stream, headers) }
}

/// A push service's side of an HTTP/2 connection (RFC 9113): frames, header compression, and flow control.
final class HTTP2Peer: Peer {
    private enum Frame: UInt8 {
        case data, headers, priority, reset, settings, pushPromise, ping, goAway, windowUpdate
    }

    private static let endStream: UInt8 = 1
    private static let endHeaders: UInt8 = 4
    private static let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8.count
    private static let firstWindow = 65_535

    let link: Link
    private let owner: any HTTP2PeerOwner
    private let dice: Dice
    private var input = ByteBuffer()
    private var hasPreface = false
    private var decoder = HPACKDecoder(allocator: ByteBufferAllocator())
    private var encoder = HPACKEncoder(allocator: ByteBufferAllocator())
    private(set) var open: [Int: HTTP2PeerRequest] = [:]
    private var answered: [Int: HTTP2PeerRequest] = [:]
    private var lastStream = 0
    private var lastAnswered = 0
    private var written = ByteBuffer()
    private var hasWrittenPreface = false
    private var givenUp: Set<Int> = []
    /// The last stream that is processed. Later ones are ignored.
    private var lastProcessed = Int.max
    /// The bytes that the relay may send, and those that it has sent since the last update.
    private var window = firstWindow
    private var consumed = 0
    /// The bytes of bodies that the relay allows.
    private var sendWindow = firstWindow
    private var limits: [Int]
    /// The frames that wait for SETTINGS. `nil` once it is sent.
    private var waiting: [(ByteBuffer, Link.Fate?)]? = []
    private var acknowledgedLimit = Int.max

    /// - Parameter streams: The limit of open streams.
    init(_ link: Link, streams: Int, owner: any HTTP2PeerOwner) {
        (self.link, self.owner, dice, limits) = (link, owner, owner.world.dice, [streams])
    }

    var isGoingAway: Bool { lastProcessed != .max }

    // MARK: To the relay

    func connected() {
        let limit = limits[0]
        simulation_world.run(after: dice.within(.zero...(.milliseconds(50)))) {
            // The first frame is SETTINGS.
            let waiting = self.waiting ?? []
            self.waiting = nil
            self.sendLimit(limit)
            for (bytes, fate) in waiting { self.link.send(bytes, fate: fate) }
        }
    }

    func limit(_ streams: Int) {
        limits.append(streams)
        sendLimit(streams)
    }

    private func sendLimit(_ streams: Int) {
        var payload = ByteBuffer()
        payload.writeMultipleIntegers(UInt16(3), UInt32(streams))
        send(.settings, payload: payload)
    }

    /// Sends a response. Its status may arrive without the rest.
    func respond(
        _ request: HTTP2PeerRequest, _ status: Int, _ headers: [(String, String)] = [], body: String = "",
        fate: Link.Fate? = nil
    ) {
        guard noteAnswer(request) else { return fate?(false) ?? () }
        let fate: Link.Fate = { [self] wasRead in fate?(wasRead && !givenUp.contains(request.stream)) }
        var head = HPACKHeaders([(":status", "\(status)")])
        for (name, value) in headers { head.add(name: name, value: value) }
        var payload = ByteBuffer()
        try! encoder.encode(headers: head, to: &payload)
        let hasBody = !body.isEmpty && body.utf8.count <= sendWindow
        send(.headers, Self.endHeaders | (hasBody ? 0 : Self.endStream), request.stream, payload, hasBody ? nil : fate)
        if hasBody {
            sendWindow -= body.utf8.count
            send(.data, Self.endStream, request.stream, ByteBuffer(string: body), fate)
        }
    }

    private func noteAnswer(_ request: HTTP2PeerRequest) -> Bool {
        guard open.removeValue(forKey: request.stream) != nil else { return false }
        answered[request.stream] = request
        lastAnswered = max(lastAnswered, request.stream)
        return true
    }

    /// Resets a stream.
    func reset(_ request: HTTP2PeerRequest, code: UInt32, fate: Link.Fate? = nil) {
        guard noteAnswer(request) else { return }
        send(.reset, stream: request.stream, payload: ByteBuffer(integer: code), fate)
    }

    /// Goes away. Requests after a stream are not processed, even if they have arrived.
    func goAway(after stream: Int, debugData: String = "") {
        lastProcessed = min(stream, lastProcessed)
        owner.world.log("\(link): GOAWAY after \(lastProcessed), open: \(open.keys.sorted())")
        for request in open.values where request.stream > lastProcessed { open[request.stream] = nil }
        var payload = ByteBuffer()
        payload.writeMultipleIntegers(UInt32(lastProcessed), UInt32(0))
        payload.writeString(debugData)
        send(.goAway, payload: payload)
    }

    /// A stream after which the service may go away now, because it has processed no later one.
    var possibleEnd: Int {
        dice.among([lastStream, lastAnswered, dice.within(lastAnswered...lastStream), Int(Int32.max)])
    }

    /// Sends a frame that HTTP/2 does not allow.
    func violate() {
        owner.world.log("\(link): the peer violates the protocol")
        send(dice.among([.windowUpdate, .goAway, .settings]), stream: 0, payload: ByteBuffer(string: "a"))
    }

    private func send(
        _ frame: Frame, _ flags: UInt8 = 0, _ stream: Int = 0, _ payload: ByteBuffer, _ fate: Link.Fate? = nil
    ) {
        var bytes = ByteBuffer()
        let length = payload.readableBytes
        bytes.writeMultipleIntegers(UInt8(length >> 16), UInt16(length & 0xFFFF), frame.rawValue, flags, UInt32(stream))
        bytes.writeImmutableBuffer(payload)
        if waiting != nil { waiting?.append((bytes, fate)) } else { link.send(bytes, fate: fate) }
    }

    private func send(_ frame: Frame, stream: Int = 0, payload: ByteBuffer, _ fate: Link.Fate? = nil) {
        send(frame, 0, stream, payload, fate)
    }

    // MARK: From the relay

    /// Notes the streams that the relay gives up. It reads no response on them, although the reset may never arrive.
    func relayWrites(_ bytes: ByteBufferView) {
        written.writeBytes(bytes)
        if !hasWrittenPreface {
            guard written.readableBytes >= Self.preface else { return }
            written.moveReaderIndex(forwardBy: Self.preface)
            hasWrittenPreface = true
        }
        while let (high, low, type, _, stream) = written.getMultipleIntegers(
            at: written.readerIndex, as: (UInt8, UInt16, UInt8, UInt8, UInt32).self)
        {
            let length = 9 + (Int(high) << 16 | Int(low))
            guard written.readableBytes >= length else { break }
            written.moveReaderIndex(forwardBy: length)
            if type == Frame.reset.rawValue { givenUp.insert(Int(stream)) }
        }
        written.discardReadBytes()
    }

    func received(_ bytes: ByteBuffer) {
        input.writeImmutableBuffer(bytes)
        if !hasPreface {
            guard input.readableBytes >= Self.preface else { return }
            input.moveReaderIndex(forwardBy: Self.preface)
            hasPreface = true
        }
        while link.isOpen, link.isReading,
            let head = input.getMultipleIntegers(
                at: input.readerIndex, as: (UInt8, UInt16, UInt8, UInt8, UInt32).self)
        {
            let length = Int(head.0) << 16 | Int(head.1)
            guard input.readableBytes >= 9 + length else { break }
            input.moveReaderIndex(forwardBy: 9)
            let payload = input.readSlice(length: length)!
            received(Frame(rawValue: head.2), head.3, Int(head.4 & 0x7FFF_FFFF), payload)
        }
        input.discardReadBytes()
    }

    private func received(_ frame: Frame?, _ flags: UInt8, _ stream: Int, _ payload: ByteBuffer) {
        var payload = payload
        switch frame {
        case .headers: opened(stream, payload)
        case .data:
            window -= payload.readableBytes
            consumed += payload.readableBytes
            if window < 0 { owner.world.violate(.thePeersLimitsHold, "\(link): \(-window) bytes beyond the window") }
            open[stream]?.body.writeBuffer(&payload)
            if consumed > dice.below(Self.firstWindow) { updateWindow() }
        case .reset:
            if let request = open.removeValue(forKey: stream) ?? answered[stream] { owner.abandoned(request, by: self) }
        case .settings:
            guard flags & 1 == 0 else {
                if !limits.isEmpty { acknowledgedLimit = limits.removeFirst() }
                break
            }
            send(.settings, 1, 0, ByteBuffer())
        case .ping: if flags & 1 == 0 { send(.ping, 1, 0, payload) }
        case .windowUpdate: if stream == 0 { sendWindow += Int(payload.readInteger(as: UInt32.self) ?? 0) }
        case .goAway: break
        case .priority, .pushPromise, nil: owner.world.violate(.thePeersLimitsHold, "\(link): an unexpected frame")
        }
        if frame == .data || frame == .headers, flags & Self.endStream != 0, let request = open[stream] {
            request.isComplete = true
            owner.received(request, from: self)
        }
    }

    private func opened(_ stream: Int, _ payload: ByteBuffer) {
        var payload = payload
        guard let headers = try? decoder.decodeHeaders(from: &payload) else {
            return owner.world.violate(.thePeersLimitsHold, "\(link): headers that cannot be read")
        }
        if stream <= lastStream { owner.world.violate(.thePeersLimitsHold, "\(link): stream \(stream) again") }
        lastStream = max(stream, lastStream)
        guard stream <= lastProcessed else { return }
        open[stream] = HTTP2PeerRequest(stream: stream, headers: headers)
        if open.count > acknowledgedLimit {
            owner.world.violate(.thePeersLimitsHold, "\(link): \(open.count) streams of \(acknowledgedLimit)")
        }
    }

    private func updateWindow() {
        let bytes = consumed
        consumed = 0
        simulation_world.run(after: dice.within(.zero...(.milliseconds(100)))) {
            self.window += bytes
            self.send(.windowUpdate, payload: ByteBuffer(integer: UInt32(bytes)))
        }
    }

    func ended() {
        for (_, request) in open.sorted(by: { $0.key < $1.key }) { owner.abandoned(request, by: self) }
        open = [:]
    }
}

import ChatDomain
import GatewayPool
import HTTP2Wire
import Logging
import NIOCore
import Synchronization

/// One HTTP/2 connection to a push service, which carries many requests at the same time.
final class OriginConnection: Sendable {
    private let channel: any Channel
    private let handler: NIOLoopBound<HTTP2ClientHandler<OriginRequests>>
    private let retired = Atomic(false)

    /// Must be called on the channel's event loop.
    private init(_ channel: any Channel, _ handler: HTTP2ClientHandler<OriginRequests>) {
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
    }

    /// Whether the connection accepts no more requests, so that another one is needed.
    var isRetired: Bool { retired.load(ordering: .relaxed) }
    fileprivate func noteRetired() { retired.store(true, ordering: .relaxed) }

    /// Submits requests. Each request gets its result exactly once, even if the connection is over.
    func submit(_ requests: [WebPushRequest]) {
        channel.eventLoop.execute { [handler] in
            handler.value.owner.note(requests)
            handler.value.enqueue(requests.map(\.http2))
        }
    }

    /// Closes the connection after the last response.
    func close() {
        channel.eventLoop.execute { [handler] in handler.value.drain() }
    }

    /// Closes the connection at once.
    func stop() {
        channel.eventLoop.execute { [handler] in handler.value.close(reason: "NotReached: the relay is stopping") }
    }

    /// Connects, and waits for the service's SETTINGS.
    ///
    /// - Parameters:
    ///   - limit: The time limit of the whole connect, and then of each response.
    ///   - concluded: Receives the results, on the connection's event loop.
    /// - Returns: `nil` if the service does not offer HTTP/2.
    static func connect(
        to peer: ConnectorPeer, over connector: any Connector, limit: TimeAmount, logger: Logger,
        concluded: @escaping @Sendable ([OriginRequests.Concluded]) -> Void
    ) async throws -> OriginConnection? {
        let eventLoop = connector.eventLoops.next()
        let ready = eventLoop.makePromise(of: OriginConnection?.self)
        let connecting = connector.connect(to: peer, on: eventLoop, timeout: limit) { channel in
            let requests = OriginRequests(ready: ready, logger: logger, concluded: concluded)
            let state = OriginRequests.state(responseLimit: limit, now: channel.eventLoop.now)
            let handler = HTTP2ClientHandler(state, owner: requests)
            try channel.pipeline.syncOperations.addHandler(handler)
            requests.connection = OriginConnection(channel, handler)
        }
        connecting.whenFailure { ready.fail($0) }
        let timer = eventLoop.scheduleTask(in: limit) { ready.fail(ChannelError.connectTimeout(limit)) }
        ready.futureResult.whenComplete { _ in timer.cancel() }
        ready.futureResult.whenFailure { _ in connecting.whenSuccess { $0.close(promise: nil) } }
        return try await ready.futureResult.get()
    }
}

/// The requests on one connection to a push service, and their results.
final class OriginRequests: HTTP2Owner {
    /// A request and its response. `nil` if the service did not process the request, so that it may be sent again.
    typealias Concluded = (request: WebPushRequest, response: WebPushResponse?)

    /// The time for which a connection without requests is kept.
    private static let idleLimit = TimeAmount.seconds(60)

    /// The connection, until it is over.
    var connection: OriginConnection?
    private let ready: EventLoopPromise<OriginConnection?>
    private let logger: Logger
    private let concluded: @Sendable ([Concluded]) -> Void
    /// The requests without a result, by the identifiers of their pushes.
    private var requests: [UInt32: WebPushRequest] = [:]

    init(
        ready: EventLoopPromise<OriginConnection?>, logger: Logger,
        concluded: @escaping @Sendable ([Concluded]) -> Void
    ) {
        self.ready = ready
        self.logger = logger
        self.concluded = concluded
    }

    /// Returns the state of a new connection.
    ///
    /// A response says more about its subscription than about the service, so ``OriginState`` decides about outcomes,
    /// and about the number of requests.
    static func state(responseLimit: TimeAmount, now: NIODeadline) -> HTTP2ConnectionState {
        var limits = HTTP2Limits()
        (limits.response, limits.acceptedStatus, limits.watchesPeer) = (responseLimit, nil, false)
        return HTTP2ConnectionState(limits: limits, isConfirmed: true, idleLimit: idleLimit, now: now) { response in
            switch response.status {
            case WebPushResponse.misdirected: HTTP2Answer(nil, .connection(reason: "Misdirected"))
            case 500...: HTTP2Answer(nil, .service)
            default: HTTP2Answer(nil, .device)
            }
        }
    }

    /// Notes requests that will be submitted to the state.
    func note(_ requests: [WebPushRequest]) {
        for request in requests { self.requests[request.http2.identifier] = request }
    }

    // MARK: Events

    func willOpen(_ state: inout HTTP2ConnectionState) -> Timestamp { Timestamp(milliseconds: 0) }
    func noteOpened(_ request: HTTP2Request) {}
    func noteReset(code: UInt32) {}
    func noteSettings(_ settings: PeerSettings) { ready.succeed(connection) }

    func noteGoAway(code: UInt32, debugData: ByteBuffer) -> String {
        logger.debug("received GOAWAY", metadata: ["code": "\(HTTP2Code.name(code))"])
        return HTTP2Code.name(code)
    }

    func ended(_ end: HTTP2End, hasBegun: Bool, hasSettings: Bool) {
        switch end {
        case .otherProtocol:
            ready.succeed(nil)
        case .violated(let failure):
            logger.info("a push service violated the HTTP/2 protocol", metadata: ["error": "\(failure)"])
            ready.fail(failure)
        case .unwritable(let failure):
            logger.error("a push cannot be written", metadata: ["error": "\(failure)"])
        case .failed(let error):
            ready.fail(error)
        case .lost, .closed:
            ready.fail(ChannelError.eof)
        }
        connection?.noteRetired()
        connection = nil
    }

    // MARK: Results

    func deliver(_ state: inout HTTP2ConnectionState, now: NIODeadline) {
        if state.isRetired { connection?.noteRetired() }
        // ``OriginState`` counts the service's health.
        _ = state.takeHealth()
        let results = takeResults(&state)
        if !results.isEmpty { concluded(results) }
    }

    private func takeResults(_ state: inout HTTP2ConnectionState) -> [Concluded] {
        var results: [Concluded] = []
        let responses = state.takeResponses()
        for (identifier, outcome) in state.takeOutcomes() {
            guard let request = requests.removeValue(forKey: identifier) else { continue }
            if let response = responses[identifier] {
                let response = WebPushResponse(
                    response.status, retryAfter: response.retryAfter, body: response.body, now: request.sentAt)
                results.append((request, response))
            } else if case .unanswered(let reason) = outcome {
                results.append((request, .lost(reason)))
            } else {
                results.append((request, nil))
            }
        }
        return results
    }
}

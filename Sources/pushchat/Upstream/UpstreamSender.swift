import ChatDomain
import Logging
import ServiceLifecycle
import Synchronization

/// Tells an upstream server about new messages in rooms that ntfy's app has polled. The app on iPhones cannot keep a
/// stream open, so the upstream server wakes it through Apple's service.
///
/// The store keeps how far each room's messages are known there. After a crash a message may be announced twice, which
/// the app ignores.
final class UpstreamSender: Service {
    /// The interval of checks for new messages, and for the configuration while there is no upstream server.
    private static let interval = Duration.seconds(1)
    /// The pause after an error of the database.
    private static let databasePause = Duration.seconds(5)
    /// The maximum number of requests at a time.
    private static let batch = 8

    typealias Send = @Sendable (PollRequest, UpstreamServer) async -> UpstreamResponse

    private let store: any PollRequestStore
    private let server: @Sendable () -> UpstreamServer?
    private let send: Send
    private let close: @Sendable () async -> Void
    private let now: TimeSource
    private let clock: ContinuousClock
    private let start: ContinuousClock.Instant
    private let logger: Logger

    /// Creates the service.
    ///
    /// - Parameter server: Called before each request. Returns `nil` while no upstream server is configured.
    convenience init(
        store: any PollRequestStore, server: @escaping @Sendable () -> UpstreamServer?, logger: Logger
    ) {
        let client = UpstreamClient()
        self.init(
            store: store, server: server, send: client.send, close: client.close, now: Timestamp.now, logger: logger)
    }

    init(
        store: any PollRequestStore, server: @escaping @Sendable () -> UpstreamServer?, send: @escaping Send,
        close: @escaping @Sendable () async -> Void = {}, now: @escaping TimeSource, logger: Logger
    ) {
        self.store = store
        self.server = server
        self.send = send
        self.close = close
        self.now = now
        self.logger = logger
        clock = ContinuousClock()
        start = clock.now
    }

    func run() async throws {
        await cancelWhenGracefulShutdown {
            var schedule = UpstreamSchedule()
            repeat {
                let pause = await self.round(&schedule, at: self.start.duration(to: self.clock.now))
                if pause > .zero { try? await Task.sleep(for: pause) }
            } while !Task.isCancelled
        }
        await close()
    }

    /// Sends the requests that are due and allowed.
    ///
    /// - Returns: The time until the next round.
    func round(_ schedule: inout UpstreamSchedule, at time: Duration) async -> Duration {
        guard let server = server() else { return Self.interval }
        let (allowed, wait) = schedule.allowance(at: time)
        guard allowed > 0 else { return min(wait, Self.interval) }
        let requests: [PollRequest]
        do throws(ChatError) {
            requests = try await store.lease(limit: min(allowed, Self.batch))
        } catch {
            logger.warning("messages for ntfy's upstream server could not be read", metadata: ["error": "\(error)"])
            return Self.databasePause
        }
        guard !requests.isEmpty else { return Self.interval }
        schedule.sent(requests.count, at: time)
        let responses = await withTaskGroup(of: (PollRequest, UpstreamResponse).self) { group in
            for request in requests { group.addTask { [send] in (request, await send(request, server)) } }
            return await group.reduce(into: []) { $0.append($1) }
        }
        let results = results(responses, &schedule, at: time)
        // The outcomes are recorded even if the relay stops.
        await Task { [self] in for (request, result) in results { await settle(request, result) } }.value
        return .zero
    }

    private func results(
        _ responses: [(PollRequest, UpstreamResponse)], _ schedule: inout UpstreamSchedule, at time: Duration
    ) -> [(PollRequest, PollRequestResult)] {
        let failures = responses.compactMap { _, response in
            if case .unavailable(let reason, let wanted) = response { (reason, wanted) } else { nil }
        }
        var pause = Duration.zero
        if responses.contains(where: { $0.1 == .accepted }) {
            if schedule.isFailing { logger.notice("ntfy's upstream server takes requests again") }
            schedule.succeeded()
        } else if let reason = failures.first?.0 {
            if !schedule.isFailing {
                logger.warning("ntfy's upstream server takes no requests, retrying", metadata: ["error": "\(reason)"])
            }
            pause = schedule.failed(at: time, wanted: failures.compactMap(\.1).max(), random: .random(in: 0...1))
        }
        let now = now()
        return responses.map { request, response in
            switch response {
            case .accepted:
                logger.debug("ntfy's upstream server informed", metadata: ["message": "\(request.message)"])
                return (request, .done)
            case .rejected(let reason):
                logger.warning(
                    "ntfy's upstream server refused a message",
                    metadata: ["message": "\(request.message)", "error": "\(reason)"])
                return (request, .done)
            case .unavailable:
                return (request, .failed(next: now + max(pause, UpstreamSchedule.delay(attempts: request.attempts))))
            case .notSent: return (request, .released)
            }
        }
    }

    private func settle(_ request: PollRequest, _ result: PollRequestResult) async {
        do throws(ChatError) {
            try await store.settle(request, result)
        } catch {
            // The lease ends, and the request is sent again.
            logger.warning(
                "a request to ntfy's upstream server could not be recorded", metadata: ["error": "\(error)"])
        }
    }
}

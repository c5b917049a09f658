package import ChatDomain
package import Logging
import ServiceLifecycle

/// Sends the events of webhooks, and posts the answers of bots.
///
/// The store decides which events are due, so that several relays share the work. Each webhook has one request under way,
/// so a receiver that hangs delays no other.
package final class WebhookSender: Service {
    /// The interval of checks for new events, also of other relays.
    private static let interval = Duration.milliseconds(500)
    /// The pause after an error of the database.
    private static let databasePause = Duration.seconds(5)
    /// The interval of dropping events above the limits.
    private static let upkeepInterval = Duration.seconds(60)
    /// The time in which a bot has to answer.
    static let answerLimit = Duration.seconds(10)
    /// The maximum number of answers of bots in a room and minute, so that bots that answer each other end.
    static let answersPerMinute = 20

    private let store: any WebhookStore
    private let rooms: any RoomStore
    private let transport: any WebhookTransport
    private let now: TimeSource
    private let clock: ContinuousClock
    private let logger: Logger

    package init(
        store: any WebhookStore, rooms: any RoomStore, transport: any WebhookTransport,
        now: @escaping TimeSource = Timestamp.now, logger: Logger
    ) {
        self.store = store
        self.rooms = rooms
        self.transport = transport
        self.now = now
        self.logger = logger
        clock = ContinuousClock()
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            await withDiscardingTaskGroup { group in
                group.addTask {
                    await WorkLoop(now: self.now).run(
                        every: Self.upkeepInterval, failure: "old events of webhooks could not be dropped", self.logger
                    ) { () async throws(ChatError) in
                        try await self.store.dropExcess()
                        return false
                    }
                }
                let loop = WorkLoop(now: self.now)
                await loop.run(
                    every: Self.interval, afterError: Self.databasePause,
                    failure: "events of webhooks could not be read", self.logger
                ) { () async throws(ChatError) in
                    for attempt in try await self.store.lease() {
                        group.addTask {
                            await self.deliver(attempt)
                            // The next event of the webhook may be due.
                            loop.signal.yield()
                        }
                    }
                    return false
                }
            }
        }
    }

    // MARK: - One event

    /// Sends one event and records the result.
    func deliver(_ attempt: WebhookAttempt) async {
        let (event, settings) = (attempt.event, attempt.settings)
        if event.message != nil, settings.onlyMentions,
            !(attempt.record.map { settings.hears($0.message.text) } ?? false)
        {
            let skipped = WebhookEvent.Response(status: nil, error: "not sent: no mention of the bot", duration: .zero)
            return await record(attempt, .skipped(failures: attempt.failures), skipped)
        }
        let body = event.body(attempt.record.map { ($0.message, $0.room) })
        let request = WebhookRequest(
            url: settings.url, id: event.deliveryID, time: now(), body: Array(body.utf8), secrets: attempt.secrets)
        let start = clock.now
        let response = await transport.send(request)
        let duration = start.duration(to: clock.now)
        // The receiver may have the event. It gets it again after the next start.
        if Task.isCancelled, case .unanswered = response.outcome {
            await Task { [self] in
                do throws(ChatError) { try await store.release(attempt) } catch { logUnrecorded(attempt, error) }
            }.value
            return
        }
        var (outcome, problem, isPosted) = (response.outcome, String?.none, false)
        if case .answered(200..<300, _) = outcome, let bot = settings.bot,
            event.type == WebhookEventKind.posted.rawValue
        {
            do throws(ChatError) {
                if duration > Self.answerLimit {
                    problem = "the answer came too late"
                } else {
                    isPosted = try await post(response, of: bot, attempt)
                }
            } catch {
                problem = "the answer was not posted: \(error)"
                // The bot gets the event again, with the same id.
                if error.code == .unavailable { outcome = .unanswered("\(error)") }
            }
        }
        let settlement = WebhookLifeCycle.settlement(
            of: outcome, attempts: event.attempts, failures: attempt.failures, now: now(), random: .random(in: 0...1))
        // A posted answer is a message, and must go when that is deleted.
        let shown = isPosted ? [] : response.body.prefix(WebhookEvent.Response.longestBody)
        let text = String(decoding: shown, as: UTF8.self)
        let (status, error): (Int?, String?) =
            switch outcome {
            case .answered(let status, _): (status, problem)
            case .unanswered(let error): (nil, error)
            }
        await record(
            attempt, settlement,
            WebhookEvent.Response(
                status: status, error: error, body: text.isEmpty ? nil : text.oneLine, duration: duration))
    }

    private func record(
        _ attempt: WebhookAttempt, _ settlement: WebhookSettlement, _ response: WebhookEvent.Response
    ) async {
        log(attempt, settlement, response)
        // The result is recorded even if the relay stops.
        await Task { [self] in
            do throws(ChatError) {
                try await store.settle(attempt, settlement, response)
            } catch {
                // The lease ends, and the event is sent again.
                logUnrecorded(attempt, error)
            }
        }.value
    }

    private func logUnrecorded(_ attempt: WebhookAttempt, _ error: ChatError) {
        logger.warning(
            "the result of a webhook's event could not be recorded",
            metadata: ["webhook": "\(attempt.event.webhook)", "error": "\(error)"])
    }

    private func log(
        _ attempt: WebhookAttempt, _ settlement: WebhookSettlement, _ response: WebhookEvent.Response
    ) {
        let metadata: Logger.Metadata = [
            "webhook": "\(attempt.event.webhook)", "event": "\(attempt.event.id)",
            "receiver": "\(attempt.settings.origin)",
            "response": "\(response.status.map(String.init) ?? response.error ?? "")",
        ]
        switch settlement.change {
        case .paused: logger.error("webhook paused: its receiver fails", metadata: metadata)
        case .ended: logger.warning("webhook ended: its receiver is gone", metadata: metadata)
        case nil:
            switch settlement.event {
            case .delivered: logger.debug("event delivered", metadata: metadata)
            case .failed: logger.warning("event failed for good", metadata: metadata)
            case .waiting where settlement.failures == WebhookLifeCycle.orderedAttempts:
                logger.warning("webhook fails: its receiver has not accepted the last requests", metadata: metadata)
            case .waiting:
                // The first failure is worth a line; the state has the others.
                logger.log(
                    level: attempt.failures == 0 ? .notice : .debug, "event failed, retrying", metadata: metadata)
            }
        }
    }

    // MARK: - Bots

    /// Posts the answer of a bot, once: the idempotency key is the event's id.
    ///
    /// - Returns: Whether the response is an answer.
    private func post(
        _ response: WebhookResponse, of bot: Nickname, _ attempt: WebhookAttempt
    ) async throws(ChatError) -> Bool {
        guard response.isJSON else { return false }
        guard response.body.count < WebhookResponse.bodyLimit else {
            throw .invalid("text", "is in a response of \(WebhookResponse.bodyLimit) bytes or more")
        }
        guard let record = attempt.record, let value = try? JSONValue(parsing: response.body),
            let text = value.object?["text"]?.text, !FieldText.isBlank(text)
        else { return false }
        let content = try MessageContent(parsing: text)
        let count = try await store.botMessages(in: record.room, since: now() - .seconds(60))
        guard count < Self.answersPerMinute else {
            throw ChatError(.conflict, "bots have posted \(count) messages to the room within a minute")
        }
        let writer = MemberID.bot(webhook: attempt.event.webhook)
        do throws(ChatError) {
            _ = try await rooms.post(
                PostRequest(
                    member: writer, program: PostRequest.Program(nickname: bot, room: record.room), content: content,
                    idempotencyKey: attempt.event.deliveryID))
        } catch  where error.code == ChatError.idempotencyConflict.code {
            // A relay that was killed has posted another answer to the same event.
        }
        return true
    }
}

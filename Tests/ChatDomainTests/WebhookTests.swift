import ChatDomain
import Testing

@Suite("Webhooks: settings, bodies and the schedule")
struct WebhookTests {
    private let now = Timestamp(milliseconds: 1_796_169_600_000)

    private func settlement(
        _ outcome: WebhookOutcome, attempts: Int = 1, failures: Int = 0, random: Double = 0.5
    ) -> WebhookSettlement {
        WebhookLifeCycle.settlement(of: outcome, attempts: attempts, failures: failures, now: now, random: random)
    }

    @Test(
        "Each failed attempt waits as Standard Webhooks says, and the last one fails the event and pauses the webhook")
    func schedule() {
        let seconds = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]
        for (index, pause) in seconds.enumerated() {
            let next = settlement(.answered(status: 500), attempts: index + 1, failures: index)
            #expect(next.event == .waiting(until: now + .seconds(pause)) && next.change == nil)
            #expect(next.failures == index + 1)
        }
        let last = settlement(.unanswered("no response in time"), attempts: 10, failures: 9)
        #expect(last.event == .failed)
        #expect(last.change == .paused("10 requests have failed in a row: no response in time"))
        // Others were delivered in that time.
        #expect(settlement(.answered(status: 500), attempts: 10, failures: 3).change == nil)
    }

    @Test("The pause varies by a tenth", arguments: [(0.0, 4500), (1.0, 5500)])
    func jitter(random: Double, milliseconds: Int) {
        #expect(
            settlement(.answered(status: 404), random: random).event
                == .waiting(until: now + .milliseconds(milliseconds)))
    }

    @Test("A success ends the failures, and after an outage makes waiting events due")
    func success() {
        for status in [200, 204, 299] { #expect(settlement(.answered(status: status)).event == .delivered) }
        #expect(!settlement(.answered(status: 200), failures: 2).isRecovery)
        let recovery = settlement(.answered(status: 200), failures: 3)
        #expect(recovery.isRecovery && recovery.failures == 0 && recovery.notBefore == nil)
    }

    @Test("A redirection is a failure, and 410 ends the webhook")
    func special() {
        #expect(settlement(.answered(status: 302)).event == .waiting(until: now + .seconds(5)))
        let gone = settlement(.answered(status: 410))
        #expect(gone.event == .failed && gone.change == .ended("the receiver answered 410 Gone"))
    }

    @Test("Retry-After holds back the webhook, for a day at most", arguments: [429, 502, 503, 504])
    func throttle(status: Int) {
        let next = settlement(.answered(status: status, retryAfter: now + .seconds(120)))
        #expect(next.event == .waiting(until: now + .seconds(120)) && next.notBefore == now + .seconds(120))
        let long = settlement(.answered(status: status, retryAfter: now + .seconds(900_000)))
        #expect(long.notBefore == now + .seconds(86_400))
        #expect(settlement(.answered(status: 500, retryAfter: now + .seconds(120))).notBefore == now + .seconds(1))
    }

    @Test("A receiver that fails gets requests further and further apart")
    func pause() {
        let pauses = [0, 1, 2, 8, 9, 50].map { settlement(.answered(status: 500), failures: $0).notBefore }
        #expect(pauses == [1, 2, 4, 256, 300, 300].map { now + .seconds($0) })
    }

    @Test("Events above the limits are dropped with those that replace earlier ones, and one is not replaced again")
    func dropped() {
        typealias Event = (type: String, queued: Timestamp, attempts: Int)
        let (old, fresh) = (now - .seconds(3 * 86_400 + 1), now - .seconds(60))
        let gap: Event = (WebhookEventKind.gap, fresh, 0)
        func count(_ events: [Event], excess: Int = 0) -> Int {
            WebhookLifeCycle.dropped(events, excess: excess, now: now)
        }
        #expect(count([("message.posted", fresh, 0)]) == 0)
        #expect(count([("message.posted", old, 0), ("message.posted", fresh, 0)]) == 1)
        #expect(count([("message.posted", old, 3), ("message.posted", fresh, 0)]) == 0, "its schedule is longer")
        #expect(count([gap, ("message.posted", old, 0), ("message.posted", fresh, 0)]) == 2)
        #expect(count([gap, ("message.posted", fresh, 0)]) == 0)
        #expect(count([gap, ("message.posted", fresh, 0)], excess: 1) == 0)
        #expect(count([gap, ("message.posted", fresh, 0), ("message.posted", fresh, 0)], excess: 2) == 2)
    }

    @Test("Fields that do not go together are rejected")
    func settings() throws {
        func error(
            room: SecretCode? = nil, token: Int64? = nil, events: Set<WebhookEventKind>? = nil, bot: Nickname? = nil,
            onlyMentions: Bool = false
        ) -> String? {
            do {
                _ = try WebhookSettings(
                    url: "https://example.org/", room: room, token: token, events: events, bot: bot,
                    onlyMentions: onlyMentions)
                return nil
            } catch {
                return error.field
            }
        }
        let room = SecretCode(stored: "kitchen")
        #expect(error() == nil && error(room: room) == nil && error(token: 1) == nil)
        #expect(error(events: []) == "events" && error(token: 1, events: [.joined]) == "events")
        #expect(error(room: room, events: [.deviceGone]) == "events")
        #expect(error(events: [.joined], bot: Nickname(stored: "b")) == "events")
        #expect(error(onlyMentions: true) == "only_mentions")
        #expect(throws: ChatError.self) { try WebhookEventKind(parsing: "message") }
        let secret = WebhookSecret(stored: Array(0..<32))
        #expect(secret.text == "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
        #expect(WebhookSecret.random() != WebhookSecret.random())
        for (url, origin) in [
            ("https://example.org/hook?key=secret", "https://example.org"), ("http://a:8123", "http://a:8123"),
            ("https://example.org?key=secret", "https://example.org"),
        ] {
            #expect(try WebhookSettings(url: url).origin == origin)
        }
    }

    @Test(
        "A bot hears its name as a word",
        arguments: [
            ("hello @Ann", true), ("@ann: hi", true), ("@anna hi", false), ("ann", false), ("@anna @ANN!", true),
            ("", false),
        ])
    func mentions(text: String, isHeard: Bool) throws {
        var settings = try WebhookSettings(
            url: "https://example.org/", bot: Nickname(stored: "ann"), onlyMentions: true)
        #expect(settings.hears(text) == isHeard)
        settings.onlyMentions = false
        #expect(settings.hears(text))
    }

    @Test("The body has the message as it is now, and only its id if it was deleted")
    func body() throws {
        let room = SecretCode(stored: "kitchen")
        let event = WebhookEvent(
            id: 3, webhook: 1, type: "message.posted", room: room, message: 7, time: now)
        let message = Message(
            id: 7, sender: .administrator, nickname: "ann", content: MessageContent(stored: "Café ☕", title: "T"),
            sentAt: now)
        #expect(
            event.body((message, room)) == """
                {"type":"message.posted","timestamp":"2026-12-02T00:00:00.000Z","data":{"room":"kitchen","message_id":7,\
                "message":{"id":7,"name":"ann","text":"Café ☕","sent_at":"2026-12-02T00:00:00.000Z","title":"T",\
                "program":true}}}
                """)
        #expect(event.body(nil).hasSuffix(#""data":{"room":"kitchen","message_id":7}}"#))
        #expect(event.deliveryID == "msg_3_mx5d05c0")
        let gap = WebhookEvent(
            id: 4, webhook: 1, type: WebhookEventKind.gap, details: ["events": .number(2), "since": .number(1)],
            time: now)
        #expect(gap.body(nil).hasSuffix(#""data":{"events":2}}"#))
        let gone = WebhookEvent(
            id: 5, webhook: 1, type: "device.gone", count: 2, details: ["app": .string("default")], time: now)
        #expect(gone.body(nil).hasSuffix(#""data":{"app":"default","count":2}}"#))
    }
}

import ChatDomain
import Hummingbird

extension AdminAPI {
    /// `GET /v1/queue`
    func queue(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        let parts = try await parts()
        let now = clock()
        let oldest = parts.compactMap(\.depth.oldest).min()
        return Answers.json(
            .object([
                "depth": .number(parts.reduce(0) { $0 + $1.depth.due + $1.depth.delayed + $1.depth.written }),
                "oldest_age_seconds": Self.age(of: oldest, now: now),
                "apps": .array(
                    parts.map { part in
                        var json: JSONObject = [
                            "app": .string(part.depth.app.text), "gateway": .optional(part.status?.gateway),
                        ]
                        part.depth.add(to: &json, now: now)
                        return .object(json)
                    }),
            ]))
    }

    /// `GET /v1/stats`
    func stats(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        let (parts, totals, outcomes) = (
            try await parts(), try await stores.figures.totals(), stores.figures.outcomes()
        )
        let now = clock()
        return Answers.json(
            .object([
                "version": .string(version), "uptime_seconds": .number(uptime(now)),
                "devices": .object(["total": .number(totals.devices), "active": .number(totals.activeDevices)]),
                "members": .number(totals.members), "rooms": .number(totals.rooms),
                "messages": .number(totals.messages), "notifications": .number(totals.notifications),
                "apps": .array(
                    parts.map { part in
                        var json: JSONObject = [
                            "app": .string(part.depth.app.text), "gateway": .optional(part.status?.gateway),
                            "address": .optional(part.status?.address), "topic": .optional(part.status?.topic),
                            "connections": .number(part.status?.connections ?? 0),
                            "certificate_expires_at": .optional(part.status?.certificateExpiresAt),
                        ]
                        part.depth.add(to: &json, now: now)
                        json["outcomes"] = .array(
                            outcomes.filter { $0.app == part.depth.app }.map { outcome in
                                .object([
                                    "state": .string(outcome.state.rawValue), "reason": .optional(outcome.reason),
                                    "total": .number(outcome.total), "last_minute": .number(outcome.lastMinute),
                                ])
                            })
                        return .object(json)
                    }),
            ]))
    }

    /// `GET /metrics`
    func metrics(_ request: Request, _ context: ChatContext) async throws -> Response {
        let (parts, totals, outcomes) = (
            try await parts(), try await stores.figures.totals(), stores.figures.outcomes()
        )
        let now = clock()
        var text = MetricsText()
        text.family("pushchat_pushes_total", "counter", "Pushes by what became of them, since the start.")
        for outcome in outcomes {
            text.sample(
                outcome.total,
                [("app", outcome.app.text), ("state", outcome.state.rawValue), ("reason", outcome.reason ?? "")])
        }
        text.family("pushchat_queue_entries", "gauge", "Pushes that have not come to their end.")
        for depth in parts.map(\.depth) {
            for (state, count) in [("due", depth.due), ("delayed", depth.delayed), ("written", depth.written)] {
                text.sample(count, [("app", depth.app.text), ("state", state)])
            }
        }
        text.family("pushchat_queue_oldest_seconds", "gauge", "Age of the oldest push that can go now.")
        for depth in parts.map(\.depth) {
            text.sample(depth.oldest.map { Self.seconds(since: $0, now: now) } ?? 0, [("app", depth.app.text)])
        }
        text.family("pushchat_gateway_connections", "gauge", "Open connections.")
        for status in parts.compactMap(\.status) {
            text.sample(status.connections, [("app", status.app.text), ("gateway", status.gateway)])
        }
        text.family("pushchat_certificate_expiry_seconds", "gauge", "Time until the app's certificate expires.")
        for status in parts.compactMap(\.status) {
            guard let end = status.certificateExpiresAt else { continue }
            text.sample(Double(end.milliseconds - now.milliseconds) / 1000, [("app", status.app.text)])
        }
        text.family("pushchat_devices", "gauge", "Registered devices.")
        text.sample(totals.activeDevices, [("state", "active")])
        text.sample(totals.devices - totals.activeDevices, [("state", "deactivated")])
        text.family("pushchat_members", "gauge", "Members of rooms.")
        text.sample(totals.members)
        text.family("pushchat_rooms", "gauge", "Rooms with a member.")
        text.sample(totals.rooms)
        text.family("pushchat_uptime_seconds", "gauge", "Time since the start.")
        text.sample(uptime(now))
        return Answers.metrics(text.text)
    }

    private typealias Part = (depth: QueueDepth, status: AppStatus?)

    /// One for each app that is configured, and for others that have something in the queue.
    private func parts() async throws -> [Part] {
        let depths = try await stores.figures.queueDepths()
        let statuses = apps()
        let configured = statuses.map { status in
            (depth: depths.first { $0.app == status.app } ?? QueueDepth(app: status.app), status: Optional(status))
        }
        let others = depths.filter { depth in !statuses.contains { $0.app == depth.app } }
        return configured + others.map { (depth: $0, status: nil) }
    }

    private func uptime(_ now: Timestamp) -> Int64 { max(0, now.seconds - started.seconds) }

    /// Not below 0: the clock may have been set back.
    fileprivate static func seconds(since time: Timestamp, now: Timestamp) -> Double {
        Double(max(0, now.milliseconds - time.milliseconds)) / 1000
    }

    fileprivate static func age(of time: Timestamp?, now: Timestamp) -> JSONValue {
        time.map { .number(String(seconds(since: $0, now: now))) } ?? .null
    }
}

extension QueueDepth {
    fileprivate func add(to json: inout JSONObject, now: Timestamp) {
        json["due"] = .number(due)
        json["delayed"] = .number(delayed)
        json["written"] = .number(written)
        json["oldest_queued_at"] = .optional(oldest)
        json["oldest_age_seconds"] = AdminAPI.age(of: oldest, now: now)
    }
}

import ChatDomain
import Hummingbird

/// The queue, totals and metrics, for the operator's programs and Prometheus.
struct AdminMetrics: Sendable {
    let environment: ChatEnvironment
    let calls: TokenCalls
    let http: HTTPMetrics
    let history: MetricsHistory
    /// Returns the number of open event streams.
    let streams: @Sendable () -> Int
    /// Returns the expiry of the server's own certificate. `nil` if it has none.
    let certificateExpiresAt: @Sendable () -> Timestamp?

    /// The maximum number of restricted push services in a response. A vendor has a few dozen hosts.
    private static let maxServices = 100

    private var store: any RelayMetrics { environment.stores.metrics }

    var routes: [Route] {
        [
            Route(.get, "/v1/queue", .scope(.figures), queue),
            Route(.get, "/v1/stats", .scope(.figures), stats),
            Route(.get, "/metrics", .scope(.figures), metrics),
        ]
    }

    /// `GET /v1/queue`
    func queue(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        let parts = try await parts()
        let now = environment.now()
        let oldest = parts.compactMap(\.depth.oldest).min()
        return Responses.json([
            "depth": .number(parts.reduce(0) { $0 + $1.depth.total }),
            "oldest_age_seconds": age(of: oldest, now: now),
            "apps": .array(
                parts.map { .object($0.json(now: now)) }),
        ])
    }

    /// `GET /v1/stats`
    func stats(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["days", "minutes"])
        let days = try query.number("days", 1...Int64(DeviceDay.kept)) ?? 1
        let minutes = try query.number("minutes", 0...Int64(MetricsHistory.day)) ?? 0
        let (parts, totals, outcomes) = (try await parts(), try await store.totals(), store.outcomes())
        let now = environment.now()
        let usage = try await usage(days: Int(days), now: now)
        return Responses.json([
            "version": .string(environment.build.version), "uptime_seconds": .number(uptime(now)),
            "devices": .object(["total": .number(totals.devices), "active": .number(totals.activeDevices)]),
            "members": .number(totals.members), "rooms": .number(totals.rooms),
            "messages": .number(totals.messages), "notifications": .number(totals.notifications),
            "usage": usage, "history": .array(history.latest(Int(minutes)).map { .object($0.json) }),
            "apps": .array(
                parts.map { part in
                    var json = part.json(
                        with: [
                            "address": .optional(part.status?.address), "topic": .optional(part.status?.topic),
                            "connections": .number(part.status?.connections ?? 0),
                            "credentials_refused": .bool(part.status?.dispatch?.areCredentialsRefused ?? false),
                            "certificate_expires_at": .optional(part.status?.certificateExpiresAt),
                            "push_services": .array(
                                (part.status?.restrictedServices ?? []).prefix(Self.maxServices).map(\.json)),
                        ], now: now)
                    json["outcomes"] = .array(
                        outcomes.filter { $0.app == part.depth.app }.map { outcome in
                            .object([
                                "state": .string(outcome.state.rawValue), "reason": .optional(outcome.reason),
                                "total": .number(outcome.total), "last_minute": .number(outcome.lastMinute),
                            ])
                        })
                    return .object(json)
                }),
        ])
    }

    /// Returns the number of devices seen on each of the last days, today last. Counts them for each app, and by the
    /// devices' descriptions of themselves.
    private func usage(days count: Int, now: Timestamp) async throws -> JSONValue {
        let days = (0..<count).reversed().map { (now - .seconds($0 * 86_400)).day }
        guard let counts = try await store.usage(since: days[0]) else { return .null }
        let apps = Dictionary(grouping: counts, by: \.app).sorted { $0.key < $1.key }
        return .object([
            "days": .array(days.map { .string($0) }),
            "apps": .array(apps.map { .object(UsageTable($0.value, days: days).json(of: $0.key)) }),
        ])
    }

    /// `GET /metrics`. If the database cannot be read, it responds without the metrics from there, because monitoring
    /// matters most then.
    func metrics(_ request: Request, _ context: ChatContext) async throws -> Response {
        async let readiness = environment.relay.readiness()
        let read = try? await (
            parts: parts(), totals: store.totals(), webhooks: environment.stores.webhooks.totals()
        )
        let statuses = environment.relay.apps
        let now = environment.now()
        var text = MetricsText()
        text.family("pushchat_build_info", "gauge", "Always 1. The labels name the build.")
        text.sample(1, [("version", environment.build.version), ("commit", environment.build.commit)])
        text.single(
            "pushchat_uptime_seconds", "gauge", "Time since the start of the process.", uptime(now))
        text.single(
            "process_start_time_seconds", "gauge", "Start time of the process since the UNIX epoch in seconds.",
            Double(environment.started.milliseconds) / 1000)
        ProcessUsage().write(to: &text)
        text.family("pushchat_ready", "gauge", "Whether a check of /readyz passes: 1 or 0.")
        let checks = await readiness.map { ($0.name, $0.problem == nil) }
        for (name, passes) in [("database", read != nil)] + checks { text.sample(passes ? 1 : 0, [("check", name)]) }
        text.family(
            "pushchat_http_certificate_expiry_seconds", "gauge", "Time until the server's own certificate expires.")
        if let end = certificateExpiresAt() { text.sample(Self.seconds(until: end, now)) }
        writeRequests(to: &text)
        writeGateways(statuses, now: now, to: &text)
        writeStore(to: &text)
        if let read {
            write(read.parts, read.totals, now: now, to: &text)
            write(read.webhooks, to: &text)
        }
        return Responses.text(text.text, type: "text/plain; version=0.0.4; charset=utf-8")
    }

    private static func seconds(until end: Timestamp, _ now: Timestamp) -> Double {
        Double(end.milliseconds - now.milliseconds) / 1000
    }

    /// Writes the metrics of HTTP requests.
    private func writeRequests(to text: inout MetricsText) {
        text.family(
            "pushchat_http_requests_total", "counter", "HTTP responses, by the route's pattern, method and status.")
        for (kind, count) in http.requests {
            text.sample(count, [("route", kind.route), ("method", kind.method), ("status", "\(kind.status)")])
        }
        text.family(
            "pushchat_post_duration_seconds", "histogram", "Time from the head of a message's request to its response.")
        text.histogram(http.posts.snapshot)
        text.single("pushchat_event_streams", "gauge", "Open event streams.", streams())
        text.family("pushchat_limit_hits_total", "counter", "Requests and connections that hit a limit, by limit.")
        for limit in Limit.allCases { text.sample(http.limits.count(limit), [("limit", limit.rawValue)]) }
        text.sample(store.work().refusedOperations, [("limit", "waiting_writes")])
        text.family("pushchat_token_requests_total", "counter", "Requests with a program's token, by token name.")
        for call in calls.all { text.sample(call.count, [("token", call.name)]) }
    }

    /// Writes the metrics of pushes and gateways.
    private func writeGateways(_ statuses: [AppStatus], now: Timestamp, to text: inout MetricsText) {
        func labels(_ status: AppStatus) -> MetricsText.Labels {
            [("app", status.app.text), ("gateway", status.gateway)]
        }
        text.family("pushchat_pushes_total", "counter", "Settled pushes, by final state and reason.")
        for outcome in store.outcomes() {
            let gateway =
                statuses.first { $0.app == outcome.app }?.gateway ?? (outcome.app == .web ? "webpush" : "")
            text.sample(
                outcome.total,
                [
                    ("app", outcome.app.text), ("gateway", gateway), ("state", outcome.state.rawValue),
                    ("reason", outcome.reason ?? ""),
                ])
        }
        text.family("pushchat_gateway_connections", "gauge", "Open connections to the gateway.")
        for status in statuses { text.sample(status.connections, labels(status)) }
        text.family("pushchat_gateway_credentials", "gauge", "Whether the app has credentials: 1 or 0.")
        for status in statuses where status.app != .web { text.sample(status.address == nil ? 0 : 1, labels(status)) }
        text.family("pushchat_certificate_expiry_seconds", "gauge", "Time until the app's certificate expires.")
        for status in statuses {
            guard let end = status.certificateExpiresAt else { continue }
            text.sample(Self.seconds(until: end, now), [("app", status.app.text)])
        }
        let dispatchers = statuses.compactMap { status in status.dispatch.map { (labels(status), $0) } }
        text.family(
            "pushchat_gateway_credentials_refused", "gauge",
            "Whether the gateway's last response about the credentials was a refusal: 1 or 0.")
        for (labels, metrics) in dispatchers { text.sample(metrics.areCredentialsRefused ? 1 : 0, labels) }
        text.family("pushchat_push_services", "gauge", "Push services of browsers that do not get all pushes at once.")
        for status in statuses where status.app == .web {
            let states = status.restrictedServices.map(\.condition.name)
            for state in ["paused", "slowed"] {
                text.sample(states.count { $0 == state }, labels(status) + [("state", state)])
            }
        }
        text.family("pushchat_gateway_answers_total", "counter", "Responses of gateways to pushes, including retries.")
        for (labels, metrics) in dispatchers {
            for answers in metrics.answers {
                text.sample(answers.count, labels + [("answer", answers.kind), ("reason", answers.reason ?? "")])
            }
        }
        for (name, help, snapshot) in [
            (
                "pushchat_gateway_round_trip_seconds", "Time from passing a push to a connection to its response.",
                \DispatchMetrics.roundTrips
            ),
            (
                "pushchat_queue_age_seconds",
                "Time that pushes were due before they were first passed to a connection.",
                \.waits
            ),
            (
                "pushchat_push_acceptance_seconds",
                "Time from the due time of a push until its gateway accepted it, with all retries.",
                \.acceptances
            ),
        ] {
            text.family(name, "histogram", help)
            for (labels, metrics) in dispatchers { text.histogram(metrics[keyPath: snapshot], labels) }
        }
    }

    /// Writes the cost of the store's writes.
    private func writeStore(to text: inout MetricsText) {
        let work = store.work()
        text.family(
            "pushchat_write_duration_seconds", "histogram", "Duration of transactions, with the sync to the disk.")
        for batches in work.batches { text.histogram(batches.seconds, [("kind", batches.kind)]) }
        text.family("pushchat_write_operations", "histogram", "Operations that share a transaction.")
        for batches in work.batches { text.histogram(batches.sizes, [("kind", batches.kind)]) }
        text.single("pushchat_write_failures_total", "counter", "Transactions that failed.", work.failedBatches)
        text.family("pushchat_checkpoint_duration_seconds", "histogram", "Time to copy the log into the database.")
        for (by, seconds) in work.checkpoints { text.histogram(seconds, [("by", by)]) }
        text.family("pushchat_database_bytes", "gauge", "Size of the database's files.")
        for (name, bytes) in work.files { text.sample(bytes, [("file", name)]) }
        text.family("pushchat_database_connections", "gauge", "Connections to the database server, by state.")
        for (state, count) in work.connections { text.sample(count, [("state", state)]) }
        text.family(
            "pushchat_database_waiting_calls", "gauge", "Calls that wait for a connection to the database server.")
        for (kind, count) in work.waitingCalls { text.sample(count, [("kind", kind)]) }
        text.family(
            "pushchat_database_errors_total", "counter",
            "Errors of the database server, including those that were retried.")
        for (kind, count) in work.errors { text.sample(count, [("kind", kind)]) }
        guard let free = work.freeBytes else { return }
        text.single("pushchat_disk_free_bytes", "gauge", "Free space on the database's disk.", free)
    }

    /// Writes the metrics that are read from the database.
    private func write(_ parts: [AppMetrics], _ totals: StoreTotals, now: Timestamp, to text: inout MetricsText) {
        text.family("pushchat_queue_entries", "gauge", "Pushes in the queue, by state.")
        for depth in parts.map(\.depth) {
            for (state, count) in [("due", depth.due), ("delayed", depth.delayed), ("written", depth.written)] {
                text.sample(count, [("app", depth.app.text), ("state", state)])
            }
        }
        text.family("pushchat_queue_paused", "gauge", "Whether an operator has paused the app: 1 or 0.")
        for depth in parts.map(\.depth) { text.sample(depth.pause == nil ? 0 : 1, [("app", depth.app.text)]) }
        text.family("pushchat_queue_oldest_seconds", "gauge", "Age of the oldest due push.")
        for depth in parts.map(\.depth) {
            text.sample(depth.oldest.map { now.seconds(since: $0) } ?? 0, [("app", depth.app.text)])
        }
        text.family("pushchat_devices", "gauge", "Registered devices.")
        text.sample(totals.activeDevices, [("state", "active")])
        text.sample(totals.devices - totals.activeDevices, [("state", "deactivated")])
        text.single("pushchat_members", "gauge", "Members of rooms.", totals.members)
        text.single("pushchat_rooms", "gauge", "Rooms with at least one member.", totals.rooms)
    }

    private func write(_ webhooks: WebhookTotals, to text: inout MetricsText) {
        text.family("pushchat_webhooks", "gauge", "Webhooks, by state.")
        for (state, count) in [
            ("active", webhooks.active), ("failing", webhooks.failing), ("paused", webhooks.paused),
            ("ended", webhooks.ended),
        ] {
            text.sample(count, [("state", state)])
        }
        text.family("pushchat_webhook_events", "gauge", "Events of webhooks that are not delivered, by state.")
        for (state, count) in [("waiting", webhooks.waiting), ("held", webhooks.held)] {
            text.sample(count, [("state", state)])
        }
    }

    /// Records the minute that has just ended. Skips it if the queue cannot be read.
    func recordMinute() async {
        guard let depths = try? await store.queueDepths() else { return }
        let now = environment.now()
        func total(_ states: PushState...) -> Int {
            store.outcomes().filter { states.contains($0.state) }.reduce(0) { $0 + $1.total }
        }
        history.add(
            MetricsHistory.Totals(
                queue: depths.reduce(0) { $0 + $1.total },
                oldest: depths.compactMap(\.oldest).map { now.seconds(since: $0) }.max() ?? 0,
                sent: total(.sent), failed: total(.failed, .expired), messages: http.posts.snapshot.count,
                streams: streams()))
    }

    /// Returns one part for each configured app, and one for each other app with pushes in the queue.
    private func parts() async throws -> [AppMetrics] {
        let depths = try await store.queueDepths()
        let statuses = environment.relay.apps
        let configured = statuses.map { status in
            AppMetrics(depth: depths.first { $0.app == status.app } ?? QueueDepth(app: status.app), status: status)
        }
        let others = depths.filter { depth in !statuses.contains { $0.app == depth.app } }
        return configured + others.map { AppMetrics(depth: $0, status: nil) }
    }

    private func uptime(_ now: Timestamp) -> Int64 { max(0, now.seconds - environment.started.seconds) }
}

extension PushServiceCondition {
    fileprivate var name: String {
        switch self {
        case .paused: "paused"
        case .slowed: "slowed"
        }
    }
}

extension PushServiceStatus {
    fileprivate var json: JSONValue {
        let (until, perMinute): (Timestamp?, Int?) =
            switch condition {
            case .paused(let until): (until, nil)
            case .slowed(let perMinute): (nil, perMinute)
            }
        return .object([
            "origin": .string(origin), "state": .string(condition.name), "until": .optional(until),
            "per_minute": perMinute.map { .number($0) } ?? .null,
        ])
    }
}

/// An app's part of the queue, and its gateway. An app that is no longer configured has no gateway.
private struct AppMetrics {
    let depth: QueueDepth
    let status: AppStatus?

    /// The reason why the app's pushes are not sent. `nil` if there is none.
    private var waitsFor: String? {
        guard let status else { return "configuration" }
        let lacksCredentials = status.address == nil && status.app != .web
        if lacksCredentials, !status.isForBrowsersOnly || depth.total > 0 { return "credentials" }
        return depth.pause == nil ? nil : "pause"
    }

    /// Returns the app's part as JSON.
    ///
    /// - Parameter members: JSON members to insert after `gateway`.
    func json(with members: JSONObject = JSONObject(), now: Timestamp) -> JSONObject {
        var json: JSONObject = ["app": .string(depth.app.text), "gateway": .optional(status?.gateway)]
        for (name, value) in members.members { json[name] = value }
        json["waits_for"] = .optional(waitsFor)
        json["due"] = .number(depth.due)
        json["delayed"] = .number(depth.delayed)
        json["written"] = .number(depth.written)
        json["oldest_queued_at"] = .optional(depth.oldest)
        json["oldest_age_seconds"] = age(of: depth.oldest, now: now)
        for (name, value) in depth.pause.json.members { json[name] = value }
        return json
    }
}

/// Counts an app's devices by day. Each value that devices report, such as an app version, has a list with one count
/// per day.
private struct UsageTable {
    /// The maximum number of values per kind. The remaining ones are counted together.
    private static let maxValues = 20

    private var devices: [Int]
    private var values: [DeviceDay.Kind: [DeviceDay.Value: [Int]]] = [:]

    init(_ counts: [DeviceDay], days: [String]) {
        let none = [Int](repeating: 0, count: days.count)
        let positions = Dictionary(uniqueKeysWithValues: days.enumerated().map { ($1, $0) })
        devices = none
        for count in counts {
            // A day that is not in the list was recorded before the clock was set back.
            guard let day = positions[count.day] else { continue }
            if let kind = count.kind {
                values[kind, default: [:]][count.value, default: none][day] += count.devices
            } else {
                devices[day] += count.devices
            }
        }
    }

    func json(of app: AppName) -> JSONObject {
        var json: JSONObject = ["app": .string(app.text), "devices": Self.list(devices)]
        for kind in DeviceDay.Kind.allCases { json[kind.rawValue] = .object(list(kind)) }
        return json
    }

    /// The values by the total of their devices on all days, largest first.
    private func list(_ kind: DeviceDay.Kind) -> JSONObject {
        var (texts, others): ([(text: String, counts: [Int])], [Int]) = ([], devices.map { _ in 0 })
        for (value, counts) in values[kind] ?? [:] {
            if case .text(let text) = value { texts.append((text, counts)) }
            if value == .others { others = counts }
        }
        texts.sort { ($1.counts.reduce(0, +), $0.text) < ($0.counts.reduce(0, +), $1.text) }
        for (_, counts) in texts.dropFirst(Self.maxValues) { others = zip(others, counts).map(+) }
        return [
            "values": .array(
                texts.prefix(Self.maxValues).map {
                    .object(["value": .string($0.text), "devices": Self.list($0.counts)])
                }),
            "others": Self.list(others),
            "unknown": Self.list(values[kind]?[.nothing] ?? devices.map { _ in 0 }),
        ]
    }

    private static func list(_ counts: [Int]) -> JSONValue { .array(counts.map { .number($0) }) }
}

private func age(of time: Timestamp?, now: Timestamp) -> JSONValue {
    time.map { .number(String(now.seconds(since: $0))) } ?? .null
}

import ChatDomain
import Hummingbird

/// What the operator's programs and Prometheus read: the queue, totals, metrics.
struct AdminFigures: Sendable {
    let store: any RelayFigures
    /// The apps that are configured.
    let apps: @Sendable () -> [AppStatus]
    let calls: TokenCalls
    let clock: TimeSource
    let version: String
    let started: Timestamp

    /// `GET /v1/queue`
    func queue(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        let parts = try await parts()
        let now = clock()
        let oldest = parts.compactMap(\.depth.oldest).min()
        return Answers.json([
            "depth": .number(parts.reduce(0) { $0 + $1.depth.due + $1.depth.delayed + $1.depth.written }),
            "oldest_age_seconds": age(of: oldest, now: now),
            "apps": .array(
                parts.map { .object($0.json(now: now)) }),
        ])
    }

    /// `GET /v1/stats`
    func stats(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["days"])
        let days = try query.number("days", 1...Int64(DeviceDay.kept)) ?? 1
        let (parts, totals, outcomes) = (try await parts(), try await store.totals(), store.outcomes())
        let now = clock()
        let usage = try await usage(days: Int(days), now: now)
        return Answers.json([
            "version": .string(version), "uptime_seconds": .number(uptime(now)),
            "devices": .object(["total": .number(totals.devices), "active": .number(totals.activeDevices)]),
            "members": .number(totals.members), "rooms": .number(totals.rooms),
            "messages": .number(totals.messages), "notifications": .number(totals.notifications),
            "usage": usage,
            "apps": .array(
                parts.map { part in
                    var json = part.json(
                        with: [
                            "address": .optional(part.status?.address), "topic": .optional(part.status?.topic),
                            "connections": .number(part.status?.connections ?? 0),
                            "certificate_expires_at": .optional(part.status?.certificateExpiresAt),
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

    /// Devices that were seen on the last days, today as the last: of each app, and by what they say of themselves.
    private func usage(days count: Int, now: Timestamp) async throws -> JSONValue {
        let days = (0..<count).reversed().map { (now - .seconds($0 * 86_400)).day }
        guard let counts = try await store.usage(since: days[0]) else { return .null }
        let apps = Dictionary(grouping: counts, by: \.app).sorted { $0.key < $1.key }
        return .object([
            "days": .array(days.map { .string($0) }),
            "apps": .array(apps.map { .object(UsageTable($0.value, days: days).json(of: $0.key)) }),
        ])
    }

    /// `GET /metrics`
    func metrics(_ request: Request, _ context: ChatContext) async throws -> Response {
        let (parts, totals, outcomes) = (try await parts(), try await store.totals(), store.outcomes())
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
            text.sample(depth.oldest.map { seconds(since: $0, now: now) } ?? 0, [("app", depth.app.text)])
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
        text.family("pushchat_token_requests_total", "counter", "Requests with a program's token, since the start.")
        for call in calls.all { text.sample(call.count, [("token", call.name)]) }
        for (name, help, value) in [
            ("pushchat_members", "Members of rooms.", Int64(totals.members)),
            ("pushchat_rooms", "Rooms with a member.", Int64(totals.rooms)),
            ("pushchat_uptime_seconds", "Time since the start.", uptime(now)),
        ] {
            text.family(name, "gauge", help)
            text.sample(value)
        }
        return Answers.text(text.text, type: "text/plain; version=0.0.4; charset=utf-8")
    }

    /// One for each app that is configured, and for others that have something in the queue.
    private func parts() async throws -> [AppFigures] {
        let depths = try await store.queueDepths()
        let statuses = apps()
        let configured = statuses.map { status in
            AppFigures(depth: depths.first { $0.app == status.app } ?? QueueDepth(app: status.app), status: status)
        }
        let others = depths.filter { depth in !statuses.contains { $0.app == depth.app } }
        return configured + others.map { AppFigures(depth: $0, status: nil) }
    }

    private func uptime(_ now: Timestamp) -> Int64 { max(0, now.seconds - started.seconds) }
}

/// An app's part of the queue, and its gateway; no gateway for an app that is not configured any more.
private struct AppFigures {
    let depth: QueueDepth
    let status: AppStatus?

    /// - Parameter members: between those of the gateway and those of the queue.
    func json(with members: JSONObject = JSONObject(), now: Timestamp) -> JSONObject {
        var json: JSONObject = ["app": .string(depth.app.text), "gateway": .optional(status?.gateway)]
        for (name, value) in members.members { json[name] = value }
        json["due"] = .number(depth.due)
        json["delayed"] = .number(depth.delayed)
        json["written"] = .number(depth.written)
        json["oldest_queued_at"] = .optional(depth.oldest)
        json["oldest_age_seconds"] = age(of: depth.oldest, now: now)
        return json
    }
}

/// An app's devices by day: for each value a list with a number for each day.
private struct UsageTable {
    /// Values of a kind that are told apart; the rest is counted together.
    private static let mostValues = 20

    private var devices: [Int]
    private var values: [DeviceDay.Kind: [DeviceDay.Value: [Int]]] = [:]

    init(_ counts: [DeviceDay], days: [String]) {
        let none = [Int](repeating: 0, count: days.count)
        let positions = Dictionary(uniqueKeysWithValues: days.enumerated().map { ($1, $0) })
        devices = none
        for count in counts {
            // Of a clock that has been set back.
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

    /// The values that most devices said, on all days together, first.
    private func list(_ kind: DeviceDay.Kind) -> JSONObject {
        var (texts, others): ([(text: String, counts: [Int])], [Int]) = ([], devices.map { _ in 0 })
        for (value, counts) in values[kind] ?? [:] {
            if case .text(let text) = value { texts.append((text, counts)) }
            if value == .others { others = counts }
        }
        texts.sort { ($1.counts.reduce(0, +), $0.text) < ($0.counts.reduce(0, +), $1.text) }
        for (_, counts) in texts.dropFirst(Self.mostValues) { others = zip(others, counts).map(+) }
        return [
            "values": .array(
                texts.prefix(Self.mostValues).map {
                    .object(["value": .string($0.text), "devices": Self.list($0.counts)])
                }),
            "others": Self.list(others),
            "unknown": Self.list(values[kind]?[.nothing] ?? devices.map { _ in 0 }),
        ]
    }

    private static func list(_ counts: [Int]) -> JSONValue { .array(counts.map { .number($0) }) }
}

/// Seconds, not below 0: the clock may have been set back.
private func seconds(since time: Timestamp, now: Timestamp) -> Double {
    Double(max(0, now.milliseconds - time.milliseconds)) / 1000
}

private func age(of time: Timestamp?, now: Timestamp) -> JSONValue {
    time.map { .number(String(seconds(since: $0, now: now))) } ?? .null
}

/// Metrics in Prometheus' text format, version 0.0.4.
private struct MetricsText {
    private(set) var text = ""
    private var name = ""

    /// Begins a family; the samples that follow belong to it.
    mutating func family(_ name: String, _ type: String, _ help: String) {
        self.name = name
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
    }

    mutating func sample(_ value: some Numeric, _ labels: [(String, String)] = []) {
        let list = labels.map { "\($0.0)=\"\(Self.escaped($0.1))\"" }.joined(separator: ",")
        text += list.isEmpty ? "\(name) \(value)\n" : "\(name){\(list)} \(value)\n"
    }

    /// A reason may be any text, as a gateway sent it.
    private static func escaped(_ label: String) -> String {
        label.unicodeScalars.reduce(into: "") { text, scalar in
            switch scalar {
            case "\\": text += #"\\"#
            case "\"": text += #"\""#
            case "\n": text += #"\n"#
            default: text.unicodeScalars.append(scalar)
            }
        }
    }
}

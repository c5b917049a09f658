import ChatDomain
import Hummingbird
import Logging

/// Lets the operator list, retry and cancel pushes, and pause apps. The store records each change. ``AdminGuard``
/// authenticates the caller.
struct QueueAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any QueueAdministration { environment.stores.queueAdministration }

    var routes: [Route] {
        [
            Route(.get, "/v1/pushes", .scope(.admin), pushes),
            Route(.post, "/v1/queue:retry", .scope(.admin), retry),
            Route(.post, "/v1/queue:cancel", .scope(.admin), cancel),
            Route(.post, "/v1/queue:pause", .scope(.admin), pause),
            Route(.post, "/v1/queue:resume", .scope(.admin), resume),
        ]
    }

    private static let filterNames: Set = ["app", "state", "reason", "queued_before", "queued_after", "ids"]

    // MARK: - Pushes

    /// `GET /v1/pushes`
    func pushes(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: Self.filterNames.union(["limit", "cursor"]))
        let ids = try query.value("ids") { text, field throws(ChatError) in
            var ids: [Int64] = []
            for part in text.split(separator: ",", omittingEmptySubsequences: false) {
                guard let id = Int64(part) else { throw Self.invalidIDs }
                ids.append(id)
            }
            return try Self.checked(ids)
        }
        let filter = try filter(ids: ids) { query.text($0) }
        let page = try await store.pushes(filter, after: Self.cursor(query), limit: query.limit())
        return Responses.page("pushes", page.items.map(\.json), next: .optional(page.next))
    }

    /// Any push id can be a cursor, also the negative ones that another program chose.
    private static func cursor(_ query: AdminQuery) throws(ChatError) -> Int64? {
        guard let text = query.text("cursor") else { return nil }
        guard let cursor = Int64(text) else { throw .invalid("cursor", "must be a whole number") }
        return cursor
    }

    private static let invalidIDs = ChatError.invalid("ids", "must be push ids: whole numbers")

    private static func checked(_ ids: [Int64]) throws(ChatError) -> [Int64] {
        guard (1...HTTPLimits.pushIDs).contains(ids.count) else {
            throw .invalid("ids", "must have 1 to \(HTTPLimits.pushIDs) items, has \(ids.count)")
        }
        return ids
    }

    /// Reads the filter that the listing and the changes share.
    private func filter(
        ids: [Int64]?, _ text: (String) throws(ChatError) -> String?
    ) throws(ChatError) -> QueueFilter {
        var filter = QueueFilter(ids: ids)
        // Also an app that is no longer configured may have pushes.
        if let name = try text("app") {
            guard (1...HTTPLimits.fieldName).contains(name.utf8.count), !name.utf8.contains(0) else {
                throw .invalid("app", "must have 1 to \(HTTPLimits.fieldName) bytes, none of them zero")
            }
            filter.app = (try? app(name)) ?? AppName(name)
        }
        if let names = try text("state") {
            var states: Set<PushState> = []
            for name in names.split(separator: ",", omittingEmptySubsequences: false) {
                guard let state = PushState(rawValue: String(name)) else {
                    let known = PushState.allCases.map(\.rawValue).joined(separator: ", ")
                    throw .invalid("state", "must be one of \(known), or several with commas")
                }
                states.insert(state)
            }
            filter.states = states
        }
        if let reason = try text("reason") { filter.reason = try QueuePause.reason(reason, field: "reason") }
        for (name, path) in [("queued_before", \QueueFilter.queuedBefore), ("queued_after", \.queuedAfter)] {
            guard let text = try text(name) else { continue }
            guard let time = Timestamp(rfc3339: text) else {
                throw .invalid(name, "must be a time as in RFC 3339: 2026-11-21T10:29:47Z")
            }
            filter[keyPath: path] = time
        }
        return filter
    }

    /// `POST /v1/queue:retry`
    func retry(_ request: Request, _ context: ChatContext) async throws -> Response {
        try await change(.retry, request, context)
    }

    /// `POST /v1/queue:cancel`
    func cancel(_ request: Request, _ context: ChatContext) async throws -> Response {
        try await change(.cancel, request, context)
    }

    private func change(_ change: QueueChange, _ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: Self.filterNames.union(["all", "cursor", "dry_run"]))
        var ids: [Int64]?
        if let value = body.object["ids"], value != .null {
            guard let list = value.array?.map(\.integer), !list.contains(nil) else { throw Self.invalidIDs }
            ids = try Self.checked(list.compactMap(\.self))
        }
        let filter = try filter(ids: ids) { name throws(ChatError) in try body.text(name) }
        guard try body.flag("all") != (filter != QueueFilter()) else {
            if filter == QueueFilter() {
                throw ChatError(
                    .missingField, "Missing a filter: app, state, reason, queued_before, queued_after or ids; or all",
                    field: "all")
            }
            throw ChatError.invalid("all", "cannot go together with a filter")
        }
        var cursor: Int64?
        if let value = body.object["cursor"], value != .null {
            guard let number = value.integer else { throw ChatError.invalid("cursor", "must be a whole number") }
            cursor = number
        }
        let isDryRun = try body.flag("dry_run")
        let moderator = try context.moderator(request, environment)
        let part =
            if isDryRun {
                try await store.dryRun(change, .matching(filter), after: cursor, parts: HTTPLimits.queueParts)
            } else {
                try await store.perform(
                    change, .matching(filter), after: cursor, parts: HTTPLimits.queueParts, by: moderator)
            }
        if !isDryRun {
            environment.note(
                change == .retry ? "pushes retried" : "pushes cancelled", ["count": "\(part.count)"], by: moderator,
                context)
        }
        return Responses.json([
            "pushes": .number(part.count), "dry_run": .bool(isDryRun), "next": .optional(part.next),
        ])
    }

    // MARK: - Pauses

    /// `POST /v1/queue:pause`
    func pause(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: ["app", "reason", "dry_run"])
        guard let name = try body.text("app") else { throw ChatError.missing("app") }
        let app = try app(name)
        let reason = try body.value("reason", QueuePause.reason(_:field:))
        let isDryRun = try body.flag("dry_run")
        let moderator = try context.moderator(request, environment)
        var pause = try await store.pauses().first { $0.app == app }
        if !isDryRun {
            pause = try await store.pause(app, reason: reason, by: moderator)
            environment.note("app paused", [LogKeys.app: "\(app)"], by: moderator, context)
        }
        return try await response(app, pause, isDryRun: isDryRun)
    }

    /// `POST /v1/queue:resume`
    func resume(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: ["app", "dry_run"])
        guard let name = try body.text("app") else { throw ChatError.missing("app") }
        let isDryRun = try body.flag("dry_run")
        let moderator = try context.moderator(request, environment)
        let pauses = try await store.pauses()
        // An app that is no longer configured may still be paused.
        let paused = pauses.first { $0.app.text == name }?.app
        let app = try paused ?? app(name)
        var pause = pauses.first { $0.app == app }
        if !isDryRun, pause != nil {
            _ = try await store.resume(app, by: moderator)
            pause = nil
            environment.note("app resumed", [LogKeys.app: "\(app)"], by: moderator, context)
        }
        return try await response(app, pause, isDryRun: isDryRun)
    }

    private func response(_ app: AppName, _ pause: QueuePause?, isDryRun: Bool) async throws -> Response {
        let depth = try await environment.stores.metrics.queueDepths().first { $0.app == app }
        var json: JSONObject = [
            "app": .string(app.text), "pushes": .number(depth?.total ?? 0),
            "dry_run": .bool(isDryRun),
        ]
        for (name, value) in pause.json.members { json[name] = value }
        return Responses.json(json)
    }

    /// Returns the app with a name or topic.
    private func app(_ name: String) throws(ChatError) -> AppName {
        if name == AppName.web.text { return .web }
        guard !name.isEmpty else { throw .invalid("app", "names no app of this relay") }
        return try environment.app(named: name)
    }
}

extension QueuePause? {
    /// The pause of an app. All values are null if the app is not paused.
    var json: JSONObject {
        [
            "paused_at": .optional(self?.since), "paused_by": .optional(self?.actor),
            "pause_reason": .optional(self?.reason),
        ]
    }
}

import ChatDomain
import Hummingbird
import Logging
import Synchronization

/// Whether a part of the process works without which requests cannot be served.
package struct ReadinessCheck: Sendable, Hashable {
    package let name: String
    /// What is wrong, in a few words that everyone may read; nil if nothing is.
    package let problem: String?
    /// What was found, for the administrator and the log.
    package let cause: String?

    package init(name: String, problem: String? = nil, cause: String? = nil) {
        self.name = name
        self.problem = problem
        self.cause = cause
    }
}

/// `/healthz` and `/readyz`.
final class Health: Sendable {
    private let store: any RoomStore
    private let readiness: @Sendable () async -> [ReadinessCheck]
    private let logger: Logger
    /// The further checks that failed when they were asked last: each is logged when that changes.
    private let failing = Mutex<Set<String>>([])

    init(store: any RoomStore, readiness: @escaping @Sendable () async -> [ReadinessCheck], logger: Logger) {
        self.store = store
        self.readiness = readiness
        self.logger = logger
    }

    /// The process answers.
    func alive(_ request: Request, _ context: ChatContext) -> Response {
        Answers.json(["healthy": .bool(true)])
    }

    /// The process can do its work: 200, or 503 with what is wrong, in a few words.
    func ready(_ request: Request, _ context: ChatContext) async -> Response {
        await answer(context, isDetailed: false)
    }

    /// The same, with what was found.
    func details(_ request: Request, _ context: ChatContext) async -> Response {
        await answer(context, isDetailed: true)
    }

    private func answer(_ context: ChatContext, isDetailed: Bool) async -> Response {
        let cause = await databaseFailure(context)
        let database = ReadinessCheck(
            name: "database", problem: cause == nil ? nil : "does not answer", cause: cause.map { "\($0)" })
        let further = await readiness()
        for check in further { note(check) }
        let checks = [database] + further
        let isReady = checks.allSatisfy { $0.problem == nil }
        var (results, details) = (JSONObject(), JSONObject())
        for check in checks {
            results[check.name] = .string(check.problem ?? "ok")
            details[check.name] = check.cause.map { .string($0) }
        }
        var json: JSONObject = ["ready": .bool(isReady), "checks": .object(results)]
        if isDetailed { json["details"] = .object(details) }
        return Answers.json(json, status: isReady ? .ok : .serviceUnavailable)
    }

    private func note(_ check: ReadinessCheck) {
        let isNew = failing.withLock { failing in
            check.problem == nil ? failing.remove(check.name) != nil : failing.insert(check.name).inserted
        }
        guard isNew else { return }
        var metadata: Logger.Metadata = [LogKeys.check: "\(check.name)"]
        if let problem = check.problem {
            metadata[LogKeys.cause] = "\(check.cause ?? problem)"
            logger.error("not ready", metadata: metadata)
        } else {
            logger.notice("ready again", metadata: metadata)
        }
    }

    /// What the client may read of it; the cause is logged.
    func databaseProblem(_ context: ChatContext) async -> String? {
        await databaseFailure(context)?.message
    }

    private func databaseFailure(_ context: ChatContext) async -> ChatError? {
        do throws(ChatError) {
            try await store.ping()
            return nil
        } catch {
            logger.error(
                "database does not answer",
                metadata: context.ids.metadata([LogKeys.cause: "\(error)"]))
            return error
        }
    }
}

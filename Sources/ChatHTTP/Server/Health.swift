import ChatDomain
import Hummingbird
import Logging

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
    /// The checks that failed when they were asked last. Anyone may ask as often as they like.
    private let failures: RepeatedRefusals

    init(
        store: any RoomStore, readiness: @escaping @Sendable () async -> [ReadinessCheck],
        clock: MonotonicTime, logger: Logger
    ) {
        self.store = store
        self.readiness = readiness
        self.logger = logger
        failures = RepeatedRefusals(interval: HTTPLimits.readinessReports, clock: clock)
    }

    /// The process answers.
    func alive(_ request: Request, _ context: ChatContext) -> Response {
        Responses.json(["healthy": .bool(true)])
    }

    /// The process can do its work: 200, or 503 with what is wrong, in a few words.
    func ready(_ request: Request, _ context: ChatContext) async -> Response {
        await answer(isDetailed: false)
    }

    /// The same, with what was found.
    func details(_ request: Request, _ context: ChatContext) async -> Response {
        await answer(isDetailed: true)
    }

    private func answer(isDetailed: Bool) async -> Response {
        let checks = [databaseCheck(await databaseFailure())] + (await readiness())
        for check in checks { note(check) }
        let isReady = checks.allSatisfy { $0.problem == nil }
        var (results, details) = (JSONObject(), JSONObject())
        for check in checks {
            results[check.name] = .string(check.problem ?? "ok")
            details[check.name] = check.cause.map { .string($0) }
        }
        var json: JSONObject = ["ready": .bool(isReady), "checks": .object(results)]
        if isDetailed { json["details"] = .object(details) }
        return Responses.json(json, status: isReady ? .ok : .serviceUnavailable)
    }

    /// Logs a change at once, and a failure that goes on once in ``HTTPLimits/readinessReports``.
    private func note(_ check: ReadinessCheck) {
        var metadata: Logger.Metadata = [LogKeys.check: "\(check.name)"]
        guard let problem = check.problem else {
            if failures.end(check.name) { logger.notice("ready again", metadata: metadata) }
            return
        }
        guard let count = failures.count(check.name) else { return }
        metadata[LogKeys.cause] = "\(check.cause ?? problem)"
        if count > 1 { metadata[LogKeys.count] = "\(count)" }
        logger.error("not ready", metadata: metadata)
    }

    /// What the client may read of it; the cause is logged.
    func databaseProblem() async -> String? {
        let failure = await databaseFailure()
        note(databaseCheck(failure))
        return failure?.message
    }

    private func databaseCheck(_ failure: ChatError?) -> ReadinessCheck {
        ReadinessCheck(
            name: "database", problem: failure.map { _ in "does not answer" }, cause: failure.map { "\($0)" })
    }

    private func databaseFailure() async -> ChatError? {
        do throws(ChatError) {
            try await store.ping()
            return nil
        } catch {
            return error
        }
    }
}

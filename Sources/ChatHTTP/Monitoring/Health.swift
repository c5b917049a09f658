import ChatDomain
import Hummingbird
import Logging

/// `/healthz` and `/readyz`.
final class Health: Sendable {
    private let environment: ChatEnvironment
    /// The checks that failed at the last request. Limits the log, because anyone may request `/readyz` at any rate.
    private let failures: RepeatedRejections

    init(_ environment: ChatEnvironment) {
        self.environment = environment
        failures = RepeatedRejections(interval: HTTPLimits.readinessReports, clock: environment.clocks.monotonic)
    }

    var routes: [Route] {
        [
            Route(.get, "/healthz", .anyone, alive),
            // Only callers with the scope `figures` may read the causes.
            Route(.get, "/readyz", .scope(.figures), when: { $0.headers.contains(.authorization) }, details),
            Route(.get, "/readyz", .anyone, in: .admin, ready),
        ]
    }

    /// `/healthz`: the process responds.
    func alive(_ request: Request, _ context: ChatContext) -> Response {
        Responses.json(["healthy": .bool(true)])
    }

    /// `/readyz`: 200 if the process can do its work, else 503 with each problem in a few words.
    func ready(_ request: Request, _ context: ChatContext) async -> Response {
        await report(isDetailed: false)
    }

    /// `/readyz` for a caller with the scope `figures`, with the cause of each problem.
    func details(_ request: Request, _ context: ChatContext) async -> Response {
        await report(isDetailed: true)
    }

    private func report(isDetailed: Bool) async -> Response {
        let checks = [databaseCheck(await databaseFailure())] + (await environment.relay.readiness())
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

    /// Logs a change at once, and a continuing failure once per ``HTTPLimits/readinessReports``.
    private func note(_ check: ReadinessCheck) {
        var metadata: Logger.Metadata = [LogKeys.check: "\(check.name)"]
        guard let problem = check.problem else {
            if failures.end(check.name) { environment.logger.notice("ready again", metadata: metadata) }
            return
        }
        guard let count = failures.count(check.name) else { return }
        metadata[LogKeys.cause] = "\(check.cause ?? problem)"
        if count > 1 { metadata[LogKeys.count] = "\(count)" }
        environment.logger.error("not ready", metadata: metadata)
    }

    /// Checks the database and logs the cause of a failure. Returns the text for the client, `nil` if the database
    /// works.
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
            try await environment.stores.rooms.ping()
            return nil
        } catch {
            return error
        }
    }
}

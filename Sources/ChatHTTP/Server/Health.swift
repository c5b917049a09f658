import ChatDomain
import Hummingbird
import Logging

/// Whether a part of the process works without which requests cannot be served.
package struct ReadinessCheck: Sendable, Hashable {
    package let name: String
    /// What is wrong, for the operator; nil if nothing is.
    package let problem: String?

    package init(name: String, problem: String? = nil) {
        self.name = name
        self.problem = problem
    }
}

/// `/healthz` and `/readyz`.
struct Health: Sendable {
    let store: any RoomStore
    let furtherChecks: @Sendable () async -> [ReadinessCheck]
    let logger: Logger

    /// The process answers.
    func alive(_ request: Request, _ context: ChatContext) -> Response {
        Answers.json(["healthy": .bool(true)])
    }

    /// The process can do its work: 200, or 503 with what is wrong.
    func ready(_ request: Request, _ context: ChatContext) async -> Response {
        let database = ReadinessCheck(name: "database", problem: await databaseProblem(context))
        let checks = await [database] + furtherChecks()
        let isReady = checks.allSatisfy { $0.problem == nil }
        var results = JSONObject()
        for check in checks { results[check.name] = .string(check.problem ?? "ok") }
        return Answers.json(
            ["ready": .bool(isReady), "checks": .object(results)], status: isReady ? .ok : .serviceUnavailable)
    }

    /// What the client may read of it; the cause is logged.
    func databaseProblem(_ context: ChatContext) async -> String? {
        do throws(ChatError) {
            try await store.ping()
            return nil
        } catch {
            logger.error(
                "database does not answer",
                metadata: [LogKeys.requestID: "\(context.requestID)", LogKeys.cause: "\(error)"])
            return error.message
        }
    }
}

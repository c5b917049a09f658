import ChatDomain
import Hummingbird
import Logging

/// A part of the process that must work for requests to make sense.
package struct ReadinessCheck: Sendable, Hashable {
    package let name: String
    /// What is wrong, for whoever operates the server; nil if nothing is.
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
        var json = JSONText()
        json.raw(#"{"healthy":true}"#)
        return Answers.json(json)
    }

    /// The process can do its work: 200, or 503 with what is wrong.
    func ready(_ request: Request, _ context: ChatContext) async -> Response {
        var checks = [ReadinessCheck(name: "database", problem: await databaseProblem(context))]
        checks += await furtherChecks()
        let isReady = checks.allSatisfy { $0.problem == nil }
        var json = JSONText()
        json.raw(#"{"ready":\#(isReady),"checks":{"#)
        for (index, check) in checks.enumerated() {
            if index > 0 { json.raw(",") }
            json.string(check.name)
            json.raw(":")
            json.string(check.problem ?? "ok")
        }
        json.raw("}}")
        return Answers.json(json, status: isReady ? .ok : .serviceUnavailable)
    }

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

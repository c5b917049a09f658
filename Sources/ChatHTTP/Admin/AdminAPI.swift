import ChatDomain
import Hummingbird
import Logging

/// What the operator's own programs call: `/v1` and `/metrics`. Who may is the ``AdminGuard``'s affair.
struct AdminAPI: Sendable {
    let stores: Stores
    /// Which app a name or topic means. Throws what the user reads if it means none.
    let resolveApp: @Sendable (String?) throws(ChatError) -> AppName
    /// The apps that are configured.
    let apps: @Sendable () -> [AppStatus]
    /// What an app's gateway requires of pushes.
    let format: @Sendable (AppName) -> any PushFormat
    /// The log's last warnings and errors, oldest first.
    let recentWarnings: @Sendable () -> [JSONValue]
    let clock: TimeSource
    let version: String
    let started: Timestamp
    let logger: Logger

    /// The app that a request names; nil if it names none.
    func app(_ name: String?) throws(ChatError) -> AppName? {
        guard let name else { return nil }
        guard !name.isEmpty else { throw .invalid("app", "must not be empty") }
        do throws(ChatError) {
            return try resolveApp(name)
        } catch {
            throw .invalid("app", "names no app of this relay")
        }
    }

    /// The device that the path names, in any form in which tokens are printed.
    static func token(_ context: ChatContext) throws -> DeviceToken {
        let text = try context.parameters.require("token")
        return try DeviceToken(parsing: text.removingPercentEncoding ?? text)
    }

    /// The number that the path names.
    static func id(_ context: ChatContext) throws -> Int64 {
        let text = try context.parameters.require("id")
        guard (1...19).contains(text.utf8.count),
            text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }), let id = Int64(text)
        else { throw ChatError.invalid("id", "must be a whole number") }
        return id
    }

    /// A piece of a list, and what to ask for the next with.
    static func page(_ name: String, _ items: [JSONObject], next: JSONValue) -> Response {
        Answers.json(.object([name: .array(items.map { .object($0) }), "next": next]))
    }

    /// The document that describes these calls.
    func description(_ request: Request, _ context: ChatContext) throws -> Response {
        _ = try AdminQuery(request, names: [])
        return Answers.openAPI
    }
}

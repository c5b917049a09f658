package import AsyncHTTPClient
package import ChatDomain
import NIOCore

/// The calls that a member makes to the chat API. Each call is made once, and throws an error that
/// ``RelayClient/failure(_:)`` classifies.
package struct MemberCalls: Sendable {
    package let relay: RelayClient
    private let udid: MemberID
    private let appVersion: String

    /// The time limit of calls at the end of the process.
    private static let lastCallLimit = TimeAmount.seconds(3)

    /// Creates the calls of a member.
    ///
    /// - Parameter appVersion: The version that the relay stores with the member.
    package init(relay: RelayClient, udid: MemberID, appVersion: String) {
        self.relay = relay
        self.udid = udid
        self.appVersion = appVersion
    }

    package func join(_ code: SecretCode, as name: Nickname) async throws {
        _ = try await post(
            "/api.php",
            [
                ("cmd", "join"), ("token", "0"), ("name", name.text), ("code", code.text),
                ("app_version", appVersion), ("device_model", "terminal"),
            ])
    }

    package func messages(since: MessageID) async throws -> JSONValue {
        try await post(
            "/api.php", [("cmd", "messages"), ("since", "\(since)"), ("limit", "\(ChatClientState.page)")])
    }

    package func post(_ draft: ChatClientState.Draft, isLast: Bool = false) async throws {
        _ = try await post(
            "/api.php", [("cmd", "message"), ("text", draft.text)], headers: ["Idempotency-Key": draft.key],
            within: isLast ? Self.lastCallLimit : RelayClient.timeout)
    }

    package func leave() async throws {
        _ = try await post("/api.php", [("cmd", "leave")], within: Self.lastCallLimit)
    }

    /// Requests the room's stream of events after a message. A ticket replaces the udid in the URL, because proxies log
    /// URLs.
    package func stream(since: MessageID) async throws -> HTTPClientResponse.Body {
        guard let ticket = try await post("/events/ticket", []).object?["ticket"]?.text else { throw relay.isNoRelay }
        let request = relay.request(
            .GET, "/events".adding([("ticket", ticket)]),
            headers: ["Accept": "text/event-stream", "Last-Event-ID": "\(since)"])
        do {
            return try await relay.head(of: request).body
        } catch let refusal as RelayRefusal where refusal.status == 401 {
            // Tickets expire, and do not survive a restart of the relay. The request for the next ticket shows whether
            // the session is valid.
            throw CallFailure.lost(relay.base)
        }
    }

    private func post(
        _ path: String, _ fields: [(String, String?)], headers: [String: String] = [:],
        within limit: TimeAmount = RelayClient.timeout
    ) async throws -> JSONValue {
        let headers = headers.merging(
            ["Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"]) { own, _ in own }
        var request = relay.request(.POST, path, headers: headers)
        request.body = .bytes(ByteBuffer(string: String("".adding([("udid", udid.text)] + fields).dropFirst())))
        return try await relay.response(to: request, within: limit)
    }
}

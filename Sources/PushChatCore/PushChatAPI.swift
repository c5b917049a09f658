public import Foundation

/// The chat API of a relay (`docs/chat-api.md`). Each call is made once.
public struct PushChatAPI: Sendable {
    /// The relay's URL, without `/api.php`.
    public let url: URL
    package let transport: any RelayTransport
    private let session: @Sendable () async throws -> String?

    /// The properties of the app that the relay stores with a device. The operator sees them in the list of devices.
    public struct App: Sendable, Hashable {
        /// The name of the app on the relay, or its bundle identifier. `nil` if the relay has one app only.
        public var id: String?
        public var version: String?
        public var system: String?
        public var model: String?

        public init(id: String? = nil, version: String? = nil, system: String? = nil, model: String? = nil) {
            self.id = id
            self.version = version
            self.system = system
            self.model = model
        }

        fileprivate var fields: [(String, String?)] {
            [("app_version", version), ("os_version", system), ("device_model", model)]
        }
    }

    public var app: App

    /// Creates the API of a relay.
    ///
    /// - Parameters:
    ///   - url: The relay's URL, without `/api.php`. A slash at the end is ignored.
    ///   - app: The properties of the app.
    ///   - transport: Makes the requests.
    ///   - session: Returns the session token that a relay with `sessions` requires. Called for each request, because
    ///     sessions end. Returns `nil` without one.
    public init(
        url: URL, app: App = App(), transport: any RelayTransport,
        session: @escaping @Sendable () async throws -> String? = { nil }
    ) {
        self.url = url
        self.app = app
        self.transport = transport
        self.session = session
    }

    // MARK: - Calls

    /// Enters a room, or changes the member's name or device in it. The member leaves its earlier room.
    ///
    /// - Parameter deviceToken: The device's push token. `nil` if the app has none; the member then gets no pushes.
    public func join(
        _ code: String, as name: String, member: ChatMemberID, deviceToken: Data? = nil
    ) async throws(PushChatError) {
        _ = try await post(
            "join",
            [("udid", member.text), ("token", deviceToken?.hex ?? "0"), ("name", name), ("code", code)]
                + [("appid", app.id)] + app.fields)
    }

    /// Leaves the room. Succeeds even if the member was in none.
    public func leave(_ member: ChatMemberID, within timeout: Duration = .seconds(30)) async throws(PushChatError) {
        _ = try await post("leave", [("udid", member.text)], within: timeout)
    }

    /// Stores another push token for the member's device.
    public func update(deviceToken: Data, member: ChatMemberID) async throws(PushChatError) {
        _ = try await post("update", [("udid", member.text), ("token", deviceToken.hex)] + app.fields)
    }

    /// Posts a message.
    ///
    /// - Parameter key: The idempotency key: the relay accepts one message with this key, however often it is posted.
    /// - Returns: The message's id.
    @discardableResult
    public func post(
        _ text: String, member: ChatMemberID, key: String = UUID().uuidString, within timeout: Duration = .seconds(30)
    ) async throws(PushChatError) -> Int64 {
        struct Posted: Decodable { let id: Int64 }
        let response = try await post(
            "message", [("udid", member.text), ("text", text)], headers: ["Idempotency-Key": key], within: timeout)
        return (try Self.decode(response) as Posted).id
    }

    /// Returns the messages after one, oldest first.
    ///
    /// - Parameters:
    ///   - limit: The maximum number of messages, from 1 to 500.
    ///   - isPeek: Whether the messages stay unread. Otherwise the relay counts them as read by the member. An app in
    ///     the background, or its notification service, peeks.
    public func messages(
        after id: Int64, limit: Int = 100, member: ChatMemberID, isPeek: Bool = false
    ) async throws(PushChatError) -> ChatPage {
        try Self.decode(
            await post(
                "messages",
                [
                    ("udid", member.text), ("since", "\(id)"), ("limit", "\(limit)"), ("peek", isPeek ? "1" : nil),
                ]))
    }

    /// Returns the messages and the changes of messages after a position. `limit` counts both.
    package func page(after id: Int64, limit: Int, member: ChatMemberID) async throws(PushChatError) -> ChatPage {
        try Self.decode(
            await post(
                "messages", [("udid", member.text), ("since", "\(id)"), ("limit", "\(limit)"), ("changes", "1")]))
    }

    /// Reports that the device has shown a message to its user, for the operator. The message stays unread.
    public func shown(_ id: Int64, member: ChatMemberID) async throws(PushChatError) {
        _ = try await post("shown", [("udid", member.text), ("id", "\(id)")])
    }

    /// Returns the reach of one of the member's own messages.
    public func receipt(of id: Int64, member: ChatMemberID) async throws(PushChatError) -> ChatReceipt {
        try Self.decode(await post("receipt", [("udid", member.text), ("id", "\(id)")]))
    }

    /// Reports the token with which the relay updates and ends a Live Activity, as in `Activity.pushTokenUpdates`.
    ///
    /// - Parameters:
    ///   - tag: The activity's tag: the member `tag` of its attributes.
    ///   - member: A member with a device token. The relay sends the activity to no other device.
    public func reportActivityToken(
        _ token: Data, tag: String, member: ChatMemberID
    ) async throws(PushChatError) {
        _ = try await post(
            "activity_token", [("udid", member.text), ("token", token.hex), ("tag", tag)] + app.fields)
    }

    /// Reports the token with which the relay starts Live Activities, as in `Activity.pushToStartTokenUpdates`. Report
    /// it at each launch, because it can change while the app does not run.
    ///
    /// - Parameter type: The name of the type of the activities' attributes.
    public func reportActivityStartToken(
        _ token: Data, type: String = PushChatActivityAttributes.typeName, member: ChatMemberID
    ) async throws(PushChatError) {
        _ = try await post(
            "activity_token", [("udid", member.text), ("token", token.hex), ("type", type)] + app.fields)
    }

    /// Opens the stream of the room's events after a message. A ticket replaces the member's id in the URL, because
    /// proxies log URLs.
    package func stream(after id: Int64, member: ChatMemberID) async throws(PushChatError) -> RelayStream {
        struct Ticket: Decodable { let ticket: String }
        let ticket: Ticket = try Self.decode(await send("/events/ticket", [("udid", member.text)]))
        var request = try await request(
            "GET", "/events", query: [("ticket", ticket.ticket)],
            headers: ["Accept": "text/event-stream", "Last-Event-ID": "\(id)"])
        request.timeout = .seconds(30)
        let stream: RelayStream
        do {
            stream = try await transport.stream(of: request)
        } catch {
            throw Self.failure(error)
        }
        if stream.status == 200 { return stream }
        // Tickets expire, and do not survive a restart of the relay. The request for the next ticket shows whether the
        // session is valid.
        if stream.status == 401 { throw .connectionLost("the ticket was not accepted") }
        var body = Data()
        do {
            for try await piece in stream.body where body.count < 1 << 16 { body += piece }
        } catch {
            throw Self.failure(error)
        }
        throw Self.rejection(RelayResponse(status: stream.status, headers: stream.headers, body: body))
    }

    // MARK: - Requests

    private func post(
        _ command: String, _ fields: [(String, String?)], headers: [String: String] = [:],
        within timeout: Duration = .seconds(30)
    ) async throws(PushChatError) -> Data {
        try await send("/api.php", [("cmd", command)] + fields, headers: headers, within: timeout)
    }

    private func send(
        _ path: String, _ fields: [(String, String?)], headers: [String: String] = [:],
        within timeout: Duration = .seconds(30)
    ) async throws(PushChatError) -> Data {
        var request = try await request(
            "POST", path,
            headers: headers.merging([
                "Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded",
            ]) { own, _ in own })
        request.body = Data(FormText.encoded(fields).utf8)
        request.timeout = timeout
        let response: RelayResponse
        do {
            response = try await transport.response(to: request)
        } catch {
            throw Self.failure(error)
        }
        guard (200..<300).contains(response.status) else { throw Self.rejection(response) }
        return response.body
    }

    private func request(
        _ method: String, _ path: String, query: [(String, String?)] = [], headers: [String: String]
    ) async throws(PushChatError) -> RelayRequest {
        var text = url.absoluteString
        while text.hasSuffix("/") { text.removeLast() }
        text += path + (query.isEmpty ? "" : "?" + FormText.encoded(query))
        guard let url = URL(string: text) else { throw .unexpectedResponse("\(text) is not a URL") }
        var headers = headers
        do {
            if let session = try await session() { headers["Authorization"] = "Bearer \(session)" }
        } catch {
            throw .connectionLost("the app has no session: \(error)")
        }
        return RelayRequest(method: method, url: url, headers: headers)
    }

    /// Returns the error that a thrown error of the transport means.
    package static func failure(_ error: any Error) -> PushChatError {
        switch error {
        case let error as PushChatError: error
        case TransportError.refused: .unreachable
        case TransportError.lost(let reason): .connectionLost(reason)
        case is CancellationError: .cancelled
        default: Task.isCancelled ? .cancelled : .connectionLost("\(error)")
        }
    }

    private static func decode<Value: Decodable>(_ body: Data) throws(PushChatError) -> Value {
        do {
            return try JSONDecoder().decode(Value.self, from: body)
        } catch {
            throw .unexpectedResponse(String(decoding: body.prefix(200), as: UTF8.self))
        }
    }

    /// Reads the message from the body of an error response: an error of the chat API, or a problem document.
    private static func rejection(_ response: RelayResponse) -> PushChatError {
        struct Detail: Decodable {
            let code: String?
            let message: String?
            let field: String?
        }
        struct Body: Decodable {
            let error: Detail?
            let detail: String?
            let code: String?
            let field: String?
        }
        let body = try? JSONDecoder().decode(Body.self, from: response.body)
        let seconds = response.headers["retry-after"].flatMap { Int64($0) }
        return .rejected(
            RelayRejection(
                status: response.status, code: body?.error?.code ?? body?.code,
                field: body?.error?.field ?? body?.field,
                message: body?.error?.message ?? body?.detail ?? "the server responded with status \(response.status)",
                retryAfter: seconds.flatMap { $0 >= 0 ? .seconds($0) : nil }))
    }
}

/// The form encoding of requests.
enum FormText {
    private static let plain = CharacterSet(
        charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

    /// Escapes every character that could have a meaning, including the plus sign. Leaves out fields without a value.
    static func encoded(_ fields: [(String, String?)]) -> String {
        fields.compactMap { name, value in
            value.map { "\(name)=\($0.addingPercentEncoding(withAllowedCharacters: plain) ?? "")" }
        }.joined(separator: "&")
    }
}

extension Data {
    /// Hexadecimal digits, as the API wants push tokens.
    var hex: String {
        map { byte in
            let digits = String(byte, radix: 16)
            return byte < 16 ? "0" + digits : digits
        }.joined()
    }
}

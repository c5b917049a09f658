import ChatDomain
import Foundation
import HTTPTypes
import Hummingbird

/// ntfy's publishing API, for programs that send to an ntfy server. It is available under `/ntfy`. A topic is a room's
/// code (https://docs.ntfy.sh/publish).
struct NtfyAPI: Sendable {
    let posting: PostingAPI

    var routes: [Route] {
        func route(
            _ method: HTTPRequest.Method, _ path: String, _ handler: @escaping ChatContext.Handler
        ) -> Route {
            Route(method, path, .scope(.post), credential: Self.credential, handler)
        }
        return [
            route(.post, "/ntfy", publishJSON),
            route(.put, "/ntfy", publishJSON),
            route(.post, "/ntfy/{topic}", publish),
            route(.put, "/ntfy/{topic}", publish),
            route(.get, "/ntfy/{topic}/publish", publish),
            route(.get, "/ntfy/{topic}/send", publish),
            route(.get, "/ntfy/{topic}/trigger", publish),
            Route(.get, "/ntfy/v1/health", .anyone, health),
            // Some ntfy clients support only a server without a path.
            route(.post, "/", publishJSON),
        ]
    }

    /// The text with which ntfy replaces an empty message.
    private static let empty = "triggered"

    /// Returns the token from `Authorization` with Bearer, from the password of Basic, or from `?auth=`, which contains
    /// the whole header in base64. Empty if the credential has another form.
    @Sendable static func credential(_ request: Request) -> String? {
        var headers = request.headers
        if let auth = request.uri.queryParameters["auth"] {
            headers = [.authorization: base64(String(auth)) ?? ""]
        }
        if let token = headers.bearerToken { return token }
        guard let value = headers.first(.authorization) else { return nil }
        guard value.lowercased().hasPrefix("basic "),
            let pair = base64(String(HeaderText.trimmed(value.dropFirst("basic ".count))))
        else { return "" }
        let parts = pair.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        let password = parts.count == 2 ? String(parts[1]) : ""
        return password.isEmpty ? String(parts[0]) : password
    }

    /// Decodes base64 in either alphabet, with or without padding.
    private static func base64(_ text: String) -> String? {
        let standard = text.replacing("-", with: "+").replacing("_", with: "/").replacing("=", with: "")
        let padding = String(repeating: "=", count: (4 - standard.utf8.count % 4) % 4)
        return Data(base64Encoded: standard + padding).flatMap { String(data: $0, encoding: .utf8) }
    }

    /// `POST` or `PUT /ntfy/{topic}`, with the text as body; `GET /ntfy/{topic}/publish`.
    func publish(_ request: Request, _ context: ChatContext) async throws -> Response {
        let escaped = Array(try context.parameters.require("topic").utf8)
        let topic = String(decoding: URLEncodedForm.unescaped(escaped[...], plusIsBlank: false), as: UTF8.self)
        let body = request.method == .get ? "" : try await PostingAPI.text(of: request)
        return try await publish(Parameters(request), topic: topic, body: body, request, context)
    }

    /// `POST /ntfy` and `POST /`, with a JSON body.
    func publishJSON(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request)
        guard let topic = try body.text("topic") else { throw ChatError.missing("topic") }
        var parameters = Parameters(request)
        try parameters.add(body.object)
        return try await publish(parameters, topic: topic, body: "", request, context)
    }

    private func publish(
        _ parameters: Parameters, topic: String, body: String, _ request: Request, _ context: ChatContext
    ) async throws -> Response {
        guard parameters[.delay] == nil else {
            throw ChatError.invalid("delay", "is not supported: messages are sent at once")
        }
        let priority = try parameters.priority()
        var text = PostingAPI.Draft.fitting(
            body.isEmpty ? parameters[.message] ?? "" : body, limit: MessageText.highestLimit)
        if FieldText.trimmed(text).isEmpty { text = Self.empty }
        let title = parameters[.title].map { title in
            PostingAPI.Draft.fitting(title, limit: MessageExtras.longestTitle, keepsLines: false)
        }
        let draft = PostingAPI.Draft(
            room: try SecretCode(parsing: topic, field: "topic"), text: text,
            title: title.flatMap { FieldText.trimmed($0).isEmpty ? nil : $0 },
            link: parameters[.click].flatMap { NotificationContent.isLink($0) ? $0 : nil },
            priority: priority.ofPushes, sound: priority.sound)
        let (receipt, room) = try await posting.post(draft, request, context)
        var response: JSONObject = [
            "id": .string(String(receipt.message)), "time": .number(posting.environment.now().seconds),
            "event": .string("message"),
            "topic": .string(room.text), "message": .string(text), "priority": .number(priority.rawValue),
        ]
        if let title { response["title"] = .string(title) }
        if let link = draft.link { response["click"] = .string(link) }
        return Responses.json(response)
    }

    /// `GET /ntfy/v1/health`
    func health(_ request: Request, _ context: ChatContext) async -> Response {
        do throws(ChatError) {
            try await posting.environment.stores.rooms.ping()
            return Responses.json(["healthy": .bool(true)])
        } catch {
            return Responses.json(["healthy": .bool(false)], status: .serviceUnavailable)
        }
    }

    private enum Priority: Int {
        case min = 1
        case low, usual, high, max

        /// The priority of the pushes. It is low for messages that ntfy's app does not announce.
        var ofPushes: UInt8? {
            switch self {
            case .min: 1
            case .low: 5
            case .usual: nil
            case .high, .max: 10
            }
        }

        /// The sound of the pushes. ntfy's app makes no sound below the default priority.
        var sound: String? { self == .min || self == .low ? "" : nil }

        init?(_ text: String) {
            let names: [String: Priority] = [
                "1": .min, "min": .min, "2": .low, "low": .low, "3": .usual, "default": .usual, "4": .high,
                "high": .high, "5": .max, "max": .max, "urgent": .max,
            ]
            guard let priority = names[text.lowercased()] else { return nil }
            self = priority
        }
    }

    /// The parameters that the relay supports, under all their names: in headers, in the query, or in JSON. Others are
    /// ignored.
    private struct Parameters {
        enum Name: CaseIterable {
            case title, message, priority, click, delay

            /// The names in the query. Headers may also have them with the prefix `X-`.
            var spellings: [String] {
                switch self {
                case .title: ["title", "ti", "t"]
                case .message: ["message", "m"]
                case .priority: ["priority", "prio", "p"]
                case .click: ["click"]
                case .delay: ["delay", "at", "in"]
                }
            }
        }

        private var values: [Name: String] = [:]

        subscript(name: Name) -> String? { values[name] }

        init(_ request: Request) {
            let query = Self.query(request)
            for name in Name.allCases {
                for spelling in name.spellings where values[name] == nil {
                    values[name] =
                        ["x-" + spelling, spelling].lazy.compactMap { Self.header($0, request) }.first
                        ?? query[spelling]
                }
            }
        }

        private static func header(_ name: String, _ request: Request) -> String? {
            guard let value = HTTPField.Name(name).flatMap({ request.headers.first($0) }) else { return nil }
            // Browsers and proxies send a `Priority` header with another meaning (RFC 9218).
            if name == "priority", value.hasPrefix("u=") { return nil }
            return decoded(value)
        }

        /// Decodes the UTF-8 encoded words (RFC 2047) that clients use for non-ASCII text.
        private static func decoded(_ value: String) -> String {
            value.replacing(#/=\?[Uu][Tt][Ff]-8\?([BbQq])\?([^?\s]*)\?=(?:\s+(?==\?))?/#) { match in
                guard match.1.lowercased() == "q" else { return base64(String(match.2)) ?? String(match.0) }
                let escaped = match.2.utf8.map { byte in
                    switch byte {
                    case UInt8(ascii: "_"): UInt8(ascii: " ")
                    case UInt8(ascii: "="): UInt8(ascii: "%")
                    default: byte
                    }
                }
                return String(decoding: URLEncodedForm.unescaped(escaped[...], plusIsBlank: false), as: UTF8.self)
            }
        }

        private static func query(_ request: Request) -> [String: String] {
            var values: [String: String] = [:]
            for pair in (request.uri.query ?? "").utf8.split(separator: UInt8(ascii: "&")) {
                let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
                    .map { String(decoding: URLEncodedForm.unescaped(Array($0)[...]), as: UTF8.self) }
                values[parts[0].lowercased()] = parts.count == 2 ? parts[1] : ""
            }
            return values
        }

        /// Adds the document's values, which take precedence over headers and the query.
        mutating func add(_ document: JSONObject) throws(ChatError) {
            for name in Name.allCases {
                let field = name.spellings[0]
                guard let value = document[field], value != .null else { continue }
                let number = name == .priority ? value.integer.map { String($0) } : nil
                guard let text = value.text ?? number else {
                    throw .invalid(field, "must be a string, is \(value.kind)")
                }
                values[name] = text
            }
        }

        func priority() throws(ChatError) -> Priority {
            guard let text = values[.priority], !text.isEmpty else { return .usual }
            guard let priority = Priority(text) else {
                throw .invalid("priority", "must be 1 to 5, or min, low, default, high, max")
            }
            return priority
        }
    }
}

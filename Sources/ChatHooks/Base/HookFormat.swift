package import ChatDomain

/// The form in which a kind of program posts. A format is a type in a file of `Formats` and a line of ``HookFormats``.
package protocol HookFormat: Sendable {
    /// The name in the address, such as `alertmanager`.
    static var name: String { get }
    /// Other names in the address.
    static var aliases: [String] { get }
    /// The program's name, for lists.
    static var title: String { get }
    /// Whether the program can prove that it knows a secret, so that ``verify(_:secret:now:)`` can succeed.
    static var isSigned: Bool { get }
    /// Whether the program makes the secret, and takes none.
    static var makesSecret: Bool { get }
    /// The status for requests that exceed the rate. 503 for most: Alertmanager repeats such a request, and gives up
    /// after 429.
    static var rateStatus: Int { get }

    /// Whether a GET with a query posts. Other formats reject it: programs that show previews of links send it.
    static var postsByGET: Bool { get }

    /// Returns the message for which a request asks. A pure function.
    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft

    /// Whether the sender knows the secret.
    static func verify(_ request: HookRequest, secret: String, now: Timestamp) -> Bool

    /// The sender's id of the delivery, which is the same if it sends the request again. `nil` if it has none.
    static func deliveryID(_ request: HookRequest) -> String?

    /// The response that the program expects after a success.
    ///
    /// - Parameter message: The id of the message. `nil` if the request became none.
    static func accepted(_ request: HookRequest, message: MessageID?) -> HookAnswer

    /// The response to a GET from programs that look at the hook before they post. `nil` if there is none.
    ///
    /// - Parameter name: The name of the hook's token.
    static func described(_ name: String) -> HookAnswer?

    /// The response to a request that the relay rejects. `nil` for the relay's usual form of errors.
    static func refused(_ error: ChatError, status: Int) -> HookAnswer?
}

extension HookFormat {
    package static var aliases: [String] { [] }
    package static var isSigned: Bool { false }
    package static var makesSecret: Bool { false }
    package static var rateStatus: Int { 503 }
    package static var postsByGET: Bool { false }
    package static func verify(_ request: HookRequest, secret: String, now: Timestamp) -> Bool { false }
    package static func deliveryID(_ request: HookRequest) -> String? { nil }
    package static func described(_ name: String) -> HookAnswer? { nil }
    package static func refused(_ error: ChatError, status: Int) -> HookAnswer? { nil }

    package static func accepted(_ request: HookRequest, message: MessageID?) -> HookAnswer {
        HookAnswer(json: message.map { ["id": .number($0)] } ?? [:])
    }

    /// Returns the result of a request.
    package static func read(_ request: HookRequest, _ settings: HookSettings) -> HookOutcome {
        do throws(HookRefusal) {
            return .draft(try draft(request, settings))
        } catch {
            func fitting(_ reason: String) -> String { FieldText.fitting(reason, limit: 300, keepsLines: false) }
            switch error {
            case .ignored(let reason): return .ignored(fitting(reason))
            case .unreadable(let reason): return .unreadable(fitting(reason))
            }
        }
    }
}

/// The result of a request.
package enum HookOutcome: Sendable, Hashable {
    case draft(HookDraft)
    /// The request is fine and has nothing to show, for this reason. The relay answers as if it had posted.
    case ignored(String)
    /// The reason, for the message that says so: "… could not be read: the body is empty".
    case unreadable(String)
}

/// A response in the form that a program expects.
package struct HookAnswer: Sendable, Hashable {
    package let status: Int
    /// `nil` for a response without a body.
    package let contentType: String?
    package let body: String

    init(status: Int, contentType: String? = nil, body: String = "") {
        self.status = status
        self.contentType = contentType
        self.body = body
    }

    init(json: JSONObject, status: Int = 200) {
        self.init(status: status, contentType: "application/json", body: "\(JSONValue.object(json))")
    }

    init(text: String, status: Int = 200) {
        self.init(status: status, contentType: "text/plain; charset=utf-8", body: text)
    }
}

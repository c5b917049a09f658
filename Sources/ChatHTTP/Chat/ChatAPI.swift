import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// What apps call: `POST /api.php` reads the form, hands the command to the store, answers.
struct ChatAPI: Sendable {
    let rooms: any RoomStore
    let devices: any DeviceStore
    let settings: @Sendable () -> ChatHTTPSettings
    /// Which app an `appid` (nil if absent) names. Throws what the user reads if it names none.
    let resolveApp: @Sendable (String?) throws(ChatError) -> AppName
    /// Tells whose session it is; nil where anyone may register.
    let sessions: @Sendable () -> (any SessionVerifier)?
    let rates: RateGate
    let logger: Logger

    /// One request, as far as it is read.
    struct Call: Sendable {
        let form: FormFields
        let settings: ChatHTTPSettings
        let address: IPAddress?
        let headers: HTTPFields
        let requestID: String
        var wantsJSON: Bool
    }

    private enum Command: String, CaseIterable {
        case join, leave, update, message, messages
    }

    func answer(_ request: Request, _ context: ChatContext) async throws -> Response {
        try await answer(read(request, context))
    }

    /// Counts a request against the limits of its address.
    @discardableResult
    func admit(
        _ request: Request, _ context: ChatContext
    ) throws(ChatError) -> (settings: ChatHTTPSettings, address: IPAddress?) {
        let settings = settings()
        let address = context.peer.flatMap { IPAddress($0) }.map {
            settings.trustedProxies.isEmpty
                ? $0 : ClientAddress.find(peer: $0, headers: request.headers, trusted: settings.trustedProxies)
        }
        if let address { try rates.admit(address, limit: settings.addressRate) }
        return (settings, address)
    }

    /// Admits a request, and reads its form.
    func read(_ request: Request, _ context: ChatContext) async throws -> Call {
        let (settings, address) = try admit(request, context)
        return Call(
            form: try await RequestForm.read(request), settings: settings, address: address, headers: request.headers,
            requestID: context.requestID, wantsJSON: Answers.wantsJSON(request.headers))
    }

    /// Whose session a registration belongs to; nil where it needs none.
    func user(_ call: Call) async throws(ChatError) -> UserReference? {
        guard let sessions = sessions() else { return nil }
        guard let token = BearerToken.text(call.headers) else {
            throw .unauthorized("Registration needs a session token: send Authorization: Bearer")
        }
        return try await sessions.user(of: token)
    }

    private func answer(_ call: Call) async throws(ChatError) -> Response {
        guard let command = Command(rawValue: FieldText.trimmed(try call.form.text(.cmd) ?? "")) else {
            let known = Command.allCases.map(\.rawValue).joined(separator: ", ")
            throw ChatError(.unknownCommand, "Unknown command: cmd must be one of \(known)", field: "cmd")
        }
        return switch command {
        case .join: try await join(call)
        case .leave: try await leave(call)
        case .update: try await update(call)
        case .message: try await post(call)
        case .messages: try await messages(call)
        }
    }
}

extension ChatAPI.Call {
    /// How this request spells the member's field; errors name it so.
    var memberField: FormField { form.hasValue(.udid) || !form.has(.userID) ? .udid : .userID }

    func member() throws(ChatError) -> MemberID {
        try MemberID(parsing: form.required(memberField), field: memberField.rawValue)
    }

    /// What the request says of its client.
    func client() throws(ChatError) -> ClientInfo {
        ClientInfo(
            address: address?.description, appVersion: try optional(.appVersion), osVersion: try optional(.osVersion),
            deviceModel: try optional(.deviceModel))
    }

    /// A field that may be absent or blank.
    func optional(_ field: FormField) throws(ChatError) -> String? {
        guard let text = try form.text(field) else { return nil }
        return try ClientInfo.text(text, field: field.rawValue)
    }

    /// Names the field as the request spelt it, where the store has found that the member has not joined.
    func spelt(_ error: ChatError) -> ChatError {
        error.code == .notJoined ? .notJoined(memberField.rawValue) : error
    }

    /// For log lines: the request, where it came from, and the beginning of the udid.
    func metadata(_ member: MemberID) -> Logger.Metadata {
        [
            LogKeys.requestID: "\(requestID)", LogKeys.member: "\(member.text.prefix(8))…",
            LogKeys.address: "\(address?.description ?? "unknown")",
        ]
    }
}

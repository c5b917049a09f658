import ChatDomain
import Hummingbird
import Logging

/// Registration of a device without a room, as the clients of two other tutorials do it: `POST /push_chat_service.php`
/// with `token` and `appid`, and `POST /admin/apns_devices.json` with `token`; both also take `client_info`, and undo it with
/// `cmd=unregister`.
extension ChatAPI {
    func register(_ request: Request, _ context: ChatContext) async throws -> Response {
        try await register(read(request, context))
    }

    /// The same, answered in JSON, as the address says.
    func registerAsJSON(_ request: Request, _ context: ChatContext) async throws -> Response {
        var call = try await read(request, context)
        call.wantsJSON = true
        return try await register(call)
    }

    private enum Command: String, CaseIterable {
        case register, unregister
    }

    private func register(_ call: Call) async throws(ChatError) -> Response {
        let command = try Self.command(call)
        let token = try DeviceToken(parsing: call.form.required(.token))
        let app = try resolveApp(call.optional(.appID))
        let note: DeviceEdit.Change<String> =
            switch try call.form.text(.clientInfo) {
            case nil: .keep
            case let text?: try DeviceNote.text(text, field: FormField.clientInfo.rawValue).map { .set($0) } ?? .remove
            }
        let user = try await user(call)
        let result: String
        switch command {
        case .register:
            let edit = DeviceEdit(user: user.map { .set($0) } ?? .keep, clientInfo: note)
            result = try await devices.register(RegistrationRequest(token: token, app: app, edit: edit)).rawValue
        case .unregister:
            if let user { try await requireOwner(user, of: token, app) }
            result = try await devices.unregister(token, app: app) ? "unregistered" : "unknown"
        }
        logger.info(
            command == .register ? "device registered" : "device unregistered",
            metadata: [
                LogKeys.requestID: "\(call.requestID)", LogKeys.address: "\(call.address?.description ?? "unknown")",
                LogKeys.token: "\(token.shortened)", LogKeys.app: "\(app)", LogKeys.result: "\(result)",
            ])
        return Answers.ok(asJSON: call.wantsJSON)
    }

    /// Another user's device is not a session's to forget; one that is nobody's, or not known, is.
    private func requireOwner(
        _ user: UserReference, of token: DeviceToken, _ app: AppName
    ) async throws(ChatError) {
        let owner: UserReference?
        do throws(ChatError) {
            owner = try await devices.device(token, app: app).user
        } catch  where error.code == .notFound {
            return
        }
        guard owner == nil || owner == user else {
            throw ChatError(.forbidden, "This device is another user's", field: "token")
        }
    }

    /// To register, unless the request says otherwise.
    private static func command(_ call: Call) throws(ChatError) -> Command {
        guard let text = try call.optional(.cmd) else { return .register }
        guard let command = Command(rawValue: text) else {
            throw ChatError(
                .unknownCommand, "Unknown command: cmd must be one of register, unregister", field: "cmd")
        }
        return command
    }
}

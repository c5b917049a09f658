import ChatDomain
import Hummingbird
import Logging

/// Registration of a device without a room, as the clients of two other tutorials do it: `POST /push_chat_service.php`
/// with `token` and `appid`, and `POST /admin/apns_devices.json` with `token`.
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

    private func register(_ call: Call) async throws(ChatError) -> Response {
        let token = try DeviceToken(parsing: call.form.required(.token))
        let app = try resolveApp(call.optional(.appID))
        let result = try await store.register(RegistrationRequest(token: token, app: app))
        logger.info(
            "device registered",
            metadata: [
                LogKeys.requestID: "\(call.requestID)", LogKeys.address: "\(call.address?.description ?? "unknown")",
                LogKeys.token: "\(token.shortened)", LogKeys.app: "\(app)", LogKeys.result: "\(result.rawValue)",
            ])
        return Answers.ok(asJSON: call.wantsJSON)
    }
}

import ChatDomain
import Hummingbird
import Logging

/// `join`, `leave`, `update`. Fields are checked in the order of the original server, so that the first error is the
/// same (pushchat-api.md §1).
extension ChatAPI {
    func join(_ call: Call) async throws(ChatError) -> Response {
        let form = call.form
        let member = try call.member()
        let token = try form.required(.token)
        let device = FieldText.trimmed(token) == "0" ? nil : try DeviceToken(parsing: token)
        let nickname = try Nickname(parsing: form.required(.name))
        let code = try SecretCode(parsing: form.required(.code))
        let app = try resolveApp(call.optional(.appID))
        let client = try call.client()
        try rates.admit(member, limit: call.settings.memberRate)
        let user = try await user(call)
        try await rooms.join(
            JoinRequest(
                member: member, app: app, token: device, nickname: nickname, code: code, client: client, user: user))
        logger.info(
            "member joined",
            metadata: call.metadata(member).merging(
                [LogKeys.token: "\(device?.shortened ?? "0")", LogKeys.app: "\(app)"]) { $1 })
        return Answers.ok(asJSON: call.wantsJSON)
    }

    func leave(_ call: Call) async throws(ChatError) -> Response {
        let member = try call.member()
        try rates.admit(member, limit: call.settings.memberRate)
        let wasJoined = try await rooms.leave(member)
        logger.info(
            "member left", metadata: call.metadata(member).merging([LogKeys.wasJoined: "\(wasJoined)"]) { $1 })
        return Answers.ok(asJSON: call.wantsJSON)
    }

    func update(_ call: Call) async throws(ChatError) -> Response {
        let member = try call.member()
        let token = try DeviceToken(parsing: call.form.required(.token))
        let client = try call.client()
        try rates.admit(member, limit: call.settings.memberRate)
        let user = try await user(call)
        do throws(ChatError) {
            try await rooms.update(member, token: token, client: client, user: user)
        } catch {
            throw call.spelt(error)
        }
        logger.info(
            "token updated", metadata: call.metadata(member).merging([LogKeys.token: "\(token.shortened)"]) { $1 })
        return Answers.ok(asJSON: call.wantsJSON)
    }
}

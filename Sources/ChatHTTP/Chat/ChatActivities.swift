import ChatDomain
import Hummingbird

/// `cmd=activity_token`: the tokens with which the relay starts and updates Live Activities.
extension ChatAPI {
    func reportActivityToken(_ call: Call) throws(ChatError) -> Action {
        let token = try DeviceToken(parsing: call.form.required(.token))
        let use: ActivityTokenReport.Use
        if let tag = try call.optional(.tag) {
            guard try call.optional(.type) == nil else {
                throw .invalid(FormField.type.key, "cannot go together with tag: send tag for updates, type for starts")
            }
            use = .update(try ActivityTag(parsing: tag))
        } else {
            let type = try call.optional(.type) ?? ActivityLimits.standardType
            guard ActivityContent.isType(type) else { throw .invalid(FormField.type.key, ActivityContent.typeRule) }
            use = .start(type: type)
        }
        let client = try call.client()
        return { member in
            try await environment.stores.activities.report(
                ActivityTokenReport(token: token, use: use, system: client.systemVersion), by: member.id)
            logger.info(
                "activity token reported", metadata: call.metadata(member, [LogKeys.token: "\(token.shortened)"]))
            return Responses.ok(asJSON: call.wantsJSON)
        }
    }
}

extension ClientInfo {
    /// The major version of the system. `nil` if the client did not tell, or if the text does not begin with a number.
    var systemVersion: Int? {
        guard let osVersion else { return nil }
        let digits = osVersion.drop { !$0.isNumber }.prefix { $0.isNumber }
        return Int(digits).flatMap { (1...999).contains($0) ? $0 : nil }
    }
}

import Foundation
import Hummingbird
import PushWire

/// The calls about Live Activities and broadcast channels.
extension ControlAPI {
    private enum ActivityField: String, CaseIterable {
        case token, topic, channel
    }

    func addActivities(to router: Router<ControlContext>) {
        add("activities", \.activities, to: router)
        router.post("/activities") { request, _ in try await startActivity(request) }
        router.delete("/activities/:id") { _, context in try endActivity(context.parameters.require("id")) }
        add("channels", \.channels, to: router)
    }

    private func startActivity(_ request: Request) async throws -> Response {
        let body = try await ControlBody<ActivityField>(of: request)
        let app = try body.string(.topic) ?? configuration.topic
        guard SandboxRules.isTopic(app) else {
            throw ControlError(
                "topic: must be 1 to \(ControlLimits.topic) letters, digits, points, hyphens and underscores")
        }
        let channel = try body.string(.channel)
        if let channel {
            guard state.withLock({ $0.channels.channel(channel, of: app) }) != nil else {
                throw ControlError("channel: there is no such channel of \(app)")
            }
            guard !body.has(.token) else {
                throw ControlError("token: not allowed with channel; the activity has one or the other")
            }
        }
        let token = channel == nil ? try body.token(.token) ?? randomBytes(TokenText.usualSize) : nil
        let activity = try state.withLock { state in
            try state.startActivity(token: token, app: app, channel: channel, at: self.state.now())
        }
        return try Response.json(activity, status: .created)
    }

    private func endActivity(_ text: String) throws -> Response {
        let activity = state.withLock { state in
            Self.id(text).flatMap { state.activities.end($0, at: self.state.now()) }
        }
        guard let activity else { throw ControlError(.notFound, "id: there is no such activity") }
        return try Response.json(activity)
    }
}

import Foundation
import Hummingbird

/// The calls about installations on Android phones.
extension ControlAPI {
    private enum InstallationField: String, CaseIterable {
        case kind, fid, project
        case registrationToken = "registration_token"
    }

    func addInstallations(to router: Router<ControlContext>) {
        add("installations", \.installations, to: router)
        router.post("/installations") { request, _ in try await makeInstallation(request) }
        router.post("/installations/:id") { request, context in
            try await setInstallation(context.parameters.require("id"), request)
        }
        router.delete("/installations/:id") { _, context in try removeInstallation(context.parameters.require("id")) }
    }

    private func makeInstallation(_ request: Request) async throws -> Response {
        let body = try await ControlBody<InstallationField>(of: request)
        let kind = try body.string(.kind)
        guard [nil, "fid", "token"].contains(kind) else { throw ControlError("kind: must be fid or token") }
        let (fid, token) = (try body.string(.fid), try body.string(.registrationToken))
        guard fid == nil || token == nil else {
            throw ControlError("registration_token: not allowed with fid; an installation has one or the other")
        }
        if let fid, !FCMMessage.isInstallation(fid) {
            throw ControlError("fid: must be 22 letters, digits, hyphens and underscores, the first from c to f")
        }
        if let token, !FCMMessage.isToken(token) {
            throw ControlError("registration_token: must be a Firebase installation id, a colon and base64url")
        }
        let project = try body.string(.project) ?? ServiceAccount.defaultProject
        guard (1...ControlLimits.topic).contains(project.utf8.count) else {
            throw ControlError("project: must be 1 to \(ControlLimits.topic) bytes long")
        }
        let target =
            fid ?? token
            ?? InstallationRegistry.target(isInstallationID: kind == "fid", randomBytes: randomBytes)
        let installation = try state.withLock { state in
            try state.install(target, project: project, at: self.state.now())
        }
        return try Response.json(installation, status: .created)
    }

    private enum PhoneField: String, CaseIterable {
        case connection, app
    }

    private func setInstallation(_ text: String, _ request: Request) async throws -> Response {
        let body = try await ControlBody<PhoneField>(of: request)
        func choice<Choice: RawRepresentable<String> & CaseIterable>(_ field: PhoneField) throws -> Choice? {
            try body.string(field).map { text in
                guard let choice = Choice(rawValue: text) else {
                    let names = Choice.allCases.map(\.rawValue).joined(separator: " or ")
                    throw ControlError("\(field.rawValue): must be \(names)")
                }
                return choice
            }
        }
        let (connection, app): (FCMPhone.Connection?, FCMPhone.AppState?) = (try choice(.connection), try choice(.app))
        let installation = state.withLock { state in
            Self.id(text).flatMap {
                state.setInstallation(id: $0, connection: connection, app: app, at: self.state.now())
            }
        }
        guard let installation else { throw ControlError(.notFound, "id: there is no such installation with the app") }
        return try Response.json(installation)
    }

    private func removeInstallation(_ text: String) throws -> Response {
        let installation = state.withLock { state in
            Self.id(text).flatMap { state.removeInstallation(id: $0, at: self.state.now()) }
        }
        guard let installation else { throw ControlError(.notFound, "id: there is no such installation") }
        return try Response.json(installation)
    }
}

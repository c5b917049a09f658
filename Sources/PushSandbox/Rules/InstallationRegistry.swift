import Crypto
import Foundation
import PushWire

/// An app's installation on an Android phone, encoded as in the response to `GET /installations`.
struct SandboxInstallation: Sendable, Hashable, Encodable {
    /// The installation's number: from 1, in the order of creation.
    let id: Int
    /// The address of the installation: its Firebase installation id, or a registration token.
    let target: String
    /// The project that may send to the installation.
    let project: String
    let createdAt: Date
    /// The time at which the app was removed. `nil` while it is installed.
    fileprivate(set) var removedAt: Date?

    /// The SHA-256 of the address, which the inbox shows as the token.
    static func token(of target: String) -> [UInt8] { Array(SHA256.hash(data: Data(target.utf8))) }

    private enum CodingKeys: String, CodingKey {
        case id, token, fid, project
        case registrationToken = "registration_token"
        case createdAt = "created_at"
        case removedAt = "removed_at"
    }

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(id, forKey: .id)
        try fields.encode(Self.token(of: target).hex, forKey: .token)
        try fields.encode(target, forKey: FCMMessage.isInstallation(target) ? .fid : .registrationToken)
        try fields.encode(project, forKey: .project)
        try fields.encode(createdAt.rfc3339, forKey: .createdAt)
        try fields.encodeIfPresent(removedAt?.rfc3339, forKey: .removedAt)
    }
}

/// The installations that were created through the control API. Removed ones stay, so that their addresses remain
/// rejected.
struct InstallationRegistry: Sendable {
    /// The maximum number of installations, including removed ones.
    private static let limit = 100_000

    private var installations: [SandboxInstallation] = []
    private var indices: [String: Int] = [:]

    var count: Int { installations.count }
    private(set) var removedCount = 0

    /// The installation with this address, even if it was removed.
    subscript(target: String) -> SandboxInstallation? { indices[target].map { installations[$0] } }

    /// Returns a new address from random bytes.
    static func target(isInstallationID: Bool, randomBytes: (Int) -> [UInt8]) -> String {
        let first = Array("cdef")[Int(randomBytes(1)[0]) % 4]
        let id = String(first) + Base64URL.text(randomBytes(16)).dropFirst()
        return isInstallationID ? id : id + ":APA91b" + Base64URL.text(randomBytes(100))
    }

    /// Installs the app. If the address is known, installs it there again.
    mutating func install(
        _ target: String, project: String, at now: Date
    ) throws(LimitReached) -> SandboxInstallation {
        let index = indices[target] ?? installations.count
        guard index < Self.limit else {
            throw LimitReached(
                text: "there are \(Self.limit) installations, which is the limit; restart the sandbox to remove them")
        }
        let installation = SandboxInstallation(id: index + 1, target: target, project: project, createdAt: now)
        if index == installations.count {
            indices[target] = index
            installations.append(installation)
        } else {
            if installations[index].removedAt != nil { removedCount -= 1 }
            installations[index] = installation
        }
        return installation
    }

    /// Removes the app.
    /// - Returns: The installation. `nil` if there is none with this number.
    mutating func remove(id: Int, at now: Date) -> SandboxInstallation? {
        guard installations.indices.contains(id - 1) else { return nil }
        if installations[id - 1].removedAt == nil {
            installations[id - 1].removedAt = now
            removedCount += 1
        }
        return installations[id - 1]
    }

    /// Returns at most `limit` installations with an id above `since`, and the `since` of the next page.
    func page(since: Int, limit: Int) -> (installations: [SandboxInstallation], next: Int) {
        let page = installations.dropFirst(max(0, since)).prefix(limit)
        return (Array(page), page.last?.id ?? installations.count)
    }
}

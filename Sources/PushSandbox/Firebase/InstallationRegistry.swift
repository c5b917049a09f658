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
    fileprivate(set) var phone = FCMPhone()

    /// The SHA-256 of the address, which the inbox shows as the token.
    static func token(of target: String) -> [UInt8] { Array(SHA256.hash(data: Data(target.utf8))) }

    private enum CodingKeys: String, CodingKey {
        case id, token, fid, project, connection, app, stored, topics
        case registrationToken = "registration_token"
        case createdAt = "created_at"
        case removedAt = "removed_at"
        case deletedMessagesCalls = "deleted_messages_calls"
    }

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(id, forKey: .id)
        try fields.encode(Self.token(of: target).hex, forKey: .token)
        try fields.encode(target, forKey: FCMMessage.isInstallation(target) ? .fid : .registrationToken)
        try fields.encode(project, forKey: .project)
        try fields.encode(phone.connection.rawValue, forKey: .connection)
        try fields.encode(phone.app.rawValue, forKey: .app)
        try fields.encode(phone.storedCount, forKey: .stored)
        try fields.encode(phone.topics.count, forKey: .topics)
        try fields.encode(phone.deletedMessagesCalls, forKey: .deletedMessagesCalls)
        try fields.encode(createdAt.rfc3339, forKey: .createdAt)
        try fields.encodeIfPresent(removedAt?.rfc3339, forKey: .removedAt)
    }
}

/// The installations that were created through the control API. Removed ones stay, so that their addresses remain
/// rejected.
struct InstallationRegistry: Sendable {
    /// The maximum number of installations, including removed ones.
    private static let limit = 100_000
    /// The maximum number of subscriptions of all installations to topics.
    private static let maxSubscriptions = 1_000_000

    private var installations: [SandboxInstallation] = []
    private var indices: [String: Int] = [:]
    private var subscriptionCount = 0

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
            subscriptionCount -= installations[index].phone.topics.count
            installations[index] = installation
        }
        return installation
    }

    /// Removes the app.
    /// - Returns: The installation, and the changes to messages that waited for it. `nil` if there is none with this
    ///   number.
    mutating func remove(
        id: Int, at now: Date
    ) -> (installation: SandboxInstallation, changes: [FCMPhone.Change])? {
        guard installations.indices.contains(id - 1) else { return nil }
        var changes: [FCMPhone.Change] = []
        if installations[id - 1].removedAt == nil {
            subscriptionCount -= installations[id - 1].phone.topics.count
            changes = installations[id - 1].phone.remove()
            installations[id - 1].removedAt = now
            removedCount += 1
        }
        return (installations[id - 1], changes)
    }

    // MARK: Phones

    /// Delivers a message to all phones that it is for.
    /// - Parameter message: The message's id in the inbox.
    /// - Returns: The changes, with the numbers of the phones.
    mutating func deliver(
        _ message: FCMMessage, project: String, id: Int, at now: Date
    ) -> [(installation: Int, change: FCMPhone.Change)] {
        let recipients: [Int] =
            switch message.target {
            case .installation(let target), .token(let target): indices[target].map { [$0] } ?? []
            case .topic(let topic): installations.indices.filter { installations[$0].phone.topics[topic] != nil }
            case .condition(let condition, _):
                installations.indices.filter { condition.holds(for: installations[$0].phone.topics) }
            }
        return recipients.filter { installations[$0].removedAt == nil && installations[$0].project == project }
            .flatMap { index in
                installations[index].phone.receive(message, id: id, at: now).map { (index + 1, $0) }
            }
    }

    /// Changes the state of a phone. `nil` leaves a part unchanged.
    /// - Returns: The installation, and the changes to messages that waited for it. `nil` if there is no app with this
    ///   number.
    mutating func set(
        id: Int, connection: FCMPhone.Connection?, app: FCMPhone.AppState?, at now: Date
    ) -> (installation: SandboxInstallation, changes: [FCMPhone.Change])? {
        guard installations.indices.contains(id - 1), installations[id - 1].removedAt == nil else { return nil }
        if let app { installations[id - 1].phone.app = app }
        let changes = connection.map { installations[id - 1].phone.set($0, at: now) } ?? []
        return (installations[id - 1], changes)
    }

    /// Subscribes an installation to a topic.
    /// - Returns: Whether the limits allow it.
    mutating func subscribe(_ target: String, to topic: String, at now: Date) -> Bool {
        guard let index = indices[target], subscriptionCount < Self.maxSubscriptions,
            installations[index].phone.topics.count < FCMPhone.maxTopics
        else { return false }
        installations[index].phone.topics[topic] = now
        subscriptionCount += 1
        return true
    }

    mutating func unsubscribe(_ target: String, from topic: String) {
        guard let index = indices[target], installations[index].phone.topics.removeValue(forKey: topic) != nil else {
            return
        }
        subscriptionCount -= 1
    }

    /// Returns at most `limit` installations with an id above `since`, and the `since` of the next page.
    func page(since: Int, limit: Int) -> (installations: [SandboxInstallation], next: Int) {
        let page = installations.dropFirst(max(0, since)).prefix(limit)
        return (Array(page), page.last?.id ?? installations.count)
    }
}

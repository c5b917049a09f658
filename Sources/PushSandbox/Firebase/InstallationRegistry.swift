import Crypto
import Foundation
import PushWire

/// An app's installation on an Android phone, encoded as in the response to `GET /installations`.
struct SandboxInstallation: Sendable, Hashable, JSONRecord, RegistryItem {
    static let plural = "installations"

    let id: Int
    /// The address of the installation: its Firebase installation id, or a registration token.
    let target: String
    /// The SHA-256 of the address, which the inbox shows as the token.
    let token: [UInt8]
    /// The project that may send to the installation.
    let project: String
    let createdAt: Date
    /// The time at which the app was removed. `nil` while it is installed.
    var removedAt: Date?
    fileprivate(set) var phone = FCMPhone()

    fileprivate init(id: Int, target: String, project: String, createdAt: Date) {
        (self.id, self.target, self.project, self.createdAt) = (id, target, project, createdAt)
        token = Self.token(of: target)
    }

    static func token(of target: String) -> [UInt8] { Array(SHA256.hash(data: Data(target.utf8))) }

    var key: String { target }

    var json: JSONMembers {
        let isInstallationID = FCMMessage.isInstallation(target)
        return [
            "id": id, "token": token.hex, "fid": isInstallationID ? target : nil,
            "registration_token": isInstallationID ? nil : target, "project": project,
            "connection": phone.connection.rawValue, "app": phone.app.rawValue, "stored": phone.storedCount,
            "topics": phone.topics.count, "deleted_messages_calls": phone.deletedMessagesCalls,
            "created_at": createdAt, "removed_at": removedAt,
        ]
    }
}

/// The installations that were created through the control API, and their subscriptions to topics.
struct InstallationRegistry: Sendable, PagedList {
    /// The maximum number of subscriptions of all installations to topics.
    private static let maxSubscriptions = 1_000_000

    private var installations = Registry<SandboxInstallation>()
    private var subscriptionCount = 0

    var presentCount: Int { installations.presentCount }
    var removedCount: Int { installations.removedCount }

    /// The installation with this address, even if it was removed.
    subscript(target: String) -> SandboxInstallation? { installations[target] }

    /// Returns the installation with this token, even if it was removed. `nil` if there is none.
    func installation(token: [UInt8]) -> SandboxInstallation? { installations.items.first { $0.token == token } }

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
        if let earlier = installations[target] { subscriptionCount -= earlier.phone.topics.count }
        return try installations.add(target) { id in
            SandboxInstallation(id: id, target: target, project: project, createdAt: now)
        }
    }

    /// Removes the app.
    /// - Returns: The installation, and the changes to messages that waited for it. `nil` if there is none with this
    ///   number.
    mutating func remove(
        id: Int, at now: Date
    ) -> (installation: SandboxInstallation, changes: [FCMPhone.Change])? {
        guard let index = installations.index(id: id) else { return nil }
        var changes: [FCMPhone.Change] = []
        if installations.remove(index: index, at: now) {
            subscriptionCount -= installations[index: index].phone.topics.count
            changes = installations[index: index].phone.remove()
        }
        return (installations[index: index], changes)
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
            case .installation(let target), .token(let target): installations.index(of: target).map { [$0] } ?? []
            case .topic(let topic):
                installations.items.indices.filter { installations[index: $0].phone.topics[topic] != nil }
            case .condition(let condition, _):
                installations.items.indices.filter { condition.holds(for: installations[index: $0].phone.topics) }
            }
        return recipients.filter { index in
            installations[index: index].removedAt == nil && installations[index: index].project == project
        }
        .flatMap { index in
            installations[index: index].phone.receive(message, id: id, at: now).map { (index + 1, $0) }
        }
    }

    /// Changes the state of a phone. `nil` leaves a part unchanged.
    /// - Returns: The installation, and the changes to messages that waited for it. `nil` if no app has this number.
    mutating func set(
        id: Int, connection: FCMPhone.Connection?, app: FCMPhone.AppState?, at now: Date
    ) -> (installation: SandboxInstallation, changes: [FCMPhone.Change])? {
        guard let index = installations.index(id: id), installations[index: index].removedAt == nil else { return nil }
        if let app { installations[index: index].phone.app = app }
        let changes = connection.map { installations[index: index].phone.set($0, at: now) } ?? []
        return (installations[index: index], changes)
    }

    /// Subscribes an installation to a topic.
    /// - Returns: Whether the limits allow it.
    mutating func subscribe(_ target: String, to topic: String, at now: Date) -> Bool {
        guard let index = installations.index(of: target), subscriptionCount < Self.maxSubscriptions,
            installations[index: index].phone.topics.count < FCMPhone.maxTopics
        else { return false }
        installations[index: index].phone.topics[topic] = now
        subscriptionCount += 1
        return true
    }

    mutating func unsubscribe(_ target: String, from topic: String) {
        guard let index = installations.index(of: target),
            installations[index: index].phone.topics.removeValue(forKey: topic) != nil
        else {
            return
        }
        subscriptionCount -= 1
    }

    func page(since: Int, limit: Int) -> (items: [SandboxInstallation], next: Int) {
        installations.page(since: since, limit: limit)
    }
}

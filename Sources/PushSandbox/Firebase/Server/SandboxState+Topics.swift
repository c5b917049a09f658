import Foundation

/// A request to FCM about the topics of an app on one phone.
struct FCMTopicRequest: Sendable {
    enum Call: Sendable, Hashable {
        case subscribe(topic: String)
        case unsubscribe(topic: String, allowsMissing: Bool)
        case get(topic: String)
        case list(limit: Int, after: String?)
    }

    /// The default and the maximum number of subscriptions in a list.
    static let (defaultPageSize, maxPageSize) = (1000, 2000)

    let project: String
    /// The address of the installation.
    let target: String
    let authorization: String?
    let call: Call
}

/// A subscription in a response of FCM.
struct FCMTopicSubscription: Sendable, Hashable, Encodable {
    let name: String
    let topicName: String
    let createTime: String
}

/// The response to a request about topics.
enum FCMTopicAnswer: Sendable, Hashable, Encodable {
    case one(FCMTopicSubscription)
    case list([FCMTopicSubscription], next: String?)
    case empty

    private enum Key: CodingKey { case topicSubscriptions, nextPageToken }

    func encode(to encoder: any Encoder) throws {
        switch self {
        case .one(let subscription): try subscription.encode(to: encoder)
        case .list(let subscriptions, let next):
            var fields = encoder.container(keyedBy: Key.self)
            try fields.encode(subscriptions, forKey: .topicSubscriptions)
            try fields.encodeIfPresent(next, forKey: .nextPageToken)
        case .empty: _ = encoder.container(keyedBy: Key.self)
        }
    }
}

extension SandboxState {
    /// Decides on a request about topics.
    mutating func decide(_ request: FCMTopicRequest, at now: Date) throws(FCMRefusal) -> FCMTopicAnswer {
        guard let tokens = accessTokens else { throw .unauthenticated }
        try tokens.check(authorization: request.authorization, at: now)
        guard request.project == tokens.project else { throw .otherProject(request.project) }
        guard FCMMessage.isInstallation(request.target) || FCMMessage.isToken(request.target) else {
            throw FCMRefusal(.invalidArgument)
        }
        guard let installation = installations[request.target], installation.removedAt == nil else {
            throw FCMRefusal(.unregistered)
        }
        guard installation.project == request.project else { throw FCMRefusal(.senderMismatch) }
        let parent = "projects/\(request.project)/registrations/\(request.target)/topicSubscriptions/"
        let topics = installation.phone.topics
        func answer(_ topic: String, _ createdAt: Date) -> FCMTopicSubscription {
            FCMTopicSubscription(name: parent + topic, topicName: topic, createTime: createdAt.rfc3339)
        }
        let missing = FCMRefusal(404, "NOT_FOUND", nil, "Requested entity was not found.")
        switch request.call {
        case .subscribe(let topic):
            guard FCMMessage.isTopic(topic) else { throw .broken("Malformed topic name") }
            guard topics[topic] == nil else {
                throw FCMRefusal(409, "ALREADY_EXISTS", nil, "Requested entity already exists")
            }
            guard installations.subscribe(request.target, to: topic, at: now) else {
                throw FCMRefusal(429, "RESOURCE_EXHAUSTED", nil, "The app instance has too many subscriptions.")
            }
            return .one(answer(topic, now))
        case .unsubscribe(let topic, let allowsMissing):
            guard topics[topic] != nil || allowsMissing else { throw missing }
            installations.unsubscribe(request.target, from: topic)
            return .empty
        case .get(let topic):
            guard let createdAt = topics[topic] else { throw missing }
            return .one(answer(topic, createdAt))
        case .list(let limit, let last):
            let names = topics.keys.sorted().filter { name in last.map { name > $0 } ?? true }
            let page = names.prefix(limit).map { answer($0, topics[$0] ?? now) }
            return .list(page, next: names.count > limit ? page.last?.topicName : nil)
        }
    }
}

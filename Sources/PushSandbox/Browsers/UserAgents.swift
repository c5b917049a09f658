import Foundation
import PushWire

/// The real browsers of Mozilla's push protocol: their connections, and the messages that they have not acknowledged.
///
/// ``BrowserRegistry`` has their subscriptions. Both are lost when the process ends. A browser that still has a name
/// from an earlier process gets another one, and subscribes again.
struct UserAgents: Sendable {
    /// The maximum number of open connections. It is not above ``limit``, so that there is always a disconnected
    /// browser to forget.
    static let connectionLimit = 100
    /// The maximum number of known browsers. If one more connects, the browser that has been disconnected the longest
    /// is forgotten.
    static let limit = 100
    /// The maximum number of subscriptions of one browser.
    static let channelLimit = 100
    /// The maximum number of messages that wait for one browser. If one more arrives, the oldest is dropped.
    static let messageLimit = 100

    /// A message that a browser has not acknowledged.
    struct Message: Sendable, Hashable {
        /// The message's id in the inbox. Its text is the message's version in the protocol.
        let id: Int
        let channel: String
        /// The message's topic. A later message of the channel with the same topic replaces this one.
        let topic: String?
        /// The TTL in seconds.
        let ttl: Int
        let expiresAt: Date
        let body: [UInt8]
        /// Whether the message was sent over the current connection.
        fileprivate(set) var isSent = false

        var version: String { "\(id)" }
    }

    private struct UserAgent {
        /// The connection's number. `nil` if the browser is not connected.
        var connection: Int?
        /// The last parts of the endpoints, by channel.
        var channels: [String: String] = [:]
        /// The messages that are not acknowledged, oldest first.
        var messages: [Message] = []
        /// The ids of the messages that were acknowledged last. The worker may fail with them later.
        var acknowledged: [Int] = []
        /// The position of the latest disconnection in the order of all disconnections.
        var lastDeparture = 0
    }

    private var userAgents: [String: UserAgent] = [:]
    /// The browsers' names by connection. A name is `nil` before the `hello`.
    private var names: [Int: String?] = [:]
    private var lastConnection = 0
    private var departures = 0

    var connectedCount: Int { userAgents.values.count { $0.connection != nil } }
    var waitingCount: Int { userAgents.values.reduce(0) { $0 + $1.messages.count } }

    // MARK: Connections

    /// Admits a connection.
    /// - Returns: The connection's number, from 1. `nil` if there are too many connections.
    mutating func open() -> Int? {
        guard names.count < Self.connectionLimit else { return nil }
        lastConnection += 1
        names[lastConnection] = .some(nil)
        return lastConnection
    }

    mutating func close(_ connection: Int) {
        guard case let name?? = names.removeValue(forKey: connection), userAgents[name]?.connection == connection else {
            return
        }
        departures += 1
        userAgents[name]?.connection = nil
        userAgents[name]?.lastDeparture = departures
        // Forget a browser without subscriptions. It would come back without its name, because Firefox then sends no
        // name.
        if userAgents[name]?.channels.isEmpty == true { userAgents[name] = nil }
    }

    /// Returns the browser's name. `nil` before the `hello`, and if the browser has opened another connection since.
    func name(over connection: Int) -> String? {
        guard case let name?? = names[connection], userAgents[name]?.connection == connection else { return nil }
        return name
    }

    /// Identifies the browser of a connection.
    /// - Parameters:
    ///   - known: The name that the browser sends.
    ///   - fresh: The name that the browser gets if the sandbox does not know `known`.
    /// - Returns: The browser's name. If another browser was forgotten to make room, also the last parts of the
    ///   endpoints of that browser.
    mutating func hello(
        _ known: String?, fresh: String, over connection: Int, inbox: inout Inbox, at now: Date
    ) -> (name: String, forgotten: [String]) {
        var forgotten: [String] = []
        let name: String
        if let known, userAgents[known] != nil {
            name = known
        } else {
            name = fresh
            if userAgents.count >= Self.limit,
                let oldest = userAgents.filter({ $0.value.connection == nil }).min(by: {
                    $0.value.lastDeparture < $1.value.lastDeparture
                })
            {
                oldest.value.messages.forEach { inbox.recordDelivery(.unregistered, of: $0.id) }
                forgotten = Array(oldest.value.channels.values)
                userAgents[oldest.key] = nil
            }
            userAgents[name] = UserAgent()
        }
        names[connection] = name
        userAgents[name]?.connection = connection
        end(.expired, of: name, inbox: &inbox) { $0.expiresAt <= now }
        for index in userAgents[name]?.messages.indices ?? 0..<0 { userAgents[name]?.messages[index].isSent = false }
        return (name, forgotten)
    }

    // MARK: Channels

    /// Returns the last part of the channel's endpoint. `nil` if there is no such subscription.
    func secret(of channel: PushChannel) -> String? { userAgents[channel.userAgent]?.channels[channel.id] }

    func canRegister(_ name: String) -> Bool { userAgents[name].map { $0.channels.count < Self.channelLimit } ?? false }

    mutating func register(_ channel: PushChannel, secret: String) {
        userAgents[channel.userAgent]?.channels[channel.id] = secret
    }

    mutating func unregister(_ channel: PushChannel, inbox: inout Inbox) {
        userAgents[channel.userAgent]?.channels[channel.id] = nil
        end(.unregistered, of: channel.userAgent, inbox: &inbox) { $0.channel == channel.id }
    }

    // MARK: Messages

    /// Stores a message until it is acknowledged.
    /// - Returns: The connection over which to send the message at once. `nil` if the browser is not connected.
    mutating func keep(_ message: Message, for name: String, inbox: inout Inbox, at now: Date) -> Int? {
        guard let userAgent = userAgents[name] else { return nil }
        let connection = userAgent.connection
        if let topic = message.topic {
            end(.replaced, of: name, inbox: &inbox) { $0.channel == message.channel && $0.topic == topic }
        }
        if connection == nil {
            // For a connected browser, messages do not expire: they are on their way, even if they are late.
            end(.expired, of: name, inbox: &inbox) { $0.expiresAt <= now }
            guard message.expiresAt > now else {
                inbox.recordDelivery(.expired, of: message.id)
                return nil
            }
        }
        if let oldest = userAgents[name]?.messages.first, userAgents[name]?.messages.count == Self.messageLimit {
            end(.dropped, of: name, inbox: &inbox) { $0.id == oldest.id }
        }
        userAgents[name]?.messages.append(message)
        inbox.recordDelivery(.waiting, of: message.id)
        return connection
    }

    /// Returns the messages that were not sent over the connection yet, oldest first, and marks them as sent.
    mutating func take(over connection: Int, inbox: inout Inbox) -> [Message] {
        guard let name = name(over: connection), let messages = userAgents[name]?.messages else { return [] }
        for index in messages.indices where !messages[index].isSent {
            userAgents[name]?.messages[index].isSent = true
            inbox.recordDelivery(.sent, of: messages[index].id)
        }
        return messages.filter { !$0.isSent }
    }

    mutating func acknowledge(_ acknowledgement: BrowserMessage.Acknowledgement, by name: String, inbox: inout Inbox) {
        guard let message = userAgents[name]?.messages.first(where: { $0.version == acknowledgement.version }) else {
            return
        }
        userAgents[name]?.messages.removeAll { $0.id == message.id }
        userAgents[name]?.acknowledged.append(message.id)
        if let count = userAgents[name]?.acknowledged.count, count > Self.messageLimit {
            userAgents[name]?.acknowledged.removeFirst()
        }
        inbox.recordDelivery(.acknowledged, code: acknowledgement.code, of: message.id)
    }

    /// Records that the worker failed with a message. The message is not sent again, because the browser has it.
    mutating func fail(_ failure: BrowserMessage.Acknowledgement, by name: String, inbox: inout Inbox) {
        acknowledge(failure, by: name, inbox: &inbox)
        guard let id = userAgents[name]?.acknowledged.last(where: { "\($0)" == failure.version }) else { return }
        inbox.recordDelivery(.failed, code: failure.code, of: id)
    }

    /// Removes messages, and records the reason in the inbox.
    private mutating func end(
        _ progress: InboxEntry.Delivery.Progress, of name: String, inbox: inout Inbox, where ends: (Message) -> Bool
    ) {
        userAgents[name]?.messages.removeAll { message in
            guard ends(message) else { return false }
            inbox.recordDelivery(progress, of: message.id)
            return true
        }
    }
}

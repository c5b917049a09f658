import Foundation
import PushWire

extension SandboxState {
    /// Random values for the response to a browser's message, which uses them only if it needs them.
    struct Fresh: Sendable {
        /// A new name for a browser: 32 hexadecimal digits.
        let userAgent: String
        /// The last part of a new endpoint.
        let secret: String
    }

    /// Processes a browser's message. ``takeMessages(over:)`` returns the messages that wait for the browser.
    /// - Parameters:
    ///   - origin: The origin of the push service.
    ///   - fresh: Values that were never used before.
    /// - Returns: The response. `nil` if the message needs none.
    /// - Throws: ``PushProtocolError``. The connection has to be closed.
    mutating func respond(
        to message: BrowserMessage, over connection: Int, origin: String, fresh: Fresh, at now: Date
    ) throws(PushProtocolError) -> ServiceMessage? {
        let name = userAgents.name(over: connection)
        if case .hello(let known) = message {
            guard name == nil else { throw PushProtocolError("messageType: hello must come once") }
            let (name, forgotten) = userAgents.hello(
                known, fresh: fresh.userAgent, over: connection, inbox: &inbox, at: now)
            for secret in forgotten { browsers.remove(secret: secret, at: now) }
            return .hello(name)
        }
        if case .ping = message { return .pong }
        guard let name else { throw PushProtocolError("messageType: hello must come first") }
        switch message {
        case .hello, .ping, .subscribeToBroadcasts: return nil
        case .register(let channel, let key):
            let channel = PushChannel(userAgent: name, id: channel)
            if let secret = userAgents.secret(of: channel), let browser = browsers[secret] {
                if browser.applicationServerKey == key, browser.removedAt == nil {
                    return .registered(channel.id, endpoint: browser.endpoint)
                }
                end(channel, secret: secret, at: now)
            }
            guard userAgents.canRegister(name),
                let browser = try? browsers.subscribe(
                    secret: fresh.secret, origin: origin, channel: channel, applicationServerKey: key, at: now)
            else { return .registered(channel.id, endpoint: nil) }
            userAgents.register(channel, secret: browser.secret)
            return .registered(channel.id, endpoint: browser.endpoint)
        case .unregister(let channel):
            let channel = PushChannel(userAgent: name, id: channel)
            if let secret = userAgents.secret(of: channel) { end(channel, secret: secret, at: now) }
            return .unregistered(channel.id)
        case .acknowledge(let acknowledgements):
            for each in acknowledgements { userAgents.acknowledge(each, by: name, inbox: &inbox) }
            return nil
        case .fail(let failure):
            userAgents.fail(failure, by: name, inbox: &inbox)
            return nil
        }
    }

    /// Returns the messages to send over the connection now, and marks them as sent.
    mutating func takeMessages(over connection: Int) -> [ServiceMessage] {
        userAgents.take(over: connection, inbox: &inbox).map(ServiceMessage.notification)
    }

    /// Stores a message that was accepted and recorded, if it is for a real browser.
    /// - Returns: The connection over which to send the message at once. `nil` if there is none.
    mutating func keep(_ push: BrowserPush, ttl: Int, at now: Date) -> Int? {
        guard let channel = browsers[push.secret]?.channel, case .success(let body)? = push.payload else { return nil }
        let message = UserAgents.Message(
            id: inbox.lastID, channel: channel.id, topic: push.headers[.topic], ttl: ttl,
            expiresAt: now + TimeInterval(ttl), body: body)
        return userAgents.keep(message, for: channel.userAgent, inbox: &inbox, at: now)
    }

    /// Ends a subscription. A real browser gets no notice of it.
    mutating func removeBrowser(id: Int, at now: Date) -> SandboxBrowser? {
        let browser = browsers.remove(id: id, at: now)
        // The channel may have got another endpoint since.
        if let browser, let channel = browser.channel, userAgents.secret(of: channel) == browser.secret {
            userAgents.unregister(channel, inbox: &inbox)
        }
        return browser
    }

    private mutating func end(_ channel: PushChannel, secret: String, at now: Date) {
        browsers.remove(secret: secret, at: now)
        userAgents.unregister(channel, inbox: &inbox)
    }
}

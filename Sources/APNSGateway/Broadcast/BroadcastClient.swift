import AsyncHTTPClient
package import ChatDomain
import GatewayPool
import NIOCore
import NIOHTTP1
import NIOSSL
import PushWire
import Synchronization

/// Sends broadcasts to Apple, and manages their channels.
///
/// These are a few requests per activity, so they do not use the gateway's pool. AsyncHTTPClient negotiates HTTP/2.
///
/// Sources: Apple, "Sending channel management requests to APNs" and "Sending broadcast push notification requests to
/// APNs", as of November 2026.
package final class BroadcastClient: BroadcastService {
    /// The time limit of a request. A lease of an activity is long enough for several.
    private static let timeLimit = TimeAmount.seconds(10)

    /// Apple's hosts for an app, and the app's credentials.
    package struct Target: Sendable {
        package var host: String
        package var port: Int
        package var channelsHost: String
        package var channelsPort: Int
        package var bundleID: String
        package var tokens: TokenSource
        /// The path of a PEM file with further authorities.
        package var trust: String?

        package init(
            host: String, port: Int, channelsHost: String, channelsPort: Int, bundleID: String, tokens: TokenSource,
            trust: String?
        ) {
            self.host = host
            self.port = port
            self.channelsHost = channelsHost
            self.channelsPort = channelsPort
            self.bundleID = bundleID
            self.tokens = tokens
            self.trust = trust
        }

        fileprivate var broadcasts: String { "https://\(host):\(port)\(BroadcastWire.path)\(bundleID)" }
        fileprivate var channels: String {
            "https://\(channelsHost):\(channelsPort)"
                + "\(BroadcastWire.managementPath)\(bundleID)/\(BroadcastWire.channels)"
        }
    }

    private let target: @Sendable (AppName) -> Target?
    private let client: HTTPClient
    /// The last provider token of each app that Apple rejected.
    private let refused = Mutex<[AppName: String]>([:])

    /// - Parameter target: Called before each request. Returns `nil` for an app without a key.
    package init(target: @escaping @Sendable (AppName) -> Target?) {
        self.target = target
        var configuration = HTTPClient.Configuration(
            redirectConfiguration: .disallow, timeout: .init(connect: Self.timeLimit, read: Self.timeLimit))
        configuration.connectionPool.retryConnectionEstablishment = false
        configuration.tracing.tracer = nil
        configuration.proxy = nil
        client = HTTPClient.services(configuration)
    }

    package func close() async { try? await client.shutdown() }

    package func createChannel(of app: AppName) async -> BroadcastAnswer {
        let answer = await send(.POST, \.channels, of: app) { request in
            request.headers.add(name: "content-type", value: "application/json")
            let body: JSONObject = [
                BroadcastWire.policy: .number(0), BroadcastWire.pushType: .string(BroadcastWire.liveActivity),
            ]
            request.body = .bytes(ByteBuffer(string: JSONValue.object(body).description))
        }
        return answer.ofCreation
    }

    package func broadcast(
        _ push: ComposedNotification, to channel: String, of app: AppName
    ) async -> BroadcastAnswer {
        await send(.POST, \.broadcasts, of: app) { request in
            request.headers.add(name: "apns-channel-id", value: channel)
            request.headers.add(name: "apns-push-type", value: push.pushType)
            // A channel that stores no messages accepts no other value.
            request.headers.add(name: "apns-expiration", value: "0")
            request.headers.add(name: "apns-priority", value: "\(push.priority ?? 5)")
            request.body = .bytes(ByteBuffer(string: push.payload))
        }
    }

    package func deleteChannel(_ channel: String, of app: AppName) async -> BroadcastAnswer {
        await send(.DELETE, \.channels, of: app) { $0.headers.add(name: "apns-channel-id", value: channel) }
    }

    private func send(
        _ method: HTTPMethod, _ url: any KeyPath<Target, String> & Sendable, of app: AppName,
        _ complete: (inout HTTPClientRequest) -> Void
    ) async -> BroadcastAnswer {
        guard let target = target(app) else { return .refused("the app has no key for provider tokens") }
        do {
            let token = try await target.tokens.token(refused: refused.withLock { $0[app] })
            var request = HTTPClientRequest(url: target[keyPath: url])
            request.method = method
            request.headers.add(name: "authorization", value: "bearer \(token.text)")
            request.tlsConfiguration = try TLSConfiguration.client(trust: target.trust)
            complete(&request)
            let response = try await client.exchange(
                request, upTo: ProviderRefusal.bodyLimit, by: .now() + Self.timeLimit)
            let refusal = ProviderRefusal(status: Int(response.status.code), body: response.body)
            switch refusal.known {
            case .expiredProviderToken, .invalidProviderToken: refused.withLock { $0[app] = token.text }
            default: break
            }
            return BroadcastAnswer(
                refusal, channel: response.headers.first(name: "apns-channel-id"),
                notBefore: response.headers.first(name: "retry-after").flatMap {
                    Timestamp(retryAfter: $0, now: .now())
                })
        } catch {
            return .unavailable("\(error)")
        }
    }
}

extension BroadcastAnswer {
    /// The maximum length of a channel's id. Apple's have 24 characters. Each start of an activity contains it.
    private static let longestChannelID = 256

    /// The answer to a request for a channel. Refused if it has no id that later requests can carry.
    var ofCreation: BroadcastAnswer {
        guard case .accepted(let channel) = self else { return self }
        guard let channel, (1...Self.longestChannelID).contains(channel.utf8.count),
            channel.isVisibleASCII
        else { return .refused("the response has no usable channel id") }
        return self
    }

    /// - Parameters:
    ///   - channel: The header with the id of a new channel.
    ///   - notBefore: The time in the header `Retry-After`.
    init(_ refusal: ProviderRefusal, channel: String?, notBefore: Timestamp? = nil) {
        guard !(200..<300).contains(refusal.status) else {
            self = .accepted(channel: channel)
            return
        }
        let reason = BroadcastReason(rawValue: refusal.reason)
        switch refusal.status {
        case _ where reason?.saysFeatureIsMissing ?? false: self = .missingCapability(refusal.reason)
        // Apple was observed to answer BadPath when a channel to delete does not exist.
        case _ where reason == .channelNotRegistered || reason == .badChannelID || reason == .badPath:
            self = .gone(refusal.reason)
        // After 403, the operator may correct the key in time, or another token is due. With a status below 400, another
        // server has responded.
        case ..<400, 403, 408, 421, 425, 429, 500...: self = .unavailable(refusal.reason, notBefore: notBefore)
        default: self = .refused(refusal.reason)
        }
    }
}

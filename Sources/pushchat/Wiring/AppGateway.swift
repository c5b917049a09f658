import APNSGateway
import APNSWire
import ChatDomain
import Logging

/// An app's gateway, of whichever protocol, as the app's settings want it.
enum AppGateway: Sendable {
    case binary(BinaryGateway)
    case http2(ProviderGateway)

    init(
        _ app: AppConfiguration, credentials: AppCredentials, tokens: any ProviderTokenStore, epochs: ConnectionEpochs,
        logger: Logger
    ) {
        switch app.gateway {
        case .binary:
            self = .binary(
                BinaryGateway(
                    endpoint: credentials.push,
                    options: .init(
                        connections: app.connections, command: BinaryCommand(rawValue: UInt8(app.command)) ?? .framed,
                        payloadLimit: app.payloadLimit, settleTime: app.settleTime),
                    epochs: epochs, logger: logger))
        case .http2:
            self = .http2(
                ProviderGateway(
                    target: Self.target(app, credentials, tokens),
                    options: .init(
                        connections: app.connections, payloadLimit: app.payloadLimit, answerLimit: app.answerTimeout),
                    epochs: epochs, logger: logger))
        }
    }

    var gateway: any PushGateway {
        switch self {
        case .binary(let gateway): gateway
        case .http2(let gateway): gateway
        }
    }

    var openConnections: Int {
        switch self {
        case .binary(let gateway): gateway.openConnections
        case .http2(let gateway): gateway.openConnections
        }
    }

    /// New connections use these; the open ones finish what is in flight first.
    func reconfigure(
        _ app: AppConfiguration, credentials: AppCredentials, tokens: any ProviderTokenStore
    ) async {
        switch self {
        case .binary(let gateway): await gateway.reconfigure(endpoint: credentials.push)
        case .http2(let gateway): await gateway.reconfigure(target: Self.target(app, credentials, tokens))
        }
    }

    private static func target(
        _ app: AppConfiguration, _ credentials: AppCredentials, _ tokens: any ProviderTokenStore
    ) -> ProviderGateway.Target? {
        credentials.push.map {
            ProviderGateway.Target(
                endpoint: $0, bundleID: app.topic ?? credentials.certificate?.topic,
                tokens: credentials.key.map { TokenSource(key: $0, store: tokens) })
        }
    }
}

extension AppConfiguration {
    /// Bytes of payloads of types of pushes that may have more than ``payloadLimit``.
    var largerLimits: [String: Int] {
        switch gateway {
        case .binary: [:]
        case .http2: ProviderGateway.Options(payloadLimit: payloadLimit).largerLimits
        }
    }

    func payloadLimit(of pushType: String) -> Int { largerLimits[pushType] ?? payloadLimit }
}

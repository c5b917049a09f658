import CSimulation
import ChatDomain
import Logging
import PushWire

@testable import APNSGateway
@testable import GatewayPool

/// Apple's HTTP/2 provider API (docs/http2-gateway.md).
final class AppleHTTP2: HTTP2PushService {
    required init(_ world: World) {
        super.init(
            world,
            ServiceDialect(
                format: APNSFormat(.http2, payloadLimit: 4096),
                final: [
                    (400, "BadDeviceToken"), (413, "PayloadTooLarge"), (400, "DeviceTokenNotForTopic"),
                    (404, "BadPath"), (403, "Forbidden"), (400, "SomethingNew"),
                ],
                temporary: [
                    (500, "InternalServerError"), (429, "TooManyRequests"), (503, "ServiceUnavailable"), (408, ""),
                    (302, ""),
                ],
                returns: [(503, "Shutdown"), (400, "IdleTimeout"), (421, "")],
                credentials: [(403, "BadCertificate"), (403, "InvalidProviderToken"), (403, "SomethingNew")],
                gone: (410, "Unregistered"), body: { ProviderRefusal.body(reason: $0) }))
    }

    override func gateway(connector: any Connector, logger: Logger) throws -> any PushGateway {
        let endpoint = try GatewayEndpoint(
            host: "api.push.apple.com", port: 443, trust: nil, applicationProtocols: [GatewayEndpoint.http2])
        var options = HTTP2Options(connections: 3)
        options.connector = connector
        return HTTP2Gateway(
            service: APNSService(endpoint: endpoint, bundleID: "com.example.app", tokens: nil), format: format,
            options: options, connectionIDs: ids, logger: logger)
    }

    override func payload(of request: HTTP2PeerRequest) -> [UInt8]? { Array(buffer: request.body) }
}

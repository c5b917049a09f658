import CSimulation
import ChatDomain
import Foundation
import Logging
import NIOCore

@testable import FCMGateway
@testable import GatewayPool

/// Google's FCM, and its token endpoint (docs/fcm.md).
final class Firebase: HTTP2PushService {
    private static let path = "/v1/projects/simulation/messages:send"

    /// Percents of the requests for an access token that fail.
    private var failedTokens = 0
    private var slowestToken = Duration.milliseconds(200)
    private var tokens = 0

    required init(_ world: World) {
        super.init(
            world,
            ServiceDialect(
                format: FCMFormat(.data),
                final: [(400, "INVALID_ARGUMENT"), (403, "SENDER_ID_MISMATCH"), (401, "THIRD_PARTY_AUTH_ERROR")],
                temporary: [(500, "INTERNAL"), (503, "UNAVAILABLE"), (429, "QUOTA_EXCEEDED"), (408, ""), (404, "")],
                returns: [(503, "UNAVAILABLE")],
                credentials: [(401, ""), (403, "PERMISSION_DENIED")], gone: (404, "UNREGISTERED"),
                body: { reason in
                    """
                    {"error":{"details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError",\
                    "errorCode":"\(reason)"}]}}
                    """
                },
                address: { address in
                    let token = address.description.suffix(TokenKind.installationID - 1)
                    return .token(try! DeviceToken(parsing: "c\(token):APA91bSimulation"))
                }))
    }

    override func plan(_ choices: Choices) {
        super.plan(choices)
        choices.maybe(20, 1...60, { "\($0) % of access tokens are refused" }, { self.failedTokens = $0 })
        choices.maybe(
            20, 1...20_000, { "access tokens take up to \($0) ms" }, { self.slowestToken = .milliseconds($0) })
    }

    override func gateway(
        for life: Life, over connector: any Connector, logger: Logger
    ) throws -> any PushGateway {
        let endpoint = try GatewayEndpoint(
            host: "fcm.googleapis.com", port: 443, trust: nil, applicationProtocols: [GatewayEndpoint.http2])
        let tokens = OAuthTokens(account: try account(), now: { .now() }) {
            [self] _, now async throws(OAuthTokenError) in try await token(now)
        }
        var options = HTTP2Options(connections: 3)
        options.connector = connector
        let service = FirebaseService(endpoint: endpoint, tokens: tokens)
        let gateway = HTTP2Gateway(
            service: service, format: format, options: options, connectionIDs: ids, logger: logger)
        reload = { gateway.reconfigure(service: service) }
        return gateway
    }

    private func token(_ now: Timestamp) async throws(OAuthTokenError) -> OAuthToken {
        try? await Task.sleep(for: world.dice.within(.zero...slowestToken))
        guard !world.dice.chance(failedTokens) else {
            throw world.dice.chance(50)
                ? OAuthTokenError("no response") : OAuthTokenError(status: 400, body: [], email: "simulation")
        }
        tokens += 1
        let text = #"{"access_token":"token\#(tokens)","expires_in":\#(world.dice.within(30...3600))}"#
        guard let token = OAuthToken(response: Array(text.utf8), now: now) else { throw OAuthTokenError("no token") }
        return token
    }

    override func calmDown() {
        super.calmDown()
        failedTokens = 0
    }

    /// The relay ends the payload with one brace more, that of `message`.
    override func payload(of request: HTTP2PeerRequest) -> [UInt8]? {
        guard request.headers.first(name: ":path") == Self.path else { return nil }
        return Array(Array(buffer: request.body).dropLast())
    }

    /// The relay never signs with the key, because the token endpoint is simulated.
    private func account() throws -> ServiceAccountFile {
        let file = FileManager.default.temporaryDirectory.appending(path: "simulation-account.\(getpid()).json").path
        defer { unlink(file) }
        let content = [
            "type": "service_account", "project_id": "simulation", "private_key_id": "simulation",
            "private_key": Self.key, "client_email": "simulation@example.com", "token_uri": "https://example.com/token",
        ]
        try JSONSerialization.data(withJSONObject: content).write(to: URL(filePath: file))
        return try ServiceAccountFile(file: file)
    }

    /// Made for the simulation with `openssl genrsa 2048`.
    private static let key = """
        -----BEGIN PRIVATE KEY-----
        MIIEvgIBADANBgkqhkiG9w0BAQEFAASCBKgwggSkAgEAAoIBAQCo0PhXeYURqDUE
        DEKSWn8VHZFD7HxzFZNuk5g3/ex6YsC4UyOafzIm4hunoefD1a7RGCcILNcw+1jY
        oP6b74bN5zaq0g0C51B0W3vSpiRJP6kpK54TbGEsKLfpShAAOZfPkDFxHCMujRkD
        CUAbCT0s7g0CZFU5V+vhKXcB8rcMxNbDdkQYPJLvugVS+oE8GMV1ingUL0s54KkE
        udsBYPsNCwhrg4t9UoQvWWSPsYOqKwA6WHCjieNZHv0freaCdh6phnigH7xp9GGK
        6TuJ+J+SN+rxvYR6KnS4doPZZ4G07few5YDNmjghCCZkmlXeJfOaG4j5ahxtmV9n
        +tO2L46hAgMBAAECggEAGtww/14O7anJUa0PtJCgksADGn8YqAkBTcE/IX2N8EUh
        K9LSoeTmGmi0hL4OjcrEh3Fj2Hml/Z2oW8N172KznLRSrug/+LvMQc9CitgzgtIV
        vL67ZpTCe0+5P22w0RBY1sY3D6ut71y045ZHtGWKbcksmbpUEw0ps0gxLsarGGVB
        K5lJobHwwE36LgO/mp8fHN+w91tMmT3PRkiMwnMwmPWnbQP6O9vxIFHeJOWh/kr0
        iqPJ8xm7HIHFPkn6f5BDxxZC00EIbxQzAvupjQXpJfHhPiytjDdB3THnc9aBR9Vy
        sHMqMZDSApdheE7hMkjL3jHAwZyo2NAk3cjhlbjA5wKBgQDSrndTsgBn65qWJJUB
        WMBdWiIa5uR6DojhJ588QahShbyz4HeSeHZldidvkskiQe7RS+rr9m5yWbh/LWLr
        T/9Z9hfcKkJsvLFfI/V5u5ZfNvlJw1I3ldZsdk5nOdABgoV681cBXDYGkCVPi4r3
        iEaHuPnnOkKV4YcQ4kiOUZxFuwKBgQDNIR/0KxQzgSo8pPCvfp8bM+0WdUes+x2h
        7lFz2NNOgrV4Nfgw8u8GNA7gEH4BihdpKajz56GOLqzY9B3QSCj77kp2d9tH/WEC
        AT9iSb0SVxIETXDLUTCXeYk0jd4OT63RNXb2chc53b53Wq2MC1y8S3G3dwPRY9I8
        5ZJ4GW4pUwKBgQCKlRKO7kaQFQ1Rd+y/vwaCIXjPo1Nk6kyldi+rLjEvXyM6Wwus
        QCr5IJheLvq42w/hgoOcBTSvaU8P8OXhjXSVU2hsfSvGZPRzda7SDU+jgADIwX9C
        awBpxgRaqE+nvphYwNpZXbN367dvNIYLvwtN2aIgtFT6TChRNdeuLgaSYwKBgALu
        y08pYoOOADWXwh0wOUQhTO16RckSWg0bpCx82CCSO9f5JZBFmOdEzUWk1rhc6hLF
        1rWOBUBMKIp9iwOUVImtkYD6G7d+xulJbUeReFOPzSEknk053vD7etu2f4tC1mBc
        XFQPs4dPRU7djAepjezfQ0P1Pqe6vqHCQoLXEj0jAoGBAJ48u34qThr7I8BZtCUb
        mIUvJyTiRLtxZyDnrJDnY+kSxq3zH3bSndDQQMoc5xFW6dvJwpH5Is8hrb6xBR7s
        iiWnW5syc6y52BHxnTbH5iWF/7M4Osw7t3A42NTWhGT+i3nkbd1PTFOJeQI91vsT
        LIxYsUtXa8AcybRHSjzXCZk3
        -----END PRIVATE KEY-----
        """
}

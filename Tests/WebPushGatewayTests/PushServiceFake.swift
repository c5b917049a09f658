import ChatDomain
import Crypto
import Foundation
import Hummingbird
import HummingbirdTLS
import Logging
import NIOSSL
import PushWire
import ServiceLifecycle
import Synchronization
import X509

@testable import WebPushGateway

/// A push service and its subscribed browsers, on loopback with TLS. The subscription's path selects the status:
/// `/201/…`, `/410/…`, and so on. `/203/…` starts a body and breaks it off.
final class PushServiceFake: Sendable {
    struct Received: Sendable {
        let path: String
        let headers: [String: String]
        let text: String
    }

    private let browser = P256.KeyAgreement.PrivateKey()
    private let secret = MessageEncryption.randomSalt()
    private let received = Mutex<[Received]>([])
    private let portNumber = Mutex(0)
    let certificate: NIOSSLCertificate
    let tls: TLSConfiguration

    init() throws {
        let key = P256.Signing.PrivateKey()
        let name = try DistinguishedName { CommonName("localhost") }
        let certificate = try Certificate(
            version: .v3, serialNumber: Certificate.SerialNumber(), publicKey: Certificate.PrivateKey(key).publicKey,
            notValidBefore: Date(timeIntervalSinceNow: -86_400), notValidAfter: Date(timeIntervalSinceNow: 86_400),
            issuer: name, subject: name, signatureAlgorithm: .ecdsaWithSHA256,
            extensions: Certificate.Extensions {
                Critical(BasicConstraints.isCertificateAuthority(maxPathLength: nil))
                SubjectAlternativeNames([.dnsName("localhost"), .dnsName("push.test")])
            }, issuerPrivateKey: Certificate.PrivateKey(key))
        self.certificate = try NIOSSLCertificate(
            bytes: Array(certificate.serializeAsPEM().pemString.utf8), format: .pem)
        tls = .makeServerConfiguration(
            certificateChain: [.certificate(self.certificate)],
            privateKey: .privateKey(try NIOSSLPrivateKey(bytes: Array(key.pemRepresentation.utf8), format: .pem)))
    }

    var port: Int { portNumber.withLock { $0 } }
    var all: [Received] { received.withLock { $0 } }

    /// Serves while the body runs.
    func serve<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) async throws -> Value {
        let router = Router()
        router.post("/:status/**") { [self] request, context in
            let status = try context.parameters.require("status", as: Int.self)
            let sealed = try await request.body.collect(upTo: 1 << 16)
            let text = try MessageEncryption.decrypt(Array(sealed.readableBytesView), key: browser, secret: secret)
            var headers: [String: String] = [:]
            for field in request.headers { headers[field.name.canonicalName] = field.value }
            received.withLock {
                $0.append(
                    Received(path: request.uri.path, headers: headers, text: String(decoding: text, as: UTF8.self)))
            }
            var response = Response(status: .init(code: status))
            if status == 203 {
                response.body = ResponseBody(contentLength: 100) { writer in
                    try await writer.write(ByteBuffer(string: "x"))
                    throw CancellationError()
                }
            }
            if [406, 408, 421, 425, 429].contains(status) { response.headers[.retryAfter] = "120" }
            if status == 302 { response.headers[.location] = "https://localhost:\(port)/201/redirected" }
            return response
        }
        let ports = AsyncStream.makeStream(of: Int.self)
        var logger = Logger(label: "push service")
        logger.logLevel = .critical
        let application = Application(
            router: router, server: try .tls(tlsConfiguration: tls),
            configuration: .init(address: .hostname("127.0.0.1", port: 0)),
            onServerRunning: { ports.continuation.yield($0.localAddress?.port ?? 0) }, logger: logger)
        // Do not cancel: that would drop a connection that is being accepted.
        let services = ServiceGroup(configuration: .init(services: [application], logger: logger))
        async let running: Void = services.run()
        for await port in ports.stream {
            portNumber.withLock { $0 = port }
            break
        }
        let result: Result<Value, any Error>
        do { result = .success(try await body()) } catch { result = .failure(error) }
        await services.triggerGracefulShutdown()
        try await running
        return try result.get()
    }

    /// Returns a browser's subscription, whose pushes get this status.
    func subscription(_ number: Int, status: Int = 201, host: String = "localhost", port: Int? = nil) -> Subscription {
        let endpoint = "https://\(host):\(port ?? self.port)/\(status)/\(number)"
        return Subscription(
            address: Self.address(endpoint), endpoint: endpoint,
            publicKey: Array(browser.publicKey.x963Representation), secret: secret)
    }

    static func address(_ endpoint: String) -> DeviceToken {
        guard let token = DeviceToken(bytes: Array(SHA256.hash(data: Data(endpoint.utf8)))) else {
            preconditionFailure("32 bytes are a token")
        }
        return token
    }
}

/// A store with fixed subscriptions.
struct FakeSubscriptions: SubscriptionStore {
    let known: [DeviceToken: Subscription]

    init(_ subscriptions: [Subscription]) {
        known = Dictionary(uniqueKeysWithValues: subscriptions.map { ($0.address, $0) })
    }

    func subscriptions(_ addresses: [DeviceToken]) async throws(ChatError) -> [DeviceToken: Subscription] {
        var found: [DeviceToken: Subscription] = [:]
        for address in addresses { found[address] = known[address] }
        return found
    }

    // These tests use only the gateway's side.
    func keep(_: Subscription) async throws(ChatError) {}
    func vapidKey(make: @escaping @Sendable () -> String) async throws(ChatError) -> String { make() }
    func setVAPIDKey(_: String) async throws(ChatError) {}
}

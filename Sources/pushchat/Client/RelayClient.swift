import AsyncHTTPClient
import ChatDomain
import Foundation
import GatewayPool
import NIOCore
import NIOFoundationCompat
import NIOHTTP1
import NIOPosix
import NIOSSL
import PushChatCore

/// An HTTP client for a running relay.
struct RelayClient: Sendable {
    /// The relay's URL, without a slash at the end.
    let base: String
    /// The bearer token of the `Authorization` header. For `/v1` it is the relay's first `admin.token`, or a token that
    /// `pushchat token` created. For the chat it is a session. `nil` if the relay requires none.
    let token: String?

    /// The advice in the error for a missing or wrong token.
    var tokenHint =
        "set it in the configuration, in PUSHCHAT_ADMIN_TOKEN, or name a file with --admin-token-file"

    private let connections: RelayConnections

    /// Creates a client.
    ///
    /// - Parameters:
    ///   - certificate: A PEM file. The relay must then present the first certificate of this file, whatever its name
    ///     and issuer. This is for a relay on this machine, which is called by its address and not by its name. `nil`
    ///     verifies the certificate as usual, by its name and the authorities of ``TLSConfiguration/trusted()``.
    ///   - silence: The longest pause within a response. After it, the connection counts as lost.
    /// - Throws: A ``CallFailure`` if the file, or that of `SSL_CERT_FILE`, contains no certificate.
    init(base: String, token: String?, certificate: String? = nil, silence: TimeAmount? = nil) throws {
        self.base = base
        self.token = token
        var configuration = HTTPClient.Configuration()
        configuration.timeout.read = silence
        if let certificate {
            configuration.tlsConfiguration = .makeClientConfiguration()
            configuration.tlsConfiguration?.certificateVerification = .none
            let own = try Self.first(of: certificate)
            // Called after the handshake and before the client sends anything, so that no other server receives the
            // token.
            configuration.http1_1ConnectionDebugInitializer = { channel in
                channel.nioSSL_peerCertificate().flatMapThrowing { shown in
                    guard shown == own else { throw Self.otherCertificate(base, certificate) }
                }
            }
            configuration.httpVersion = .http1Only
        } else if base.hasPrefix("https:") {
            configuration.tlsConfiguration = try .trusted()
        }
        // Treat a refused connection as a result. By default the client would retry it until the call's time limit.
        configuration.connectionPool.retryConnectionEstablishment = false
        connections = RelayConnections(HTTPClient(configuration: configuration))
    }

    private static func first(of file: String) throws -> NIOSSLCertificate {
        guard let certificate = try? NIOSSLCertificate.fromPEMFile(file).first else {
            throw CallFailure("http.certificate: \(file) holds no certificate in PEM format")
        }
        return certificate
    }

    private static func otherCertificate(_ base: String, _ file: String) -> CallFailure {
        CallFailure(
            "\(base) shows another certificate than the one in \(file): it is another server, or the file was renewed and the "
                + "relay has not reloaded it yet (SIGHUP)")
    }

    /// The time limit of one call.
    static let timeout = TimeAmount.seconds(30)
    /// The size limit in bytes of a response. It has room for a page of the largest records.
    private static let maxResponse = 16 << 20
    /// The maximum number of attempts of a call without a response, and the pause between them.
    private static let attempts = 4
    private static let pause = Duration.milliseconds(500)

    /// Makes a call, and retries it if the response is lost.
    ///
    /// - Parameter isRepeatable: Whether the call may be made again after its response was lost.
    /// - Throws: A ``CallFailure`` with the relay's error, or with the reason why the relay cannot be reached.
    func call(
        _ method: HTTPMethod, _ path: String, _ body: JSONObject? = nil, headers: [String: String] = [:],
        isRepeatable: Bool = true
    ) async throws -> JSONValue {
        var request = request(method, path, headers: headers)
        if let body {
            request.headers.add(name: "Content-Type", value: "application/json")
            request.body = .bytes(ByteBuffer(string: JSONValue.object(body).description))
        }
        var attempt = 1
        while true {
            do {
                return try await response(to: request)
            } catch let error as CallFailure {
                throw error
            } catch let refusal as RejectedCall {
                throw CallFailure(refusal.status == 401 ? "\(refusal.message): \(tokenHint)" : refusal.message)
            } catch  where Self.isRefused(error) && attempt == 1 {
                throw CallFailure(noRelay)
            } catch {
                guard isRepeatable, attempt < Self.attempts, !Task.isCancelled else {
                    throw CallFailure("\(base) did not answer: \(Self.text(error))")
                }
                attempt += 1
                try await Task.sleep(for: Self.pause)
            }
        }
    }

    /// Returns a request that carries the token.
    func request(_ method: HTTPMethod, _ path: String, headers: [String: String] = [:]) -> HTTPClientRequest {
        var request = HTTPClientRequest(url: base + path)
        request.method = method
        if let token { request.headers.add(name: "Authorization", value: "Bearer \(token)") }
        for (name, value) in headers { request.headers.add(name: name, value: value) }
        return request
    }

    /// Makes a call once.
    ///
    /// - Throws: A ``RejectedCall`` if the relay rejects the call. A ``CallFailure`` if the server is not a relay.
    ///   Otherwise the error of the connection.
    func response(to request: HTTPClientRequest, within limit: TimeAmount = timeout) async throws -> JSONValue {
        let response = try await connections.http.execute(request, timeout: limit)
        let bytes = try await response.body.collect(upTo: Self.maxResponse)
        let json = try? JSONValue(parsing: bytes.readableBytesView)
        guard (200..<300).contains(response.status.code) else {
            throw RejectedCall(status: Int(response.status.code), body: json, from: request.url)
        }
        if bytes.readableBytes == 0 { return .null }
        guard let json else { throw isNoRelay }
        return json
    }

    private var noRelay: String {
        "no relay answers at \(base): start one with `pushchat serve` or `pushchat dev`, or say where it is with --relay"
    }

    var isNoRelay: CallFailure { CallFailure("\(base) does not answer in JSON: is it a PushChat relay?") }

    /// Whether the connection has ended, and no further reason is known.
    private static func isClosed(_ error: any Error) -> Bool {
        (error as? HTTPClientError) == .remoteConnectionClosed || (error as? HTTPParserError) == .invalidEOFState
            || error.systemCodes.contains(ECONNRESET)
    }

    private static func isRefused(_ error: any Error) -> Bool {
        (error as? HTTPClientError) == .connectTimeout || error.systemCodes.contains(ECONNREFUSED)
    }

    private static func text(_ error: any Error) -> String {
        if ConnectionFailure.isUntrusted(error) {
            return "its certificate is not trusted; if its authority is your own, set SSL_CERT_FILE=FILE"
        }
        return ConnectionFailure.text(error).split(separator: "\n").first.map(String.init) ?? "unknown"
    }
}

extension TLSConfiguration {
    /// A client's configuration that trusts the system's authorities, and those in the file that `SSL_CERT_FILE` names,
    /// the variable that curl and OpenSSL read.
    ///
    /// - Throws: A ``CallFailure`` if the file contains no certificate.
    static func trusted() throws(CallFailure) -> TLSConfiguration {
        var tls = TLSConfiguration.makeClientConfiguration()
        if let file = ProcessInfo.processInfo.environment["SSL_CERT_FILE"], !file.isEmpty {
            guard let authorities = try? NIOSSLCertificate.fromPEMFile(file), !authorities.isEmpty else {
                throw CallFailure("SSL_CERT_FILE: \(file) holds no certificate in PEM format")
            }
            tls.additionalTrustRoots = [.certificates(authorities)]
        }
        return tls
    }
}

extension Error {
    /// The system's error codes of a connection, or of the attempts to connect.
    var systemCodes: [CInt] {
        let errors = (self as? NIOConnectionError)?.connectionErrors.map(\.error) ?? [self]
        return errors.compactMap { ($0 as? IOError)?.errnoCode }
    }
}

/// The connections of a client. They close with the last copy of the client, however its work ends.
private final class RelayConnections: Sendable {
    let http: HTTPClient

    init(_ http: HTTPClient) {
        self.http = http
    }

    deinit { http.shutdown { _ in } }
}

/// The pieces of one response's body.
///
/// `@unchecked Sendable` is sound: the body has one reader, which asks for one piece after another.
private final class Pieces: @unchecked Sendable {
    private var iterator: HTTPClientResponse.Body.AsyncIterator
    /// Keeps the connection open.
    private let connections: RelayConnections

    init(of body: HTTPClientResponse.Body, on connections: RelayConnections) {
        iterator = body.makeAsyncIterator()
        self.connections = connections
    }

    func next() async throws -> ByteBuffer? { try await iterator.next() }
}

// MARK: - The transport of a chat

/// The transport of `pushchat chat`. It adds no token: the API of a chat sends the session itself.
extension RelayClient: RelayTransport {
    func response(to request: RelayRequest) async throws -> RelayResponse {
        let response = try await execute(request)
        do {
            let bytes = try await response.body.collect(upTo: Self.maxResponse)
            return RelayResponse(
                status: Int(response.status.code), headers: Self.headers(response), body: Data(buffer: bytes))
        } catch {
            throw Self.transportError(error)
        }
    }

    func stream(of request: RelayRequest) async throws -> RelayStream {
        let response = try await execute(request)
        // Read only what the caller takes, so that a slow one fills no memory.
        let pieces = Pieces(of: response.body, on: connections)
        let body = AsyncThrowingStream {
            do {
                return try await pieces.next().map { Data(buffer: $0) }
            } catch {
                throw Self.transportError(error)
            }
        }
        return RelayStream(status: Int(response.status.code), headers: Self.headers(response), body: body)
    }

    private func execute(_ request: RelayRequest) async throws -> HTTPClientResponse {
        var made = HTTPClientRequest(url: request.url.absoluteString)
        made.method = HTTPMethod(rawValue: request.method)
        for (name, value) in request.headers { made.headers.add(name: name, value: value) }
        made.body = request.body.map { .bytes(ByteBuffer(data: $0)) }
        do {
            return try await connections.http.execute(made, timeout: TimeAmount(request.timeout))
        } catch {
            throw Self.transportError(error)
        }
    }

    private static func headers(_ response: HTTPClientResponse) -> [String: String] {
        Dictionary(response.headers.map { ($0.name.lowercased(), $0.value) }) { first, _ in first }
    }

    private static func transportError(_ error: any Error) -> any Error {
        switch error {
        case is CancellationError: error
        // The server shows another certificate. No later attempt succeeds.
        case let failure as CallFailure: PushChatError.unexpectedResponse(failure.description)
        default:
            isRefused(error)
                ? TransportError.refused : TransportError.lost(isClosed(error) ? "" : text(error))
        }
    }
}

/// The relay's error response to a call.
struct RejectedCall: Error, Equatable {
    let status: Int
    /// The error code for programs. `nil` if another server, such as a proxy, responded.
    let code: String?
    /// The error message for people, in one line.
    let message: String

    init(status: Int, code: String? = nil, message: String) {
        self.status = status
        self.code = code
        self.message = message
    }

    /// Reads the message from the body of an error response.
    ///
    /// - Parameters:
    ///   - body: The body: an error of the admin API or of the chat API. `nil` if it is not JSON.
    ///   - url: The URL of the call, for the message about a server that is not a relay.
    init(status: Int, body: JSONValue?, from url: String) {
        let error = body?.object?["error"]?.object
        // The response of `/readyz` lists checks.
        let checks = body?.object?["checks"]?.object?.members ?? []
        let problems = checks.compactMap { name, result in
            result.text.flatMap { $0 == "ok" ? nil : "\(name) \($0)" }
        }
        self.init(
            status: status, code: (error ?? body?.object)?["code"]?.text,
            message: (body?.object?["detail"]?.text ?? error?["message"]?.text
                ?? (problems.isEmpty ? nil : "not ready: " + problems.joined(separator: ", "))
                    ?? "\(url) answered with status \(status) and gave no reason: is it a PushChat relay?")
                .oneLine)
    }
}

/// The failure of a call: the relay rejects it, cannot be reached, or is another server. There is no reason to repeat the
/// call.
struct CallFailure: Error, Equatable, CustomStringConvertible {
    /// The explanation for the user.
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

extension JSONValue {
    /// The items of a page that the relay returned, and the cursor of the next page.
    func page(of member: String) -> (items: [JSONObject], next: String?) {
        let next = object?["next"]
        return ((object?[member]?.array ?? []).compactMap(\.object), next?.text ?? next?.integer.map(String.init))
    }
}

extension String {
    private static let plainInQuery = CharacterSet(
        charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

    /// The path with a query of the parts that have a value. Escapes every character that could have a meaning in a
    /// query, including the plus sign.
    func adding(_ query: [(String, String?)]) -> String {
        let parts = query.compactMap { name, value in
            value.map { "\(name)=\($0.addingPercentEncoding(withAllowedCharacters: Self.plainInQuery) ?? "")" }
        }
        return parts.isEmpty ? self : self + "?" + parts.joined(separator: "&")
    }
}

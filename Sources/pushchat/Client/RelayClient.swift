import ArgumentParser
import AsyncHTTPClient
import ChatDomain
import Foundation
import NIOCore
import NIOHTTP1
import NIOSSL

/// Calls a running relay.
struct RelayClient: Sendable {
    /// Its URL, without a slash at the end.
    let base: String
    /// What goes as `Authorization: Bearer`: for `/v1` the first of the relay's `admin.token` or a token of `pushchat token`,
    /// for the chat a session; nil where none is asked for.
    let token: String?

    /// What to do where the token is missing or wrong.
    var tokenHint =
        "set it in the configuration, in PUSHCHAT_ADMIN_TOKEN, or name a file with --admin-token-file"

    private let http: HTTPClient

    /// - Parameters:
    ///   - certificate: a PEM file; the relay must show the certificate that stands first in it, and then neither its
    ///     name nor its issuer matters. For a relay on this machine, which is called by its address and not by its name.
    ///     Nil: the certificate is verified as usual, by its name and the system's authorities.
    ///   - silence: how long the relay may say nothing in an answer, before the connection counts as lost.
    /// - Throws: a ``Failure`` if the file holds no certificate.
    init(base: String, token: String?, certificate: String? = nil, silence: TimeAmount? = nil) throws {
        self.base = base
        self.token = token
        var configuration = HTTPClient.Configuration()
        configuration.timeout.read = silence
        if let certificate {
            configuration.tlsConfiguration = .makeClientConfiguration()
            configuration.tlsConfiguration?.certificateVerification = .none
            let own = try Self.first(of: certificate)
            // Called when the handshake is done, and before anything is sent: the token goes to nobody else.
            configuration.http1_1ConnectionDebugInitializer = { channel in
                channel.nioSSL_peerCertificate().flatMapThrowing { shown in
                    guard shown == own else { throw Self.otherCertificate(base, certificate) }
                }
            }
            configuration.httpVersion = .http1Only
        }
        // A refused connection is an answer: without this it would be tried until the call's time is over.
        configuration.connectionPool.retryConnectionEstablishment = false
        http = HTTPClient(configuration: configuration)
        // Lives as long as the process, which makes one call or a few.
        _ = Unmanaged.passRetained(http)
    }

    private static func first(of file: String) throws -> NIOSSLCertificate {
        guard let certificate = try? NIOSSLCertificate.fromPEMFile(file).first else {
            throw Failure("http.certificate: \(file) holds no certificate in PEM format")
        }
        return certificate
    }

    private static func otherCertificate(_ base: String, _ file: String) -> Failure {
        Failure(
            "\(base) shows another certificate than the one in \(file): it is another server, or the file was renewed and the "
                + "relay has not reloaded it yet (SIGHUP)")
    }

    /// How long one call may take.
    static let timeout = TimeAmount.seconds(30)
    /// Bytes of an answer: a page of the largest records.
    private static let maximumResponse = 16 << 20
    /// How often a call without an answer is made, and the time between.
    private static let attempts = 4
    private static let pause = Duration.milliseconds(500)

    /// - Parameter isRepeatable: whether the call may be made again when its answer was lost.
    /// - Throws: a ``Failure`` with the relay's error, or why it cannot be reached.
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
                return try await answer(to: request)
            } catch let error as Failure {
                throw error
            } catch let refusal as RelayRefusal {
                throw Failure(refusal.status == 401 ? "\(refusal.message): \(tokenHint)" : refusal.message)
            } catch  where Self.isRefused(error) && attempt == 1 {
                throw Failure(noRelay)
            } catch {
                guard isRepeatable, attempt < Self.attempts, !Task.isCancelled else {
                    throw Failure("\(base) did not answer: \(Self.text(error))")
                }
                attempt += 1
                try await Task.sleep(for: Self.pause)
            }
        }
    }

    /// A request with the token.
    func request(_ method: HTTPMethod, _ path: String, headers: [String: String] = [:]) -> HTTPClientRequest {
        var request = HTTPClientRequest(url: base + path)
        request.method = method
        if let token { request.headers.add(name: "Authorization", value: "Bearer \(token)") }
        for (name, value) in headers { request.headers.add(name: name, value: value) }
        return request
    }

    /// Makes a call once.
    /// - Throws: a ``RelayRefusal``; a ``Failure`` if it is no relay that answers; else what was wrong with the connection.
    func answer(to request: HTTPClientRequest, within limit: TimeAmount = timeout) async throws -> JSONValue {
        let response = try await head(of: request, within: limit)
        let bytes = try await response.body.collect(upTo: Self.maximumResponse)
        if bytes.readableBytes == 0 { return .null }
        guard let answer = try? JSONValue(parsing: bytes.readableBytesView) else { throw isNoRelay }
        return answer
    }

    /// Makes a call once, and reads the answer's head: for an answer without an end.
    /// - Throws: as ``answer(to:within:)`` does.
    func head(of request: HTTPClientRequest, within limit: TimeAmount = timeout) async throws -> HTTPClientResponse {
        let response = try await http.execute(request, timeout: limit)
        guard (200..<300).contains(response.status.code) else {
            let bytes = try await response.body.collect(upTo: Self.maximumResponse)
            throw RelayRefusal(
                status: Int(response.status.code), answer: try? JSONValue(parsing: bytes.readableBytesView),
                retryAfter: response.headers.first(name: "Retry-After"))
        }
        return response
    }

    /// Why a call failed, by what it threw.
    func failure(_ error: any Error) -> CallFailure {
        switch error {
        case let refusal as RelayRefusal: .refused(refusal)
        case let failure as Failure: .hopeless(failure.description)
        default:
            Self.isRefused(error)
                ? .noRelay(noRelay)
                : .lost(Self.isClosed(error) ? base : "\(base): \(Self.text(error))")
        }
    }

    private var noRelay: String {
        "no relay answers at \(base): start one with `pushchat serve` or `pushchat dev`, or say where it is with --relay"
    }

    var isNoRelay: Failure { Failure("\(base) does not answer in JSON: is it a PushChat relay?") }

    /// The connection has ended, and nothing more is known.
    private static func isClosed(_ error: any Error) -> Bool {
        let text = String(describing: error)
        return (error as? HTTPClientError) == .remoteConnectionClosed
            || ["onnection reset", "stream ended"].contains { text.contains($0) }
    }

    private static func isRefused(_ error: any Error) -> Bool {
        (error as? HTTPClientError) == .connectTimeout || String(describing: error).contains("onnection refused")
    }

    private static func text(_ error: any Error) -> String {
        String(describing: error).split(separator: "\n").first.map(String.init) ?? "unknown"
    }
}

/// What the relay answered in place of what it was asked for.
struct RelayRefusal: Error, Equatable {
    let status: Int
    /// For programs; nil if another server, like a proxy, has answered.
    let code: String?
    /// For people; of one line.
    let message: String
    let retryAfter: Duration?

    init(status: Int, code: String? = nil, message: String, retryAfter: Duration? = nil) {
        self.status = status
        self.code = code
        self.message = message
        self.retryAfter = retryAfter
    }

    /// - Parameters:
    ///   - answer: an error of the admin API or of the chat API, or of none.
    ///   - retryAfter: the header, in seconds.
    init(status: Int, answer: JSONValue?, retryAfter: String?) {
        let error = answer?.object?["error"]?.object
        self.init(
            status: status, code: (error ?? answer?.object)?["code"]?.text,
            message: Output.oneLine(
                answer?.object?["detail"]?.text ?? error?["message"]?.text
                    ?? "the server answered with status \(status)"),
            retryAfter: retryAfter.flatMap { Int64($0) }.flatMap { $0 >= 0 ? .seconds($0) : nil })
    }
}

/// Why a call failed.
enum CallFailure: Error, Equatable {
    case refused(RelayRefusal)
    /// Nobody listens there, in words.
    case noRelay(String)
    /// The connection could not be made or has ended: to whom, and why where that says something.
    case lost(String)
    /// It is not the relay that answers, in words.
    case hopeless(String)
}

extension JSONValue {
    /// The items of a page that the relay answers, and the cursor of the next.
    func page(of member: String) -> (items: [JSONObject], next: String?) {
        let next = object?["next"]
        return ((object?[member]?.array ?? []).compactMap(\.object), next?.text ?? next?.integer.map(String.init))
    }
}

extension String {
    private static let plainInQuery = CharacterSet(
        charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

    /// A path with the parts of a query that have a value. Everything is escaped that may have a meaning in a query, a plus
    /// sign too.
    func adding(_ query: [(String, String?)]) -> String {
        let parts = query.compactMap { name, value in
            value.map { "\(name)=\($0.addingPercentEncoding(withAllowedCharacters: Self.plainInQuery) ?? "")" }
        }
        return parts.isEmpty ? self : self + "?" + parts.joined(separator: "&")
    }
}

/// Where the running relay is.
struct RelayAddress: ParsableArguments {
    @Option(help: .value("url", "Where the relay is; unless given, where the configuration has it listen."))
    var relay: String?

    @OptionGroup var source: ConfigurationChoice

    /// With `--relay` and no `--config`, no file is looked for: it would be another relay's.
    func configuration(_ flags: [ConfigurationFlag]) throws -> Configuration {
        try .loaded(
            relay != nil && source.config == nil
                ? ConfigurationSources(flags: flags, searched: [])
                : ConfigurationSources(file: source.config, flags: flags))
    }

    /// - Parameters:
    ///   - token: the one to bring, by the configuration.
    ///   - silence: as ``RelayClient`` has it.
    func client(
        _ flags: [ConfigurationFlag], silence: TimeAmount? = nil, token: (Configuration) -> String?
    ) throws -> RelayClient {
        let configuration = try configuration(flags)
        let token = token(configuration)
        if let relay { return try RelayClient(base: Self.base(relay), token: token, silence: silence) }
        return try RelayClient(
            base: configuration.localAddress, token: token, certificate: configuration.http.tls?.certificate,
            silence: silence)
    }

    private static func base(_ url: String) throws -> String {
        guard let parts = URLComponents(string: url), ["http", "https"].contains(parts.scheme), parts.host != nil,
            parts.query == nil, parts.fragment == nil
        else { throw ValidationError("--relay \(url): must be a URL like http://127.0.0.1:44447") }
        return String(url.reversed().drop { $0 == "/" }.reversed())
    }
}

/// Where the running relay is, and the token that it asks its operator for.
struct RelayOptions: ParsableArguments {
    @OptionGroup var address: RelayAddress

    @Option(
        help: .value(
            "file", "A file with the relay's admin.token.",
            discussion: "Unless given, the token of the configuration or of PUSHCHAT_ADMIN_TOKEN."),
        completion: .file())
    var adminTokenFile: String?

    var relay: String? { address.relay }
    var source: ConfigurationChoice { address.source }

    var flags: [ConfigurationFlag] {
        source.flags
            + (adminTokenFile.map { [ConfigurationFlag("admin.token_file", $0, name: "--admin-token-file")] } ?? [])
    }

    func configuration() throws -> Configuration { try address.configuration(flags) }

    /// - Parameter token: in place of the operator's.
    func client(token: String? = nil) throws -> RelayClient {
        try address.client(flags) { token ?? $0.admin.tokens.first?.text }
    }
}

extension Configuration {
    /// How this machine reaches the relay that the configuration describes.
    var localAddress: String {
        let anyAddress = ["0.0.0.0", "::", "*"].contains(http.host)
        let host = anyAddress ? "127.0.0.1" : http.host.contains(":") ? "[\(http.host)]" : http.host
        return "\(http.tls == nil ? "http" : "https")://\(host):\(http.port)"
    }
}

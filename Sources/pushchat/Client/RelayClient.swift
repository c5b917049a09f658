import ArgumentParser
import AsyncHTTPClient
import ChatDomain
import Foundation
import NIOCore
import NIOHTTP1
import NIOSSL

/// Calls the admin API of a running relay.
struct RelayClient: Sendable {
    /// Its URL, without a slash at the end.
    let base: String
    /// The first of the relay's `admin.token`; nil where it asks for none.
    let token: String?

    private let http: HTTPClient

    /// - Parameter certificate: a PEM file; the relay must show the certificate that stands first in it, and then neither its
    ///   name nor its issuer matters. For a relay on this machine, which is called by its address and not by its name. Nil:
    ///   the certificate is verified as usual, by its name and the system's authorities.
    /// - Throws: a ``Failure`` if the file holds no certificate.
    init(base: String, token: String?, certificate: String? = nil) throws {
        self.base = base
        self.token = token
        var configuration = HTTPClient.Configuration()
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
    private static let timeout = TimeAmount.seconds(30)
    /// Bytes of an answer: a page of the largest records.
    private static let maximumAnswer = 16 << 20
    /// How often a call without an answer is made, and the time between.
    private static let attempts = 4
    private static let pause = Duration.milliseconds(500)

    /// - Parameter isRepeatable: whether the call may be made again when its answer was lost.
    /// - Throws: a ``Failure`` with the relay's error, or why it cannot be reached.
    func call(
        _ method: HTTPMethod, _ path: String, _ body: JSONObject? = nil, headers: [String: String] = [:],
        isRepeatable: Bool = true
    ) async throws -> JSONValue {
        var attempt = 1
        while true {
            do {
                return try await once(method, path, body, headers)
            } catch let error as Failure {
                throw error
            } catch  where Self.isRefused(error) {
                throw Failure(
                    "no relay answers at \(base): start one with `pushchat serve` or `pushchat dev`, or say where it is "
                        + "with --relay")
            } catch {
                guard isRepeatable, attempt < Self.attempts, !Task.isCancelled else {
                    throw Failure("\(base) did not answer: \(Self.text(error))")
                }
                attempt += 1
                try await Task.sleep(for: Self.pause)
            }
        }
    }

    private func once(
        _ method: HTTPMethod, _ path: String, _ body: JSONObject?, _ headers: [String: String]
    ) async throws -> JSONValue {
        var request = HTTPClientRequest(url: base + path)
        request.method = method
        if let token { request.headers.add(name: "Authorization", value: "Bearer \(token)") }
        for (name, value) in headers { request.headers.add(name: name, value: value) }
        if let body {
            request.headers.add(name: "Content-Type", value: "application/json")
            request.body = .bytes(ByteBuffer(string: JSONValue.object(body).description))
        }
        let response = try await http.execute(request, timeout: Self.timeout)
        let bytes = try await response.body.collect(upTo: Self.maximumAnswer)
        let answer = bytes.readableBytes == 0 ? JSONValue.null : try? JSONValue(parsing: bytes.readableBytesView)
        guard (200..<300).contains(response.status.code) else {
            throw Failure(problem(Int(response.status.code), answer))
        }
        guard let answer else { throw Failure("\(base) does not answer in JSON: is it a PushChat relay?") }
        return answer
    }

    private func problem(_ status: Int, _ answer: JSONValue?) -> String {
        let detail = answer?.object?["detail"]?.text ?? "status \(status)"
        guard status == 401 else { return detail }
        return detail
            + ": set it in the configuration, in PUSHCHAT_ADMIN_TOKEN, or name a file with --admin-token-file"
    }

    private static func isRefused(_ error: any Error) -> Bool {
        (error as? HTTPClientError) == .connectTimeout || String(describing: error).contains("onnection refused")
    }

    private static func text(_ error: any Error) -> String {
        String(describing: error).split(separator: "\n").first.map(String.init) ?? "unknown"
    }
}

extension JSONValue {
    /// The items of a page that the relay answers, and the cursor of the next.
    func page(of member: String) -> (items: [JSONObject], next: Int64?) {
        ((object?[member]?.array ?? []).compactMap(\.object), object?["next"]?.integer)
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

/// Where the running relay is, and the token that it asks for.
struct RelayOptions: ParsableArguments {
    @Option(help: .value("url", "Where the relay is; unless given, where the configuration has it listen."))
    var relay: String?

    @Option(
        help: .value(
            "file", "A file with the relay's admin.token.",
            discussion: "Unless given, the token of the configuration or of PUSHCHAT_ADMIN_TOKEN."),
        completion: .file())
    var adminTokenFile: String?

    @OptionGroup var source: ConfigurationChoice

    var flags: [ConfigurationFlag] {
        source.flags
            + (adminTokenFile.map { [ConfigurationFlag("admin.token_file", $0, name: "--admin-token-file")] } ?? [])
    }

    /// With `--relay` and no `--config`, no file is looked for: it would be another relay's.
    func configuration() throws -> Configuration {
        try .loaded(
            relay != nil && source.config == nil
                ? ConfigurationSources(flags: flags, searched: [])
                : ConfigurationSources(file: source.config, flags: flags))
    }

    func client() throws -> RelayClient {
        let configuration = try configuration()
        let token = configuration.admin.tokens.first?.text
        if let relay { return try RelayClient(base: Self.base(relay), token: token) }
        return try RelayClient(
            base: configuration.localAddress, token: token, certificate: configuration.http.tls?.certificate)
    }

    private static func base(_ url: String) throws -> String {
        guard let parts = URLComponents(string: url), ["http", "https"].contains(parts.scheme), parts.host != nil,
            parts.query == nil, parts.fragment == nil
        else { throw ValidationError("--relay \(url): must be a URL like http://127.0.0.1:44447") }
        return String(url.reversed().drop { $0 == "/" }.reversed())
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

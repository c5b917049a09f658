import AsyncHTTPClient
import ChatDomain
import Foundation
import NIOCore
import NIOHTTP1
import NIOSSL

/// Calls the admin API of a running relay.
struct RelayClient: Sendable {
    /// Without a scheme's default port, without a path.
    let base: String
    /// The relay's `admin.token`; nil where it asks for none.
    let token: String?

    private let http: HTTPClient

    /// - Parameter certificate: PEM, of a relay on this machine, which is called by its address and not by its name.
    init(base: String, token: String?, certificate: String? = nil) {
        self.base = base
        self.token = token
        guard let certificate else {
            http = .shared
            return
        }
        var tls = TLSConfiguration.makeClientConfiguration()
        tls.additionalTrustRoots = [.file(certificate)]
        tls.certificateVerification = .noHostnameVerification
        http = HTTPClient(configuration: HTTPClient.Configuration(tlsConfiguration: tls))
        // Lives as long as the process, which makes one call or a few.
        _ = Unmanaged.passRetained(http)
    }

    /// How long one call may take.
    private static let timeout = TimeAmount.seconds(30)
    /// Bytes of an answer: a page of the largest records.
    private static let largestAnswer = 16 << 20
    /// How often a call is made that did not get an answer, and the time between.
    private static let attempts = 4
    private static let pause = Duration.milliseconds(500)

    /// - Parameter isRepeatable: whether it does no harm to make the call again when its answer got lost.
    /// - Throws: a ``Failure`` with what the relay says, or why it cannot be reached.
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
        let bytes = try await response.body.collect(upTo: Self.largestAnswer)
        let answer = bytes.readableBytes == 0 ? JSONValue.null : try? JSONValue(parsing: bytes.readableBytesView)
        guard (200..<300).contains(response.status.code) else {
            throw Failure(problem(Int(response.status.code), answer))
        }
        guard let answer else { throw Failure("\(base) does not answer in JSON: is it a PushChat relay?") }
        return answer
    }

    private func problem(_ status: Int, _ answer: JSONValue?) -> String {
        let detail = answer?.object?["detail"]?.text ?? "status \(status)"
        return switch status {
        case 401:
            "\(detail): set it in the configuration, in PUSHCHAT_ADMIN_TOKEN, or name a file with --admin-token-file"
        default: detail
        }
    }

    private static func isRefused(_ error: any Error) -> Bool {
        (error as? HTTPClientError) == .connectTimeout || String(describing: error).contains("onnection refused")
    }

    private static func text(_ error: any Error) -> String {
        String(describing: error).split(separator: "\n").first.map(String.init) ?? "unknown"
    }
}

extension String {
    /// A path with the parts of a query that have a value.
    func adding(_ query: [(String, String?)]) -> String {
        // Nothing that has a meaning in a query, a plus sign above all.
        let plain = CharacterSet.alphanumerics.intersection(.asciiOnly).union(CharacterSet(charactersIn: "-._~"))
        let parts = query.compactMap { name, value in
            value.map { "\(name)=\($0.addingPercentEncoding(withAllowedCharacters: plain) ?? "")" }
        }
        return parts.isEmpty ? self : self + "?" + parts.joined(separator: "&")
    }
}

extension CharacterSet {
    fileprivate static let asciiOnly = CharacterSet(charactersIn: Unicode.Scalar(0)...Unicode.Scalar(127))
}

import APNSGateway
import AsyncHTTPClient
import ChatDomain
import Foundation
import GatewayPool
import NIOCore
import NIOHTTP1
import NIOSSL
import PushChatCore
import Synchronization
import WebPushGateway

/// Checks `http.public_url` as a browser or an app sees it, from this machine. It covers the name, each of its
/// addresses, and the certificate.
///
/// If the relay runs on this machine, the check also finds out whether this relay is the one behind the address. The
/// relay's pages must arrive unchanged and its streams without a delay, and the relay must see its clients' addresses.
///
/// Every request has the time limit ``limit`` (streams: ``streamLimit``), and every response the size limit
/// ``maxResponse``.
struct PublicAddressCheck {
    struct Line: Sendable, Equatable {
        let result: CheckReport.Result
        let subject: String
        let text: String
    }

    private static let limit = TimeAmount.seconds(15)
    /// The time limit for a stream, which itself takes two seconds.
    private static let streamLimit = TimeAmount.seconds(20)
    /// The maximum number of streams to try before the check reports buffering. A busy machine may delay a stream.
    private static let streamAttempts = 3
    /// The size limit in bytes of a response. The largest file of a page is far smaller.
    private static let maxResponse = 1 << 20
    /// The maximum number of the name's addresses to try.
    private static let maxAddresses = 8
    /// The files and headers to compare between the relay and the public address.
    private static let files = ["/", "/sw.js", "/manifest.webmanifest"]
    private static let headers = [
        "Content-Type", "Content-Security-Policy", "Referrer-Policy", "X-Content-Type-Options", "Cache-Control",
    ]
    private static let subject = "public address"

    private let configuration: Configuration
    private let url: String
    private let host: String
    private let port: Int
    private let isHTTPS: Bool
    /// Whether the public address is the relay's address on this machine, without a proxy.
    private let isLocal: Bool
    /// With the authorities in `SSL_CERT_FILE`, once the check runs.
    private var tls = TLSConfiguration.makeClientConfiguration()
    private var lines: [Line] = []

    /// `nil` if no public address is configured.
    init?(_ configuration: Configuration) {
        guard let url = configuration.http.publicURL, let parts = URLComponents(string: url), let host = parts.host
        else { return nil }
        self.configuration = configuration
        self.url = url
        self.host = host.hasPrefix("[") ? String(host.dropFirst().dropLast()) : host
        isHTTPS = parts.scheme == "https"
        port = parts.port ?? (isHTTPS ? 443 : 80)
        isLocal =
            url == configuration.localAddress
            || ["localhost", "127.0.0.1", "::1"].contains(self.host) && port == configuration.http.port
                && isHTTPS == (configuration.http.tls != nil) && parts.path.isEmpty
    }

    mutating func run() async -> [Line] {
        let relay = await runningRelay()
        guard relay != nil || !isLocal else { return lines }
        do {
            if isHTTPS { tls = try .trusted() }
        } catch {
            add(.failed, "\(error)")
            return lines
        }
        if let addresses = await resolved(), let shown = await reached(addresses) {
            let client = client()
            await visit(client, shown, relay)
            try? await client.shutdown()
        }
        return lines
    }

    private mutating func add(_ result: CheckReport.Result, _ text: String, of subject: String = subject) {
        lines.append(Line(result: result, subject: subject, text: text.oneLine))
    }

    // MARK: - The relay on this machine

    private mutating func runningRelay() async -> RelayClient? {
        do {
            let relay = try RelayClient(
                base: configuration.localAddress, token: configuration.admin.tokens.first?.text,
                certificate: configuration.http.tls?.certificate)
            _ = try await relay.response(to: relay.request(.GET, "/healthz"), within: Self.limit)
            add(.ok, "runs at \(relay.base)", of: "relay")
            return relay
        } catch {
            add(
                .warning,
                "does not run at \(configuration.localAddress) (\(Self.reason(error))): "
                    + (isLocal
                        ? "the public address is the relay's own and cannot be checked"
                        : "at \(url), only the server in front of it can be checked"),
                of: "relay")
            return nil
        }
    }

    // MARK: - Name and addresses

    private mutating func resolved() async -> [IPAddress]? {
        if let address = IPAddress(host) { return [address] }
        do {
            var known: Set<IPAddress> = []
            let addresses = try await HostResolver().addresses(host).filter { known.insert($0).inserted }
            return Array(addresses.prefix(Self.maxAddresses))
        } catch {
            add(.failed, "\(host) has no address (\(error)): its domain needs an A or AAAA record for it")
            return nil
        }
    }

    private enum Reached: Sendable {
        /// The certificate is `nil` without TLS.
        case responds(CertificateSummary?)
        case fails(String)
    }

    /// Connects to each address of the name, because a browser may use any of them.
    ///
    /// - Returns: The certificate of the first address that responds, in an array that is empty without TLS. `nil` if
    ///   no address responds.
    private mutating func reached(_ addresses: [IPAddress]) async -> [CertificateSummary]? {
        let results = await withTaskGroup(of: (Int, Reached).self) { [self] group in
            for (index, address) in addresses.enumerated() {
                group.addTask { (index, await self.reach(address)) }
            }
            return await group.reduce(into: [Int: Reached]()) { $0[$1.0] = $1.1 }
        }
        var shown: [CertificateSummary]?
        var (reachable, failures): ([String], [String]) = ([], [])
        for (index, address) in addresses.enumerated() {
            switch results[index] {
            case .responds(let certificate):
                shown = shown ?? certificate.map { [$0] } ?? []
                reachable.append("\(address)")
            case .fails(let why): failures.append("\(address) \(why)")
            case nil: break
            }
        }
        let why = failures.joined(separator: ", ")
        if shown == nil {
            add(
                .failed,
                "nothing answers at \(host), port \(port): \(why). Does the proxy run, and is the port open? Some routers do "
                    + "not lead a machine's own public address back to it: in that case, check from another network")
        } else if !failures.isEmpty {
            add(.warning, "\(host) also has an address that does not answer: \(why)")
        } else {
            add(.ok, "\(host) is at \(reachable.joined(separator: ", ")), port \(port)")
        }
        return shown
    }

    private func reach(_ address: IPAddress) async -> Reached {
        let shown = ShownCertificate()
        // Only look at the certificate here. A later request verifies it.
        let client = client(verifies: false) { settings in
            settings.httpVersion = .http1Only
            if IPAddress(host) == nil { settings.dnsOverride[host] = "\(address)" }
            if isHTTPS {
                settings.http1_1ConnectionDebugInitializer = { channel in
                    channel.nioSSL_peerCertificate().map { shown.record($0) }
                }
            }
        }
        var failure: String?
        do {
            _ = try await client.execute(HTTPClientRequest(url: url + "/healthz"), timeout: Self.limit)
        } catch {
            failure = Self.reason(error)
        }
        try? await client.shutdown()
        if let certificate = shown.summary { return .responds(certificate) }
        return failure.map { .fails($0) } ?? .responds(nil)
    }

    private func client(
        verifies: Bool = true, _ change: (inout HTTPClient.Configuration) -> Void = { _ in }
    ) -> HTTPClient {
        var settings = HTTPClient.Configuration()
        settings.redirectConfiguration = .disallow
        settings.connectionPool.retryConnectionEstablishment = false
        settings.timeout.connect = Self.limit
        var tls = tls
        if !verifies { tls.certificateVerification = .none }
        settings.tlsConfiguration = tls
        change(&settings)
        return HTTPClient.services(settings)
    }

    // MARK: - The server behind the address

    /// Checks the server's response and certificate, and then its files and streams.
    ///
    /// - Parameter shown: The certificate; empty without TLS.
    private mutating func visit(_ client: HTTPClient, _ shown: [CertificateSummary], _ relay: RelayClient?) async {
        let response: Response
        do {
            response = try await get(url + "/healthz", client)
        } catch {
            add(.failed, shown.first.map { untrusted($0) } ?? "\(url) does not answer: \(Self.reason(error))")
            return
        }
        if let certificate = shown.first { add(certificate) }
        guard isRelay(response, runs: relay != nil) else { return }
        if isHTTPS, port == 443 { await checkPlainHTTP(client) }
        guard let relay else { return }
        await compareFiles(client)
        await checkStream(client, relay)
    }

    /// The reason why browsers reject the certificate.
    private func untrusted(_ certificate: CertificateSummary) -> String {
        let day = certificate.notAfter.formatted(.iso8601.year().month().day())
        if certificate.notAfter < Date() { return "the certificate has expired, on \(day): browsers refuse it" }
        if certificate.notBefore > Date() {
            return "the certificate is not valid yet, or this machine's clock is wrong"
        }
        if IPAddress(host) == nil, !certificate.isFor(host) {
            let names = certificate.hosts.isEmpty ? certificate.commonName : certificate.hosts.joined(separator: ", ")
            return "the certificate is for \(names), not for \(host): browsers refuse it"
        }
        return "the certificate is not trusted: this system does not know its issuer, \(certificate.issuer), or the "
            + "server omits an intermediate certificate. If the authority is your own, set SSL_CERT_FILE=FILE for "
            + "pushchat's commands, and install the authority in browsers"
    }

    /// Adds a line for a valid certificate. It is a warning if less than a fifth of the certificate's lifetime is left
    /// (for a long lifetime: less than 30 days). ACME clients renew when a third is left, so renewal is overdue by
    /// then.
    private mutating func add(_ certificate: CertificateSummary) {
        let lifetime = certificate.notAfter.timeIntervalSince(certificate.notBefore)
        let left = certificate.notAfter.timeIntervalSinceNow
        let isLate = left < min(lifetime / 5, 30 * 86_400)
        let text = left < 2 * 86_400 ? "\(Int(left / 3600)) hours" : "\(certificate.daysLeft(at: Date())) days"
        add(
            isLate ? .warning : .ok,
            "the certificate is trusted: issued by \(certificate.issuer), \(text) left"
                + (isLate ? ": its renewal is overdue" : ""))
    }

    /// Whether the response is a relay's. Adds a line in either case.
    private mutating func isRelay(_ response: Response, runs: Bool) -> Bool {
        switch response.status {
        case 200 where (try? JSONValue(parsing: response.body.readableBytesView))?.object?["healthy"] != nil:
            add(.ok, "a relay answers at \(url), over HTTP/\(response.version)")
            return true
        case 502...504 where !runs:
            add(.warning, "the proxy at \(url) answers with status \(response.status), because the relay does not run")
        case 502...504:
            add(
                .failed,
                "the proxy at \(url) answers with status \(response.status): it does not reach the relay, which is at "
                    + configuration.localAddress)
        case 300..<400:
            add(
                .failed,
                "\(url) redirects to \(response.headers.first(name: "Location") ?? "nowhere"): http.public_url has to be the "
                    + "address at which the relay itself responds")
        default: add(.failed, "\(url)/healthz answers with status \(response.status): it is not a relay")
        }
        return false
    }

    private mutating func checkPlainHTTP(_ client: HTTPClient) async {
        let path = URLComponents(string: url)?.percentEncodedPath ?? ""
        let plain = "http://\(host.contains(":") ? "[\(host)]" : host)\(path)/"
        guard let response = try? await get(plain, client) else {
            return add(.ok, "without HTTPS nothing answers")
        }
        let place = response.headers.first(name: "Location") ?? ""
        if (300..<400).contains(response.status), place.hasPrefix("https://") {
            add(.ok, "\(plain) redirects to HTTPS")
        } else {
            add(
                .warning,
                "\(plain) answers with status \(response.status) and does not redirect to HTTPS, without which browsers "
                    + "show no notifications")
        }
    }

    /// Compares the files that a browser receives with the files that the relay sends.
    private mutating func compareFiles(_ client: HTTPClient) async {
        let local = self.client(verifies: false)
        var isSame = true
        for path in Self.files {
            do {
                let sent = try await get(configuration.localAddress + path, local)
                let got = try await get(url + path, client)
                if got.status != sent.status || got.body != sent.body {
                    isSame = false
                    add(
                        .failed,
                        "\(path) does not arrive as the relay sends it (status \(got.status)): the proxy changes it")
                }
                for name in Self.headers where got.headers[name] != sent.headers[name] {
                    isSame = false
                    let values = [sent, got].map { "\"\($0.headers[name].joined(separator: ", "))\"" }
                    add(.warning, "the header \(name) of \(path) is \(values[1]), and the relay sends \(values[0])")
                }
            } catch {
                isSame = false
                add(.failed, "\(path) does not arrive: \(Self.reason(error))")
            }
        }
        try? await local.shutdown()
        if isSame { add(.ok, "pages and service worker arrive as the relay sends them") }
    }

    // MARK: - Streams and addresses

    private mutating func checkStream(_ client: HTTPClient, _ relay: RelayClient) async {
        do {
            var seen: Stream
            var attempts = 0
            repeat {
                let ticket: String
                do {
                    let response = try await relay.response(to: relay.request(.POST, "/v1/probes"), within: Self.limit)
                    guard let text = response.object?["ticket"]?.text else { throw relay.isNoRelay }
                    ticket = text
                } catch {
                    let why = Self.reason(error)
                    return add(
                        .warning,
                        "streams and clients' addresses are not checked, which requires admin.token: \(why)")
                }
                seen = try await stream(ticket, client, relay)
                attempts += 1
            } while seen.isHeldBack && attempts < Self.streamAttempts
            if seen.isHeldBack {
                add(
                    .failed,
                    "the proxy delays streams: messages reach open pages late or never; it must not buffer /events"
                )
            } else {
                add(.ok, "streams arrive at once")
            }
            let (result, text) = seen.probe.verdict(isDirect: isLocal || configuration.http.tls != nil)
            add(result, text)
        } catch {
            add(
                .failed,
                (error as? CallFailure)?.description ?? "a stream does not arrive: \(Self.reason(error))")
        }
    }

    /// A stream as it arrived.
    private struct Stream {
        let probe: ProbeObservation
        /// Whether the events arrived together, although the relay sends them two seconds apart.
        let isHeldBack: Bool
    }

    private func stream(_ ticket: String, _ client: HTTPClient, _ relay: RelayClient) async throws -> Stream {
        var request = HTTPClientRequest(url: url + "/events?ticket=\(ticket)")
        request.headers.add(name: "X-Forwarded-For", value: ProbeObservation.forged)
        request.headers.add(name: "Forwarded", value: "for=\(ProbeObservation.forged)")
        let response = try await client.execute(request, timeout: Self.streamLimit)
        if response.status == .unauthorized {
            throw CallFailure("another relay answers at \(url) than the one that runs at \(relay.base)")
        }
        guard response.status == .ok else {
            throw CallFailure("the stream \(url)/events answers with status \(response.status.code)")
        }
        var parser = ServerSentEventParser()
        var times: [String: ContinuousClock.Instant] = [:]
        var (probe, size): (ProbeObservation?, Int) = (nil, 0)
        for try await piece in response.body {
            size += piece.readableBytes
            guard size <= Self.maxResponse else {
                throw CallFailure("a stream does not arrive: it is too long")
            }
            for event in try parser.read(piece.readableBytesView) {
                times[event.name] = .now
                if event.name == "probe" { probe = ProbeObservation(event.data) }
            }
        }
        guard let probe, let first = times["probe"], let last = times["end"] else {
            throw CallFailure("a stream does not arrive: it ends early")
        }
        return Stream(probe: probe, isHeldBack: first.duration(to: last) < .seconds(1))
    }

    // MARK: - Requests

    private struct Response {
        let status: Int
        let version: String
        let headers: HTTPHeaders
        let body: ByteBuffer
    }

    private func get(_ url: String, _ client: HTTPClient) async throws -> Response {
        let response = try await client.execute(HTTPClientRequest(url: url), timeout: Self.limit)
        let body = try await response.body.collect(upTo: Self.maxResponse)
        let version = response.version.major < 2 ? "1.1" : "\(response.version.major)"
        return Response(
            status: Int(response.status.code), version: version, headers: response.headers, body: body)
    }

    /// The reason why a request failed, as part of a sentence.
    private static func reason(_ error: any Error) -> String {
        if (error as? HTTPClientError) == .connectTimeout || (error as? HTTPClientError) == .deadlineExceeded {
            return "does not answer in time"
        }
        let codes = error.systemCodes
        if codes.contains(ECONNREFUSED) { return "refuses connections" }
        if codes.contains(ENETUNREACH) || codes.contains(EHOSTUNREACH) { return "cannot be reached from here" }
        if let rejected = error as? RejectedCall { return rejected.message }
        return ConnectionFailure.text(error).split(separator: "\n").first.map(String.init) ?? "fails"
    }
}

/// Stores the certificate of the first connection.
private final class ShownCertificate: Sendable {
    private let state = Mutex<CertificateSummary?>(nil)

    var summary: CertificateSummary? { state.withLock { $0 } }

    func record(_ certificate: NIOSSLCertificate?) {
        let summary = certificate.flatMap { try? CertificateSummary(der: $0.toDERBytes()) }
        state.withLock { $0 = $0 ?? summary }
    }
}

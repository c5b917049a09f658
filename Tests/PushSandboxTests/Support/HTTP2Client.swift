import Foundation
import NIOCore
import NIOHPACK
import NIOPosix
import NIOSSL
import PushWire
import Testing

@testable import PushSandbox

/// A client of the HTTP/2 listener that writes its frames by hand, so that it can also send frames that no library
/// allows.
struct HTTP2Client: Sendable {
    struct Response: Sendable {
        var status = 0
        var headers: [String: String] = [:]
        var body = ""
        /// Whether HEADERS carried END_STREAM.
        var isBare = false
        var reason: String? { ProviderRefusal(status: status, body: Array(body.utf8)).reason }
    }

    /// The server reset the stream.
    struct StreamReset: Error, Equatable {
        var code: UInt32
    }

    /// The connection ended before the response.
    struct ConnectionEnded: Error {}

    /// No response arrived in time.
    struct NoResponse: Error {}

    struct GoAway: Sendable, Equatable {
        var lastStream: Int
        var code: UInt32
        var text: String
    }

    struct Ending: Sendable {
        var goAways: [GoAway]
        var isClean: Bool
    }

    let channel: any Channel
    private let frames: NIOLoopBound<HTTP2ClientFrames>
    var authorization: String?

    /// - Parameters:
    ///   - protocols: The protocols that the client offers by ALPN.
    ///   - name: The host name that the server's certificate must have.
    static func connect(
        to address: SandboxAddress, _ credentials: SandboxCredentials, _ identity: ClientIdentity = .none,
        authorization: String? = nil, acknowledges: Bool = true, protocols: [String] = ["h2"],
        name: String = "localhost"
    ) async throws -> HTTP2Client {
        let context = try identity.context(credentials, protocols: protocols)
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let made = loop.makePromise(of: NIOLoopBound<HTTP2ClientFrames>.self)
        let connecting = ClientBootstrap(group: loop)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let frames = HTTP2ClientFrames(channel: channel, acknowledges: acknowledges)
                    let pipeline = channel.pipeline.syncOperations
                    try pipeline.addHandler(NIOSSLClientHandler(context: context, serverHostname: name))
                    try pipeline.addHandler(frames)
                    made.succeed(NIOLoopBound(frames, eventLoop: channel.eventLoop))
                }
            }
            .connect(host: address.host, port: address.port)
        connecting.whenFailure(made.fail)
        return HTTP2Client(
            channel: try await connecting.get(), frames: try await made.futureResult.get(), authorization: authorization
        )
    }

    private func onLoop<Value: Sendable>(
        _ body: @escaping @Sendable (HTTP2ClientFrames) throws -> Value
    ) async throws -> Value {
        let frames = self.frames
        return try await channel.eventLoop.submit { try body(frames.value) }.get()
    }

    /// Returns the same connection with another provider token.
    func with(authorization: String) -> HTTP2Client {
        var client = self
        client.authorization = authorization
        return client
    }

    // MARK: Requests

    /// Returns the headers of an ordinary request, followed by `changes`. `apns-topic` with an empty value leaves the
    /// topic out.
    func headers(
        _ token: String = HTTP2Client.token, _ changes: [(String, String)] = [], method: String = "POST",
        path: String? = nil
    ) -> [(String, String)] {
        var headers: [(String, String)] = [
            (":method", method), (":scheme", "https"), (":authority", "localhost"),
            (":path", path ?? "/3/device/" + token),
        ]
        if let authorization { headers.append(("authorization", authorization)) }
        if !changes.contains(where: { $0.0 == "apns-topic" }) {
            headers.append(("apns-topic", SandboxConfiguration.defaultTopic))
        }
        return headers + changes.filter { !$0.1.isEmpty }
    }

    static let token = String(repeating: "ab", count: 32)
    static let payload = #"{"aps":{"alert":"Hi"}}"#

    /// Sends a notification and waits for the response.
    func push(
        _ token: String = HTTP2Client.token, _ changes: [(String, String)] = [],
        payload: String = HTTP2Client.payload
    ) async throws -> Response {
        try await request(headers(token, changes), body: payload)
    }

    func request(_ headers: [(String, String)], body: String) async throws -> Response {
        try await response(to: send(headers, body: body))
    }

    /// Sends a request.
    /// - Parameter ends: Whether the request is complete.
    /// - Returns: The stream's number.
    func send(_ headers: [(String, String)], body: String, ends: Bool = true) async throws -> Int {
        try await onLoop { try $0.send(1, headers, body: body, ends: ends)[0] }
    }

    /// Sends several requests in one write.
    func send(_ count: Int, _ headers: [(String, String)], body: String = HTTP2Client.payload) async throws -> [Int] {
        try await onLoop { try $0.send(count, headers, body: body, ends: true) }
    }

    /// Sends the rest of a request.
    func finish(_ stream: Int, body: String) async throws {
        try await onLoop { $0.finish(stream, body: body) }
    }

    func response(to stream: Int) async throws -> Response {
        try await onLoop { $0.response(to: stream) }.get()
    }

    /// Sends `count` requests within the limit of streams, and counts the responses by status.
    func flood(
        _ count: Int, _ headers: [(String, String)], body: String = HTTP2Client.payload
    ) async throws -> [Int: Int] {
        try await onLoop { $0.flood(count, headers, body: body) }.get()
    }

    // MARK: The connection

    /// Whether the server acknowledges a PING within this time.
    func isAlive(within milliseconds: Int64 = 1000 * TestLimit.seconds) async throws -> Bool {
        try await onLoop { $0.ping(milliseconds: milliseconds) }.get()
    }

    /// Returns the stream limits that the server has announced so far.
    func limits() async throws -> [Int] {
        try await onLoop { $0.limits }
    }

    /// Returns the number of streams that have neither a response nor a reset.
    func unanswered() async throws -> Int {
        try await onLoop { $0.openStreams }
    }

    func goAways() async throws -> [GoAway] {
        try await onLoop { $0.goAways }
    }

    /// Waits until the server closes the connection.
    func end() async throws -> Ending {
        try await onLoop { $0.ended.futureResult }.get()
    }

    func close() async {
        try? await channel.close().get()
    }
}

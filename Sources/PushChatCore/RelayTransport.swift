public import Foundation

/// An HTTP request to the relay.
public struct RelayRequest: Sendable, Hashable {
    /// The method, in capital letters.
    public var method: String
    public var url: URL
    /// The header fields, by their names.
    public var headers: [String: String]
    /// `nil` for a request without a body.
    public var body: Data?
    /// The time within which the head of the response must arrive, and for ``RelayTransport/response(to:)`` the body.
    public var timeout: Duration

    public init(
        method: String, url: URL, headers: [String: String] = [:], body: Data? = nil, timeout: Duration = .seconds(30)
    ) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout = timeout
    }
}

/// A complete HTTP response.
public struct RelayResponse: Sendable, Hashable {
    public var status: Int
    /// The header fields, by their names in lower case.
    public var headers: [String: String]
    public var body: Data

    public init(status: Int, headers: [String: String] = [:], body: Data = Data()) {
        self.status = status
        self.headers = headers
        self.body = body
    }
}

/// An HTTP response whose body arrives over time.
public struct RelayStream: Sendable {
    public var status: Int
    /// The header fields, by their names in lower case.
    public var headers: [String: String]
    /// The pieces of the body. The transport ends the connection when the reader stops.
    public var body: AsyncThrowingStream<Data, any Error>

    public init(status: Int, headers: [String: String] = [:], body: AsyncThrowingStream<Data, any Error>) {
        self.status = status
        self.headers = headers
        self.body = body
    }
}

/// Makes HTTP requests. `PushChatKit` has a transport on `URLSession`; an app may supply its own.
public protocol RelayTransport: Sendable {
    /// Makes a request and returns the whole response, whatever its status.
    ///
    /// - Throws: ``TransportError``. The caller treats any other error like ``TransportError/lost(_:)``.
    func response(to request: RelayRequest) async throws -> RelayResponse

    /// Makes a request and returns as soon as the head of the response has arrived.
    ///
    /// - Throws: The same errors as ``response(to:)``.
    func stream(of request: RelayRequest) async throws -> RelayStream
}

/// The reason why a request got no response.
///
/// Later versions may add cases: a `switch` needs a `default`.
public enum TransportError: Error, Sendable, Hashable {
    /// No server listens at the address.
    case refused
    /// The connection could not be made, or has ended.
    case lost(String)
}

public import Foundation
@_exported public import PushChatCore

#if canImport(FoundationNetworking)
public import FoundationNetworking
#endif

/// Makes requests with `URLSession`.
public struct URLSessionTransport: RelayTransport {
    private let session: URLSession

    /// - Parameter configuration: The configuration of the session. A stream needs `timeoutIntervalForRequest` above
    ///   the relay's pause of 15 s between two bytes.
    public init(configuration: URLSessionConfiguration = .ephemeral) {
        // The caller's object stays unchanged.
        let configuration = configuration.copy() as? URLSessionConfiguration ?? configuration
        configuration.timeoutIntervalForResource = 7 * 86_400
        // The stream keeps its connection, and must not block other calls.
        configuration.httpMaximumConnectionsPerHost = max(configuration.httpMaximumConnectionsPerHost, 4)
        session = URLSession(configuration: configuration)
    }

    public func response(to request: RelayRequest) async throws -> RelayResponse {
        do {
            let (data, response) = try await session.data(for: Self.request(request))
            let (status, headers) = try Self.head(response)
            return RelayResponse(status: status, headers: headers, body: data)
        } catch {
            throw Self.failure(error)
        }
    }

    public func stream(of request: RelayRequest) async throws -> RelayStream {
        var made = Self.request(request)
        // The longest pause within a stream: three of the relay's comments.
        made.timeoutInterval = 45
        let reader = StreamReader()
        let session = URLSession(configuration: session.configuration, delegate: reader, delegateQueue: nil)
        do {
            return try await reader.start(session.dataTask(with: made), of: session)
        } catch {
            throw Self.failure(error)
        }
    }

    private static func request(_ request: RelayRequest) -> URLRequest {
        var made = URLRequest(url: request.url)
        made.httpMethod = request.method
        made.httpBody = request.body
        made.timeoutInterval = request.timeout / .seconds(1)
        made.cachePolicy = .reloadIgnoringLocalCacheData
        for (name, value) in request.headers { made.setValue(value, forHTTPHeaderField: name) }
        return made
    }

    fileprivate static func head(_ response: URLResponse) throws -> (Int, [String: String]) {
        guard let response = response as? HTTPURLResponse else { throw TransportError.lost("not a response of HTTP") }
        var headers: [String: String] = [:]
        for (name, value) in response.allHeaderFields {
            if let name = name as? String, let value = value as? String { headers[name.lowercased()] = value }
        }
        return (response.statusCode, headers)
    }

    fileprivate static func failure(_ error: any Error) -> any Error {
        guard let error = error as? URLError else { return error }
        switch error.code {
        case .cancelled: return CancellationError()
        case .cannotConnectToHost: return TransportError.refused
        default: return TransportError.lost(error.localizedDescription)
        }
    }
}

/// Passes the pieces of one response on as they arrive.
///
/// `@unchecked Sendable` is sound: `head` and `body` are read and written only while `lock` is held, and everything else
/// is constant and `Sendable`.
private final class StreamReader: NSObject, URLSessionDataDelegate, @unchecked Sendable {
    /// The maximum number of pieces that wait for the reader. With more, the connection ends, and the reader asks for the
    /// rest with a new one.
    private static let maximumWaiting = 1000

    private let lock = NSLock()
    private var head: CheckedContinuation<RelayStream, any Error>?
    /// `nil` once the caller has it: the connection ends with the last reference.
    private var body: AsyncThrowingStream<Data, any Error>?
    private let pieces: AsyncThrowingStream<Data, any Error>.Continuation

    override init() {
        let (body, pieces) = AsyncThrowingStream.makeStream(
            of: Data.self, bufferingPolicy: .bufferingOldest(Self.maximumWaiting))
        (self.body, self.pieces) = (body, pieces)
    }

    /// Starts the task and returns when the head of the response has arrived. The session ends with the stream.
    func start(_ task: URLSessionDataTask, of session: URLSession) async throws -> RelayStream {
        pieces.onTermination = { _ in session.invalidateAndCancel() }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                lock.withLock { head = continuation }
                task.resume()
            }
        } onCancel: {
            task.cancel()
        }
    }

    private func takeHead() -> (CheckedContinuation<RelayStream, any Error>, AsyncThrowingStream<Data, any Error>)? {
        lock.withLock {
            defer { (head, body) = (nil, nil) }
            guard let head, let body else { return nil }
            return (head, body)
        }
    }

    func urlSession(
        _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
        guard let (head, body) = takeHead() else { return completionHandler(.cancel) }
        do {
            let (status, headers) = try URLSessionTransport.head(response)
            head.resume(returning: RelayStream(status: status, headers: headers, body: body))
            completionHandler(.allow)
        } catch {
            head.resume(throwing: error)
            completionHandler(.cancel)
        }
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        if case .dropped = pieces.yield(data) {
            pieces.finish(throwing: TransportError.lost("the app reads too slowly"))
        }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        let error = error.map(URLSessionTransport.failure)
        takeHead()?.0.resume(throwing: error ?? TransportError.lost("no response"))
        pieces.finish(throwing: error)
    }
}

extension PushChatAPI {
    /// Creates the API of a relay, which makes its requests with `URLSession`.
    ///
    /// - Parameters:
    ///   - url: The relay's URL, without `/api.php`. A slash at the end is ignored.
    ///   - app: The properties of the app.
    ///   - session: Returns the session token that a relay with `sessions` requires. Called for each request, because
    ///     sessions end. Returns `nil` without one.
    public init(
        url: URL, app: App = App(), session: @escaping @Sendable () async throws -> String? = { nil }
    ) {
        self.init(url: url, app: app, transport: URLSessionTransport(), session: session)
    }
}

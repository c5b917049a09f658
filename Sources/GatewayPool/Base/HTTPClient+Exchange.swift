package import AsyncHTTPClient
package import NIOCore
package import NIOHTTP1

/// A response whose body was read completely.
package struct WholeResponse: Sendable {
    package let status: HTTPResponseStatus
    package let headers: HTTPHeaders
    package let body: [UInt8]
}

extension HTTPClient {
    /// Sends a request and reads the response.
    ///
    /// The client's own limits do not cover a body that arrives byte by byte.
    ///
    /// - Parameters:
    ///   - bytes: The maximum size of the body.
    ///   - limit: The maximum time for all of it, including the connection.
    /// - Throws: `HTTPClientError.deadlineExceeded` after `limit`.
    package func exchange(
        _ request: HTTPClientRequest, upTo bytes: Int, within limit: TimeAmount
    ) async throws -> WholeResponse {
        try await withThrowingTaskGroup(of: WholeResponse.self) { group in
            group.addTask {
                let response = try await self.execute(request, timeout: limit)
                let body = try await response.body.collect(upTo: bytes)
                return WholeResponse(
                    status: response.status, headers: response.headers, body: Array(body.readableBytesView))
            }
            group.addTask {
                try await _Concurrency.Task.sleep(for: Duration(limit))
                throw HTTPClientError.deadlineExceeded
            }
            defer { group.cancelAll() }
            guard let first = try await group.next() else { throw CancellationError() }
            return first
        }
    }
}

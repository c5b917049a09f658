package import AsyncHTTPClient
package import NIOCore
package import NIOHTTP1

/// A response, and the part of its body that arrived in time.
package struct BoundedResponse: Sendable {
    package let status: HTTPResponseStatus
    package let headers: HTTPHeaders
    package let body: [UInt8]
}

extension HTTPClient {
    /// Sends a request and reads the response. All requests to services use this method, because the client's own limits
    /// do not cover a body that arrives byte by byte.
    ///
    /// The status is the service's answer. A body that is too long, breaks off, or is late is therefore cut, and its
    /// connection closes.
    ///
    /// - Parameters:
    ///   - bytes: The size at which the body is cut.
    ///   - deadline: The end of the time for all of it, including the connection.
    /// - Throws: `HTTPClientError.deadlineExceeded` if the head of the response is late.
    package func exchange(
        _ request: HTTPClientRequest, upTo bytes: Int, by deadline: NIODeadline
    ) async throws -> BoundedResponse {
        let response = try await execute(request, deadline: deadline)
        let body = await response.body.start(upTo: bytes, by: deadline)
        return BoundedResponse(status: response.status, headers: response.headers, body: body)
    }
}

extension HTTPClientResponse.Body {
    fileprivate func start(upTo limit: Int, by deadline: NIODeadline) async -> [UInt8] {
        await withTaskGroup(of: [UInt8]?.self) { group in
            group.addTask {
                var bytes: [UInt8] = []
                do {
                    for try await part in self {
                        bytes += part.readableBytesView.prefix(limit - bytes.count)
                        if bytes.count >= limit { break }
                    }
                } catch {
                    // The bytes so far are the result.
                }
                return bytes
            }
            group.addTask {
                try? await _Concurrency.Task.sleep(for: Duration(deadline - .now()))
                return nil
            }
            var bytes: [UInt8]?
            while bytes == nil, let result = await group.next() {
                bytes = result
                // After the deadline, the other task ends at once and returns its bytes.
                group.cancelAll()
            }
            return bytes ?? []
        }
    }
}

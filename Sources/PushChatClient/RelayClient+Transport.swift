import AsyncHTTPClient
import Foundation
import NIOCore
import NIOFoundationCompat
import NIOHTTP1
package import PushChatCore

/// The transport of `pushchat chat`. It adds no token: the API of a chat sends the session itself.
extension RelayClient: RelayTransport {
    package func response(to request: RelayRequest) async throws -> RelayResponse {
        let response = try await execute(request)
        do {
            let bytes = try await response.body.collect(upTo: Self.maximumResponse)
            return RelayResponse(
                status: Int(response.status.code), headers: Self.headers(response), body: Data(buffer: bytes))
        } catch {
            throw Self.transportError(error)
        }
    }

    package func stream(of request: RelayRequest) async throws -> RelayStream {
        let response = try await execute(request)
        let (body, pieces) = AsyncThrowingStream.makeStream(of: Data.self)
        let reading = Task {
            do {
                for try await bytes in response.body { pieces.yield(Data(buffer: bytes)) }
                pieces.finish()
            } catch {
                pieces.finish(throwing: Self.transportError(error))
            }
        }
        pieces.onTermination = { _ in reading.cancel() }
        return RelayStream(status: Int(response.status.code), headers: Self.headers(response), body: body)
    }

    private func execute(_ request: RelayRequest) async throws -> HTTPClientResponse {
        var made = HTTPClientRequest(url: request.url.absoluteString)
        made.method = HTTPMethod(rawValue: request.method)
        for (name, value) in request.headers { made.headers.add(name: name, value: value) }
        made.body = request.body.map { .bytes(ByteBuffer(data: $0)) }
        do {
            return try await execute(made, within: TimeAmount(request.timeout))
        } catch {
            throw Self.transportError(error)
        }
    }

    private static func headers(_ response: HTTPClientResponse) -> [String: String] {
        Dictionary(response.headers.map { ($0.name.lowercased(), $0.value) }) { first, _ in first }
    }

    private static func transportError(_ error: any Error) -> any Error {
        switch error {
        case is CancellationError, is CallFailure: error
        default:
            isRefused(error)
                ? TransportError.refused : TransportError.lost(isClosed(error) ? "" : text(error))
        }
    }
}

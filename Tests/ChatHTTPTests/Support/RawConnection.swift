import NIOCore
import NIOPosix
import NIOSSL

/// A client connection on which a test controls every byte.
final class RawConnection {
    enum Problem: Error {
        case closed
        case malformed(String)
    }

    struct Answer: Sendable {
        let status: Int
        /// The headers, with names in lower case.
        let headers: [String: String]
        let body: String
    }

    private var inbound: NIOAsyncChannelInboundStream<ByteBuffer>.AsyncIterator
    private let outbound: NIOAsyncChannelOutboundWriter<ByteBuffer>
    private var received = ByteBuffer()

    private init(
        inbound: NIOAsyncChannelInboundStream<ByteBuffer>.AsyncIterator,
        outbound: NIOAsyncChannelOutboundWriter<ByteBuffer>
    ) {
        self.inbound = inbound
        self.outbound = outbound
    }

    static func open<Value: Sendable>(
        port: Int, tls: TLSConfiguration? = nil, _ body: (RawConnection) async throws -> Value
    ) async throws -> Value {
        let context = try tls.map { try NIOSSLContext(configuration: $0) }
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .connectTimeout(.seconds(5))
            .connect(host: "127.0.0.1", port: port) { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let context {
                        try channel.pipeline.syncOperations.addHandler(
                            NIOSSLClientHandler(context: context, serverHostname: nil))
                    }
                    return try NIOAsyncChannel<ByteBuffer, ByteBuffer>(
                        wrappingChannelSynchronously: channel,
                        configuration: .init(isOutboundHalfClosureEnabled: true))
                }
            }
        return try await channel.executeThenClose { inbound, outbound in
            try await body(RawConnection(inbound: inbound.makeAsyncIterator(), outbound: outbound))
        }
    }

    func write(_ text: String) async throws {
        try await outbound.write(ByteBuffer(string: text))
    }

    func write(_ bytes: [UInt8]) async throws {
        try await outbound.write(ByteBuffer(bytes: bytes))
    }

    /// Ends the client's sending direction.
    func finish() {
        outbound.finish()
    }

    /// Returns the next response. Its body has the length that Content-Length gives.
    func answer() async throws -> Answer {
        while true {
            let text = String(buffer: received)
            if let end = text.range(of: "\r\n\r\n") {
                var lines = text[..<end.lowerBound].split(separator: "\r\n")[...]
                let first = lines.removeFirst().split(separator: " ")
                guard first.count > 1, let status = Int(first[1]) else { throw Problem.malformed(text) }
                var headers: [String: String] = [:]
                for line in lines {
                    guard let colon = line.firstIndex(of: ":") else { throw Problem.malformed(text) }
                    headers[line[..<colon].lowercased()] = String(line[line.index(after: colon)...].drop { $0 == " " })
                }
                let head = text[..<end.upperBound].utf8.count
                let length = headers["content-length"].flatMap { Int($0) } ?? 0
                if received.readableBytes >= head + length {
                    received.moveReaderIndex(forwardBy: head)
                    let body = received.readString(length: length) ?? ""
                    return Answer(status: status, headers: headers, body: body)
                }
            }
            guard try await receive() else { throw Problem.closed }
        }
    }

    /// Returns the received text up to a mark, and from there up to `end`, and removes it from the buffer.
    func text(until mark: String, and end: String = "") async throws -> String {
        while true {
            let text = String(buffer: received)
            if let found = text.range(of: mark),
                let rest = end.isEmpty ? found : text[found.upperBound...].range(of: end)
            {
                let piece = String(text[..<rest.upperBound])
                received.moveReaderIndex(forwardBy: piece.utf8.count)
                // Remove the boundaries between chunks of the body (RFC 9112 §7.1).
                return piece.replacing(/(\r\n)?[0-9a-fA-F]+\r\n/, with: "")
            }
            guard try await receive() else { throw Problem.closed }
        }
    }

    /// Returns the next bytes, and removes them from the buffer.
    func bytes(_ count: Int) async throws -> [UInt8] {
        while received.readableBytes < count {
            guard try await receive() else { throw Problem.closed }
        }
        return received.readBytes(length: count) ?? []
    }

    /// Waits until the response has ended or the server has closed the connection.
    func closedOrEnded() async throws {
        while !String(buffer: received).contains("0\r\n\r\n") {
            guard try await receive() else { return }
        }
    }

    /// Waits until the server has closed the connection. Discards all bytes until then.
    func closed() async throws {
        do {
            while try await receive() {}
        } catch  where error is IOError || error is ChannelError {
            // A reset also counts as closed.
        }
    }

    private func receive() async throws -> Bool {
        guard var next = try await inbound.next() else { return false }
        received.writeBuffer(&next)
        return true
    }
}

extension String {
    fileprivate func range(of text: String) -> Range<String.Index>? {
        firstRange(of: text)
    }
}

/// Returns a form post as bytes.
func post(_ body: String, headers: [String] = ["Content-Type: application/x-www-form-urlencoded"]) -> String {
    (["POST /api.php HTTP/1.1", "Host: localhost", "Content-Length: \(body.utf8.count)"] + headers)
        .joined(separator: "\r\n") + "\r\n\r\n" + body
}

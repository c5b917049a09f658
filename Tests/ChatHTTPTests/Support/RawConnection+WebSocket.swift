/// The client's side of a WebSocket, frame by frame.
extension RawConnection {
    struct Frame: Equatable {
        /// The first byte: the flags and the opcode.
        let first: UInt8
        let payload: [UInt8]

        static func text(_ text: String) -> Frame { Frame(first: 0x81, payload: Array(text.utf8)) }
        static func close(_ payload: [UInt8] = []) -> Frame { Frame(first: 0x88, payload: payload) }
        static func ping(_ text: String = "") -> Frame { Frame(first: 0x89, payload: Array(text.utf8)) }
        static func pong(_ text: String = "") -> Frame { Frame(first: 0x8A, payload: Array(text.utf8)) }
    }

    /// The key of the example in RFC 6455 §1.3, and the response to it.
    static let key = "dGhlIHNhbXBsZSBub25jZQ=="
    static let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

    /// The request of a browser.
    static func handshake(_ path: String, headers: String = "") -> String {
        "GET \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
            + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \(key)\r\n\(headers)\r\n"
    }

    /// Returns the server's next frame.
    func frame() async throws -> Frame {
        let head = try await bytes(2)
        // A server's frames have no mask.
        guard head[1] < 128 else { throw Problem.malformed("\(head)") }
        var length = Int(head[1])
        if length > 125 {
            length = try await bytes(length == 126 ? 2 : 8).reduce(0) { $0 << 8 | Int($1) }
        }
        return Frame(first: head[0], payload: try await bytes(length))
    }

    /// Returns the text of the next frame.
    func message() async throws -> String {
        let frame = try await frame()
        guard frame.first == 0x81 else { throw Problem.malformed("\(frame)") }
        return String(decoding: frame.payload, as: UTF8.self)
    }

    func send(_ frame: Frame, isMasked: Bool = true) async throws {
        let (count, flag) = (frame.payload.count, UInt8(isMasked ? 128 : 0))
        var bytes: [UInt8] = [frame.first]
        switch count {
        case ..<126: bytes.append(UInt8(count) | flag)
        case ..<65_536: bytes += [126 | flag, UInt8(count >> 8), UInt8(count & 255)]
        default: bytes += [127 | flag] + (0..<8).reversed().map { UInt8(truncatingIfNeeded: count >> ($0 * 8)) }
        }
        let mask: [UInt8] = [1, 2, 3, 4]
        if isMasked { bytes += mask }
        bytes += frame.payload.enumerated().map { isMasked ? $1 ^ mask[$0 % 4] : $1 }
        try await write(bytes)
    }
}

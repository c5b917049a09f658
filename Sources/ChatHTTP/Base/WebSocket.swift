import ChatDomain
import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import NIOWebSocket

/// The relay's side of a WebSocket (RFC 6455): it sends events and pings, and the client answers the pings.
enum WebSocket {
    /// The time without an event after which the relay sends a ping.
    static let pingInterval = Duration.seconds(45)
    /// The time after a ping within which the client must send something. Otherwise the connection closes.
    static let pongTime = Duration.seconds(60)
    static let ping = frame(.ping, ByteBuffer())

    private static let version = "13"
    /// The value that the key is hashed with (RFC 6455 §1.3).
    private static let guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

    /// Returns the headers of the response that makes a connection a WebSocket. They name no extension and no
    /// subprotocol, which declines those that the client offers.
    static func handshake(_ request: HTTPFields) throws(ChatError) -> HTTPFields {
        guard request[.secWebSocketVersion] == version else {
            throw .invalid(HTTPField.Name.secWebSocketVersion.rawName, "must be \(version)")
        }
        guard let key = request[.secWebSocketKey], Data(base64Encoded: key)?.count == 16 else {
            throw .invalid(HTTPField.Name.secWebSocketKey.rawName, "must be 16 bytes in base64")
        }
        let hash = Data(Insecure.SHA1.hash(data: Data((key + guid).utf8)))
        return [.upgrade: "websocket", .connection: "Upgrade", .secWebSocketAccept: hash.base64EncodedString()]
    }

    static func text(_ payload: String) -> ByteBuffer { frame(.text, ByteBuffer(string: payload)) }

    /// Returns a whole message as one frame. A server's frames are not masked.
    static func frame(_ opcode: WebSocketOpcode, _ payload: ByteBuffer) -> ByteBuffer {
        let length = payload.readableBytes
        var bytes = ByteBufferAllocator().buffer(capacity: length + 10)
        bytes.writeInteger(0x80 | UInt8(webSocketOpcode: opcode))
        switch length {
        case ..<126: bytes.writeInteger(UInt8(length))
        case ...Int(UInt16.max): bytes.writeMultipleIntegers(UInt8(126), UInt16(length))
        default: bytes.writeMultipleIntegers(UInt8(127), UInt64(length))
        }
        bytes.writeImmutableBuffer(payload)
        return bytes
    }
}

extension HTTPRequest {
    /// Whether the request asks for a WebSocket, in the form of RFC 6455 §4.2.1. The key and the version are not
    /// checked.
    var mayBecomeWebSocket: Bool {
        method == .get && headerFields.contains(.upgrade, token: "websocket")
            && headerFields.contains(.connection, token: "upgrade")
            && !headerFields.contains(.contentLength) && !headerFields.contains(.transferEncoding)
    }
}

extension HTTPFields {
    fileprivate func contains(_ name: HTTPField.Name, token: String) -> Bool {
        self[values: name].contains { value in
            value.split(separator: ",").contains { $0.drop { $0 == " " }.lowercased() == token }
        }
    }
}

extension Request {
    /// Whether the client asks for a WebSocket. The connection removes `Upgrade` from all other requests.
    var asksForWebSocket: Bool { headers.contains(.upgrade) }
}

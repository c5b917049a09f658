package import ChatDomain
import Crypto
import Foundation

/// Names rooms to Apple: the `thread-id` by which a device groups the notifications of a room.
///
/// The name is a keyed hash (HMAC-SHA256) of the room's code. Without the key nobody can compute it, so Apple cannot find a
/// code by trying likely ones.
package struct RoomThreads: Sendable {
    /// Bytes of the hash that stand in a payload.
    private static let size = 8
    private let key: SymmetricKey

    /// - Parameter secret: at least 32 random bytes that Apple does not know. With other ones, every room gets another name.
    package init(secret: [UInt8]) {
        key = SymmetricKey(data: secret)
    }

    /// 16 hexadecimal digits, the same for all messages of the room.
    package func id(of code: SecretCode) -> String {
        Hex.text(Array(HMAC<SHA256>.authenticationCode(for: Data(code.text.utf8), using: key).prefix(Self.size)))
    }
}

package import ChatDomain
import Crypto
import Foundation

/// Computes the `thread-id` of a room, by which a device groups the room's notifications.
///
/// The id is a keyed hash (HMAC-SHA256) of the room's code. Without the key it cannot be computed, so Apple cannot find
/// a code by trying likely ones.
package struct RoomThreads: Sendable {
    /// The number of bytes of the hash that a payload contains.
    private static let size = 8
    private let key: SymmetricKey

    /// Creates a namer of rooms.
    /// - Parameter secret: At least 32 random bytes that Apple does not know. A different secret changes the id of
    ///   every room.
    package init(secret: [UInt8]) {
        key = SymmetricKey(data: secret)
    }

    /// Returns 16 hexadecimal digits, which are the same for all messages of the room.
    package func id(of code: SecretCode) -> String {
        Hex.text(Array(HMAC<SHA256>.authenticationCode(for: Data(code.text.utf8), using: key).prefix(Self.size)))
    }
}

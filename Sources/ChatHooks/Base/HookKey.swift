import ChatDomain
import Crypto
import Foundation

/// Makes short names from values of other programs, which may be long and have any characters.
enum HookKey {
    /// Returns the key of the messages about one thing.
    ///
    /// - Parameters:
    ///   - prefix: Two letters that tell formats apart.
    ///   - parts: The values that name the thing.
    static func make(_ prefix: String, _ parts: String...) -> MessageKey {
        MessageKey(stored: "\(prefix)_\(digest(parts, length: 40))")
    }

    /// Returns a short id of an alert.
    static func id(_ parts: [String]) -> String { digest(parts, length: 12) }

    private static func digest(_ parts: [String], length: Int) -> String {
        var hash = SHA256()
        for part in parts {
            // The length tells ["ab", "c"] from ["a", "bc"].
            hash.update(data: Data("\(part.utf8.count):".utf8))
            hash.update(data: Data(part.utf8))
        }
        let text = Data(hash.finalize()).base64EncodedString().utf8.prefix(length).map { byte in
            switch byte {
            case UInt8(ascii: "+"): UInt8(ascii: "-")
            case UInt8(ascii: "/"): UInt8(ascii: "_")
            default: byte
            }
        }
        return String(decoding: text, as: UTF8.self)
    }
}

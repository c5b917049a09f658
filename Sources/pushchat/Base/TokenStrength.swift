import Foundation

/// An estimate of how hard a token is to guess. Only its strength protects a token, because the relay always accepts a
/// correct token, even after many wrong ones.
///
/// The estimate is the token's length times the bits of one character, as if each character had been drawn at random
/// from the kinds that occur: 10 digits, 26 small letters, 26 capitals, 32 other characters. Hexadecimal digits in one
/// case are 16 kinds, not 36. The estimate is an upper bound: known words are weaker.
enum TokenStrength {
    /// The bits that put a token out of reach of any guessing.
    static let enough = 128.0

    static func bits(of token: String) -> Double {
        let bytes = Set(token.utf8)
        guard !bytes.isEmpty else { return 0 }
        return Double(token.utf8.count) * log2(Double(alphabet(of: bytes)))
    }

    /// The number of characters from which each character of the token could have been drawn.
    private static func alphabet(of bytes: Set<UInt8>) -> Int {
        var (count, rest) = (0, bytes)
        for kind in [digits, smallLetters, capitals] where !bytes.isDisjoint(with: kind) {
            count += kind.count
            rest.subtract(kind)
        }
        if !rest.isEmpty { count += others }
        let isHex = [hexDigits, Set("0123456789ABCDEF".utf8)].contains { bytes.isSubset(of: $0) }
        return isHex ? min(count, hexDigits.count) : count
    }

    private static let digits = Set(UInt8(ascii: "0")...UInt8(ascii: "9"))
    private static let smallLetters = Set(UInt8(ascii: "a")...UInt8(ascii: "z"))
    private static let capitals = Set(UInt8(ascii: "A")...UInt8(ascii: "Z"))
    private static let hexDigits = Set("0123456789abcdef".utf8)
    /// The number of other characters in printable ASCII, without the space.
    private static let others = 32
}
